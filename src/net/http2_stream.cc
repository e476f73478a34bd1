#include "net/http2_stream.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <charconv>
#include <cstring>

namespace atl::net {
namespace {

constexpr auto kUse = asio::as_tuple(asio::use_awaitable);
constexpr std::size_t kFieldOverhead = 32;      // RFC 9113, 6.5.2
constexpr std::size_t kKeptInbox = 64 * 1024;   // capacity that an empty inbox keeps
constexpr std::size_t kDiscardBytes = 8 << 20;  // what a refused upload may still send
constexpr std::chrono::milliseconds kDiscardTime{2000};

bool is_token(char c) {
  if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) return true;
  return std::strchr("!#$%&'*+-.^_`|~", c) != nullptr && c != '\0';
}

// HTTP/1.1 headers about the connection have no meaning here, and clients must refuse them.
bool of_the_connection(std::string_view name) {
  for (const char* forbidden :
       {"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"}) {
    if (name == forbidden) return true;
  }
  return false;
}

// Header fields of an answer in the form that nghttp2 wants, with their text.
class Fields {
 public:
  explicit Fields(std::size_t count) { texts_.reserve(2 * count); }
  void add(std::string name, std::string value) {
    texts_.push_back(std::move(name));
    texts_.push_back(std::move(value));
  }
  void add(const Headers& headers) {
    for (const auto& field : headers) {
      std::string name;
      name.reserve(field.name.size());
      for (char c : field.name) name += c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c;
      if (name.empty() || !std::all_of(name.begin(), name.end(), is_token)) continue;
      if (of_the_connection(name) || name == "content-length") continue;
      std::string_view value = field.value;
      while (!value.empty() && (value.front() == ' ' || value.front() == '\t'))
        value.remove_prefix(1);
      while (!value.empty() && (value.back() == ' ' || value.back() == '\t'))
        value.remove_suffix(1);
      std::string clean(value);
      for (char& c : clean)
        if (c == '\r' || c == '\n' || c == '\0') c = ' ';
      add(std::move(name), std::move(clean));
    }
  }
  std::vector<nghttp2_nv> view() {
    std::vector<nghttp2_nv> out;
    out.reserve(texts_.size() / 2);
    for (std::size_t i = 0; i < texts_.size(); i += 2) {
      out.push_back({reinterpret_cast<std::uint8_t*>(texts_[i].data()),
                     reinterpret_cast<std::uint8_t*>(texts_[i + 1].data()), texts_[i].size(),
                     texts_[i + 1].size(), NGHTTP2_NV_FLAG_NONE});
    }
    return out;
  }

 private:
  std::vector<std::string> texts_;
};

std::optional<std::uint64_t> parse_length(std::string_view text) {
  std::uint64_t out = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (ec != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return out;
}

bool has_no_body(int status) { return status == 204 || status == 304; }

}  // namespace

Task<bool> Event::wait(std::optional<std::chrono::milliseconds> limit) {
  if (limit)
    timer_.expires_after(*limit);
  else
    timer_.expires_at(std::chrono::steady_clock::time_point::max());
  auto [ec] = co_await timer_.async_wait(kUse);
  co_return bool(ec);
}

// The stream that a handler watches. There are no tunnels over HTTP/2: bytes go through the body
// and the answer only.
class Http2Stream::Facade final : public Stream {
 public:
  explicit Facade(Http2Stream& stream) : stream_(stream) {}
  Task<Result<std::size_t>> read_some(std::span<char>) override { co_return no_tunnel(); }
  Task<Result<void>> write_pieces(std::span<const std::string_view>) override {
    co_return no_tunnel();
  }
  Task<void> wait_peer_closed() override {
    if (stream_.broken_) co_return;
    co_await stream_.closing_.async_wait(kUse);
  }
  void set_read_timeout(std::optional<std::chrono::milliseconds> timeout) override {
    stream_.read_timeout_ = timeout;
  }
  void set_write_timeout(std::optional<std::chrono::milliseconds> timeout) override {
    stream_.write_timeout_ = timeout;
  }
  void shutdown_write() override {}
  void close() override { stream_.abort(); }
  void reset() override { stream_.abort(); }
  asio::any_io_executor executor() override { return stream_.executor_; }
  int native_handle() override { return -1; }
  int release() override { return -1; }

 private:
  static Error no_tunnel() {
    return make_error(Errc::unimplemented, "HTTP/2 connections cannot be taken over");
  }
  Http2Stream& stream_;
};

Http2Stream::Http2Stream(Http2Link& link, asio::any_io_executor executor, std::int32_t id,
                         const HttpLimits& limits)
    : link_(link),
      executor_(executor),
      id_(id),
      limits_(limits),
      facade_(std::make_unique<Facade>(*this)),
      readable_(executor),
      writable_(executor),
      write_timeout_(limits.write_time),
      closing_(executor) {
  closing_.expires_at(std::chrono::steady_clock::time_point::max());
  head_.version = 20;
  head_.target.clear();
}

Http2Stream::~Http2Stream() = default;

Stream& Http2Stream::facade() { return *facade_; }

// ---- the request's head ----

void Http2Stream::add_field(std::string_view name, std::string_view value) {
  head_bytes_ += name.size() + value.size() + kFieldOverhead;
  if (over_limit(1)) return;
  if (name == ":method") {
    head_.method = value;
  } else if (name == ":path") {
    head_.target = value;
  } else if (name == ":authority") {
    authority_ = value;
  } else if (name.starts_with(':')) {
    return;  // :scheme
  } else if (name == "cookie") {
    if (!cookie_.empty()) cookie_ += "; ";
    cookie_ += value;
  } else {
    head_.headers.add(std::string(name), std::string(value));
  }
}

bool Http2Stream::over_limit(std::size_t factor) const {
  return head_bytes_ > factor * limits_.header_bytes;
}

std::optional<Http2Stream::Refusal> Http2Stream::finish_head() {
  head_only_ = head_.method == "HEAD";
  if (over_limit(1)) return Refusal{431, "the header is too large"};
  if (head_.method == "CONNECT")
    return Refusal{501, "CONNECT is not offered over HTTP/2: use HTTP/1.1"};
  if (!cookie_.empty()) head_.headers.add("cookie", std::move(cookie_));
  if (!authority_.empty()) {
    // Two names for one server: whoever decides by one of them must not be fooled by the other.
    const auto host = head_.headers.find("host");
    if (host && !iequals(*host, authority_)) return Refusal{400, "Host is not :authority"};
    head_.headers.set("Host", std::move(authority_));
  }
  if (const auto text = head_.headers.find("content-length")) {
    length_ = parse_length(*text);
    if (!length_) return Refusal{400, "malformed Content-Length"};
  } else if (ended_) {
    length_ = 0;
  }
  expect_continue_ = !ended_ && iequals(head_.headers.get("expect"), "100-continue");
  return std::nullopt;
}

// ---- receiving ----

void Http2Stream::on_data(std::string_view bytes) {
  if (discarding_ || broken_) {
    nghttp2_session_consume(link_.session(), id_, bytes.size());
    discarded_ += bytes.size();
    if (discarded_ > kDiscardBytes) stop_upload();
    return;
  }
  if (inbox_begin_ == inbox_.size()) {
    inbox_.clear();
    inbox_begin_ = 0;
  } else if (inbox_begin_ > inbox_.size() / 2) {
    inbox_.erase(inbox_.begin(), inbox_.begin() + std::ptrdiff_t(inbox_begin_));
    inbox_begin_ = 0;
  }
  inbox_.insert(inbox_.end(), bytes.begin(), bytes.end());
  readable_.notify();
}

void Http2Stream::on_end() {
  ended_ = true;
  readable_.notify();
}

void Http2Stream::on_closed(bool broken) {
  closed_ = true;
  if (broken) broken_ = true;
  outbox_ = {};
  readable_.notify();
  writable_.notify();
  if (broken_) closing_.cancel();
}

// The answer is out: NO_ERROR asks the client to send no more (RFC 9113, 8.1).
void Http2Stream::stop_upload() {
  if (closed_ || aborted_) return;
  aborted_ = true;
  nghttp2_submit_rst_stream(link_.session(), NGHTTP2_FLAG_NONE, id_, NGHTTP2_NO_ERROR);
  link_.wake_writer();
}

Task<void> Http2Stream::settle() {
  discarding_ = true;
  if (inbox_size() > 0) {
    nghttp2_session_consume(link_.session(), id_, inbox_size());
    link_.wake_writer();
  }
  inbox_ = {};
  inbox_begin_ = 0;
  if (ended_ || closed_ || aborted_) co_return;
  // A client that waits for "100 Continue" has sent nothing and will not; any other one may not
  // look at the answer before it has sent its body.
  const auto until = std::chrono::steady_clock::now() + kDiscardTime;
  while (!expect_continue_ && !ended_ && !closed_ && !aborted_) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    if (left.count() <= 0) break;
    auto waiting = readable_.wait(left);
    (void)co_await std::move(waiting);
  }
  if (!ended_) stop_upload();
}

Error Http2Stream::gone() const {
  return aborted_ ? make_error(Errc::canceled, "the stream was reset by this side")
                  : make_error(Errc::unavailable, "the client went away");
}

Task<Result<std::size_t>> Http2Stream::read_some(std::span<char> into) {
  if (into.empty()) co_return std::size_t(0);
  if (expect_continue_) {
    expect_continue_ = false;
    if (!closed_ && !started_) {
      Fields fields(1);
      fields.add(":status", "100");
      auto view = fields.view();
      nghttp2_submit_headers(link_.session(), NGHTTP2_FLAG_NONE, id_, nullptr, view.data(),
                             view.size(), nullptr);
      link_.wake_writer();
    }
  }
  for (;;) {
    if (broken_) co_return gone();
    if (const std::size_t n = std::min(into.size(), inbox_size()); n > 0) {
      std::memcpy(into.data(), inbox_.data() + inbox_begin_, n);
      inbox_begin_ += n;
      if (inbox_size() == 0) {
        inbox_begin_ = 0;
        inbox_.clear();
        if (inbox_.capacity() > 4 * kKeptInbox) inbox_.shrink_to_fit();
      }
      nghttp2_session_consume(link_.session(), id_, n);
      // Credit goes out by the half window, not for every read.
      if (nghttp2_session_want_write(link_.session()) != 0) link_.wake_writer();
      co_return n;
    }
    if (ended_) co_return std::size_t(0);
    if (closed_) co_return gone();
    auto waiting = readable_.wait(read_timeout_);
    if (!co_await std::move(waiting))
      co_return make_error(Errc::deadline_exceeded, "read: the peer was silent for too long");
  }
}

// ---- answering ----

ssize_t Http2Stream::provide(std::span<std::uint8_t> into, std::uint32_t& flags) {
  if (broken_) return NGHTTP2_ERR_DEFERRED;  // RST_STREAM is on its way
  const std::size_t n = std::min(into.size(), outbox_.size());
  std::copy_n(outbox_.data(), n, into.data());
  outbox_.remove_prefix(n);
  taken_ += n;
  if (outbox_.empty()) {
    writable_.notify();
    if (eof_) {
      flags |= NGHTTP2_DATA_FLAG_EOF;
      eof_sent_ = true;
    } else if (n == 0) {
      deferred_ = true;
      return NGHTTP2_ERR_DEFERRED;
    }
  }
  return ssize_t(n);
}

Result<void> Http2Stream::submit_head(int status, const Headers& headers,
                                      std::optional<std::uint64_t> length, Body body) {
  if (closed_ || broken_) return gone();
  Fields fields(headers.size() + 2);
  fields.add(":status", std::to_string(status));
  fields.add(headers);
  if (length) fields.add("content-length", std::to_string(*length));
  auto view = fields.view();
  nghttp2_data_provider provider{};
  provider.source.ptr = this;
  provider.read_callback = [](nghttp2_session*, std::int32_t, std::uint8_t* into, std::size_t size,
                              std::uint32_t* flags, nghttp2_data_source* source, void*) {
    return static_cast<Http2Stream*>(source->ptr)->provide({into, size}, *flags);
  };
  const int failed = nghttp2_submit_response(link_.session(), id_, view.data(), view.size(),
                                             body == Body::follows ? &provider : nullptr);
  if (failed != 0)
    return make_error(Errc::internal, std::string("answer: ") + nghttp2_strerror(failed));
  link_.wake_writer();
  return {};
}

Task<Result<void>> Http2Stream::send(int status, Headers headers, std::string body) {
  if (started_) co_return make_error(Errc::internal, "a second answer to one request");
  const bool bodiless = has_no_body(status);
  started_ = finished_ = true;
  const std::optional<std::uint64_t> length =
      bodiless ? std::nullopt : std::optional<std::uint64_t>(body.size());
  if (bodiless || head_only_ || body.empty())
    co_return submit_head(status, headers, length, Body::none);
  outbox_ = body;
  eof_ = true;
  auto submitted = submit_head(status, headers, length, Body::follows);
  if (!submitted.ok()) {
    outbox_ = {};
    co_return submitted;
  }
  auto draining = drain_outbox();
  co_return co_await std::move(draining);
}

Task<Result<void>> Http2Stream::start(int status, Headers headers,
                                      std::optional<std::uint64_t> length) {
  if (started_) co_return make_error(Errc::internal, "a second answer to one request");
  if (status < 200) co_return make_error(Errc::unimplemented, "no tunnels over HTTP/2");
  started_ = true;
  if (status == 204) length.reset();  // RFC 9110, 8.6
  left_ = length;
  if (has_no_body(status)) head_only_ = true;
  eof_sent_ = head_only_;
  co_return submit_head(status, headers, length, head_only_ ? Body::none : Body::follows);
}

Task<Result<void>> Http2Stream::write(std::string_view bytes) {
  if (!started_ || finished_) co_return make_error(Errc::internal, "a body without a head");
  if (bytes.empty() || head_only_) co_return Result<void>();
  if (left_) {
    if (bytes.size() > *left_)
      co_return make_error(Errc::internal, "a body longer than its Content-Length");
    *left_ -= bytes.size();
  }
  if (closed_ || broken_) co_return gone();
  outbox_ = bytes;
  auto draining = drain_outbox();
  co_return co_await std::move(draining);
}

Task<Result<void>> Http2Stream::finish() {
  if (!started_ || finished_) co_return Result<void>();
  finished_ = true;
  if (left_ && *left_ > 0 && !head_only_) {
    abort();  // fewer bytes than promised: only a broken stream says so
    co_return make_error(Errc::internal, "a body shorter than its Content-Length");
  }
  if (eof_sent_) co_return Result<void>();
  if (closed_ || broken_) co_return gone();
  eof_ = true;
  auto draining = drain_outbox();
  co_return co_await std::move(draining);
}

void Http2Stream::resume() {
  if (deferred_) {
    deferred_ = false;
    nghttp2_session_resume_data(link_.session(), id_);
  }
  link_.wake_writer();
}

Task<Result<void>> Http2Stream::drain_outbox() {
  // The bytes are the caller's. One that is cancelled here leaves an answer with a hole, which must
  // not look whole.
  struct Guard {
    Http2Stream& self;
    bool whole = false;
    ~Guard() {
      self.outbox_ = {};
      if (!whole) self.abort();
    }
  } guard{*this};
  resume();
  while (!outbox_.empty() || (eof_ && !eof_sent_)) {
    if (closed_ || broken_) break;
    const std::uint64_t before = taken_;
    auto waiting = writable_.wait(write_timeout_);
    if (!co_await std::move(waiting) && taken_ == before)
      co_return make_error(Errc::deadline_exceeded, "write: the client takes no bytes");
  }
  guard.whole = true;
  // on_closed empties the outbox, too.
  if (broken_ || (closed_ && !eof_sent_)) co_return gone();
  co_return Result<void>();
}

void Http2Stream::abort() {
  if (closed_ || aborted_) return;
  aborted_ = broken_ = true;
  outbox_ = {};
  // Not CANCEL: clients take that for an orderly end.
  nghttp2_submit_rst_stream(link_.session(), NGHTTP2_FLAG_NONE, id_, NGHTTP2_INTERNAL_ERROR);
  link_.wake_writer();
  readable_.notify();
  writable_.notify();
  closing_.cancel();
}

}  // namespace atl::net
