#include "net/http.h"

#include <algorithm>
#include <array>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/status.hpp>
#include <cstring>

#include "base/encoding.h"
#include "net/http1.h"

namespace atl::net {
namespace {

constexpr int kMaxInterimHeads = 32;  // 1xx before the answer proper

namespace http = boost::beast::http;

char lower(char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; }

std::string_view trim(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t')) s.remove_suffix(1);
  return s;
}

template <class Parser>
void copy_fields(const Parser& parser, Headers& into) {
  for (const auto& field : parser.get()) {
    into.add(std::string(field.name_string()), std::string(field.value()));
  }
}

Error parse_error(const boost::system::error_code& ec) {
  if (ec == http::error::header_limit)
    return make_error(Errc::out_of_range, "the header is too large");
  return make_error(Errc::invalid_argument, "malformed HTTP: " + ec.message());
}

}  // namespace

bool iequals(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(),
                                            [](char x, char y) { return lower(x) == lower(y); });
}

void Headers::set(std::string_view name, std::string value) {
  erase(name);
  add(std::string(name), std::move(value));
}

void Headers::erase(std::string_view name) {
  std::erase_if(fields_, [&](const Field& f) { return iequals(f.name, name); });
}

std::optional<std::string_view> Headers::find(std::string_view name) const {
  for (const Field& f : fields_) {
    if (iequals(f.name, name)) return f.value;
  }
  return std::nullopt;
}

std::string_view Headers::get(std::string_view name) const {
  return find(name).value_or(std::string_view());
}

bool Headers::lists(std::string_view name, std::string_view token) const {
  for (const Field& f : fields_) {
    if (!iequals(f.name, name)) continue;
    std::string_view rest = f.value;
    while (!rest.empty()) {
      const std::size_t comma = rest.find(',');
      if (iequals(trim(rest.substr(0, comma)), token)) return true;
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
  }
  return false;
}

std::string_view RequestHead::path() const {
  return std::string_view(target).substr(0, target.find('?'));
}

std::string_view RequestHead::query() const {
  const std::size_t mark = target.find('?');
  return mark == std::string::npos ? std::string_view() : std::string_view(target).substr(mark + 1);
}

std::optional<std::string> RequestHead::query_param(std::string_view name) const {
  std::string_view rest = query();
  while (!rest.empty()) {
    const std::size_t amp = rest.find('&');
    const std::string_view pair = rest.substr(0, amp);
    const std::size_t eq = pair.find('=');
    const auto key = percent_decode(pair.substr(0, eq), PlusIs::space);
    if (key && *key == name) {
      if (eq == std::string_view::npos) return std::string();
      return percent_decode(pair.substr(eq + 1), PlusIs::space);
    }
    if (amp == std::string_view::npos) break;
    rest.remove_prefix(amp + 1);
  }
  return std::nullopt;
}

std::string_view reason_phrase(int status) {
  const auto text = http::obsolete_reason(http::int_to_status(unsigned(status)));
  return std::string_view(text.data(), text.size());
}

Task<Result<std::string>> BodyReader::read_all(std::size_t limit) {
  std::string out;
  const auto length = content_length();
  if (length && *length > limit) {
    co_return make_error(Errc::resource_exhausted, "the body is longer than the limit of " +
                                                       std::to_string(limit) + " bytes");
  }
  std::size_t used = 0;
  out.resize(std::min<std::size_t>(length ? std::size_t(*length) : 4096, 64 * 1024));
  for (;;) {
    if (at_end()) break;
    if (used == out.size()) {
      if (used > limit) break;
      out.resize(std::min(out.size() * 2 + 1024, limit + 1));
    }
    auto read = read_some(std::span<char>(out.data() + used, out.size() - used));
    ATOLL_CO_TRY_ASSIGN(const std::size_t n, co_await std::move(read));
    if (n == 0) break;
    used += n;
  }
  if (used > limit) {
    co_return make_error(Errc::resource_exhausted, "the body is longer than the limit of " +
                                                       std::to_string(limit) + " bytes");
  }
  out.resize(used);
  co_return out;
}

// ---- Http1Buffer ----

std::size_t Http1Buffer::take(std::span<char> into) {
  const std::size_t n = std::min(into.size(), size());
  std::memcpy(into.data(), data_.data() + begin_, n);
  consume(n);
  return n;
}

void Http1Buffer::consume(std::size_t n) {
  begin_ += n;
  if (begin_ == end_) begin_ = end_ = 0;
}

Task<Result<std::size_t>> Http1Buffer::fill(Stream& stream) {
  if (data_.empty()) data_.resize(16 * 1024);
  if (end_ == data_.size()) {
    if (begin_ > 0) {
      std::memmove(data_.data(), data_.data() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
    } else {
      data_.resize(data_.size() *
                   2);  // bounded by the parser's header limit and by what a chunk header may be
    }
  }
  auto read = stream.read_some(std::span<char>(data_.data() + end_, data_.size() - end_));
  ATOLL_CO_TRY_ASSIGN(const std::size_t n, co_await std::move(read));
  end_ += n;
  co_return n;
}

std::string Http1Buffer::take_all() {
  std::string out(data_.data() + begin_, size());
  begin_ = end_ = 0;
  return out;
}

// ---- Http1Reader ----

template <bool IsRequest>
struct Http1Reader::Parser final : Http1Reader::ParserBase {
  http::parser<IsRequest, http::buffer_body> parser;

  explicit Parser(const HttpLimits& limits) {
    parser.header_limit(std::uint32_t(limits.header_bytes));
    parser.body_limit(boost::none);
    parser.eager(false);
  }
  bool header_done() const override { return parser.is_header_done(); }
  bool done() const override { return parser.is_done(); }
  std::size_t put(std::string_view bytes, boost::system::error_code& ec) override {
    return parser.put(boost::asio::const_buffer(bytes.data(), bytes.size()), ec);
  }
  std::size_t put_body(std::string_view bytes, std::span<char> into, std::size_t& got,
                       boost::system::error_code& ec) override {
    auto& body = parser.get().body();
    body.data = into.data();
    body.size = into.size();
    const std::size_t used = parser.put(boost::asio::const_buffer(bytes.data(), bytes.size()), ec);
    got = into.size() - body.size;
    if (ec == http::error::need_buffer || ec == http::error::need_more) ec = {};
    return used;
  }
  bool chunked() const override { return parser.chunked(); }
  bool keep_alive() const override { return parser.keep_alive(); }
  bool need_eof() const override { return parser.need_eof(); }
  std::optional<std::uint64_t> content_length() const override {
    const auto n = parser.content_length();
    return n ? std::optional<std::uint64_t>(*n) : std::nullopt;
  }
};

Http1Reader::Http1Reader(Stream& stream, Http1Buffer& buffer, const HttpLimits& limits)
    : stream_(stream), buffer_(buffer), limits_(limits) {}
Http1Reader::~Http1Reader() = default;

Task<Result<bool>> Http1Reader::read_header(std::unique_ptr<ParserBase> parser) {
  parser_ = std::move(parser);
  mode_ = Mode::done;
  bool& any = head_begun_ = buffer_.size() > 0;
  // One deadline for the whole head: a byte now and then does not move it.
  const auto now = std::chrono::steady_clock::now;
  auto until = now() + limits_.header_time;
  for (;;) {
    if (buffer_.size() > 0) {
      boost::system::error_code ec;
      buffer_.consume(parser_->put(buffer_.view(), ec));
      if (parser_->header_done()) break;
      if (ec && ec != http::error::need_more) co_return parse_error(ec);
      if (buffer_.size() >= limits_.header_bytes) co_return parse_error(http::error::header_limit);
    }
    if (any) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - now());
      if (left.count() <= 0)
        co_return make_error(Errc::deadline_exceeded, "read: the head took too long");
      stream_.set_read_timeout(left);
    }
    auto fill = buffer_.fill(stream_);
    ATOLL_CO_TRY_ASSIGN(const std::size_t n, co_await std::move(fill));
    if (n == 0) {
      if (!any) co_return false;
      co_return make_error(Errc::unavailable, "the connection ended inside a message head");
    }
    if (!any) {
      any = true;
      until = now() + limits_.header_time;
    }
  }
  stream_.set_read_timeout(std::nullopt);
  keep_alive_ = parser_->keep_alive();
  length_ = std::nullopt;
  if (parser_->chunked()) {
    mode_ = Mode::chunked;
  } else if (const auto n = parser_->content_length()) {
    length_ = left_ = *n;
    mode_ = *n == 0 ? Mode::done : Mode::counted;
  }
  co_return true;
}

Task<Result<std::optional<RequestHead>>> Http1Reader::read_request() {
  auto owned = std::make_unique<Parser<true>>(limits_);
  auto& parser = owned->parser;
  auto header = read_header(std::move(owned));
  ATOLL_CO_TRY_ASSIGN(const bool got, co_await std::move(header));
  if (!got) co_return std::optional<RequestHead>();
  RequestHead head;
  head.method = std::string(parser.get().method_string());
  head.target = std::string(parser.get().target());
  head.version = int(parser.get().version());
  copy_fields(parser, head.headers);
  if (mode_ == Mode::done && !length_)
    length_ = 0;  // a request without framing headers has no body
  expect_continue_ = head.version >= 11 && iequals(head.headers.get("Expect"), "100-continue") &&
                     mode_ != Mode::done;
  co_return std::optional<RequestHead>(std::move(head));
}

Task<Result<ResponseHead>> Http1Reader::read_response(std::string_view request_method) {
  for (int interim_heads = 0;; ++interim_heads) {
    if (interim_heads > kMaxInterimHeads)
      co_return make_error(Errc::invalid_argument, "interim answers without end");
    auto owned = std::make_unique<Parser<false>>(limits_);
    auto& parser = owned->parser;
    auto header = read_header(std::move(owned));
    ATOLL_CO_TRY_ASSIGN(const bool got, co_await std::move(header));
    if (!got) co_return make_error(Errc::unavailable, "the connection ended before an answer");
    ResponseHead head;
    head.status = int(parser.get().result_int());
    head.reason = std::string(parser.get().reason());
    head.version = int(parser.get().version());
    copy_fields(parser, head.headers);
    const bool interim = head.status >= 100 && head.status < 200;
    if (interim && head.status != 101) continue;
    const bool bodiless =
        interim || head.status == 204 || head.status == 304 || request_method == "HEAD";
    if (bodiless) {
      mode_ = Mode::done;
    } else if (!parser.chunked() && !parser_->content_length()) {
      mode_ = Mode::until_close;
      keep_alive_ = false;
    }
    co_return head;
  }
}

Task<Result<std::size_t>> Http1Reader::read_some(std::span<char> into) {
  if (mode_ == Mode::done || into.empty()) co_return std::size_t(0);
  if (expect_continue_) {
    expect_continue_ = false;
    auto write = stream_.write_all("HTTP/1.1 100 Continue\r\n\r\n");
    ATOLL_CO_TRY(co_await std::move(write));
  }
  if (mode_ == Mode::chunked) {
    auto chunk = read_chunked(into);
    co_return co_await std::move(chunk);
  }
  std::size_t n = 0;
  if (mode_ == Mode::counted) into = into.first(std::min<std::uint64_t>(into.size(), left_));
  if (buffer_.size() > 0) {
    n = buffer_.take(into);
  } else {
    auto read = stream_.read_some(into);
    ATOLL_CO_TRY_ASSIGN(n, co_await std::move(read));
  }
  if (mode_ == Mode::counted) {
    if (n == 0) co_return make_error(Errc::unavailable, "the connection ended inside a body");
    left_ -= n;
    if (left_ == 0) mode_ = Mode::done;
  } else if (n == 0) {
    mode_ = Mode::done;
  }
  co_return n;
}

Task<Result<std::size_t>> Http1Reader::read_chunked(std::span<char> into) {
  for (;;) {
    if (parser_->done()) {
      mode_ = Mode::done;
      co_return std::size_t(0);
    }
    if (buffer_.size() > 0) {
      boost::system::error_code ec;
      std::size_t got = 0;
      const std::size_t used = parser_->put_body(buffer_.view(), into, got, ec);
      buffer_.consume(used);
      if (ec) co_return parse_error(ec);
      if (parser_->done()) mode_ = Mode::done;
      if (got > 0) co_return got;
      if (mode_ == Mode::done) co_return std::size_t(0);
      if (used > 0) continue;
      // A chunk header or trailer that does not end is an attack on memory.
      if (buffer_.size() > limits_.header_bytes) co_return parse_error(http::error::header_limit);
    }
    auto fill = buffer_.fill(stream_);
    ATOLL_CO_TRY_ASSIGN(const std::size_t n, co_await std::move(fill));
    if (n == 0) co_return make_error(Errc::unavailable, "the connection ended inside a body");
  }
}

// ---- writing ----

void append_fields(std::string& out, const Headers& headers) {
  for (const auto& field : headers) {
    // A line break would start a header of the attacker's choice.
    if (field.name.find_first_of("\r\n:") != std::string::npos) continue;
    out += field.name;
    out += ": ";
    for (char c : field.value) out += (c == '\r' || c == '\n' || c == '\0') ? ' ' : c;
    out += "\r\n";
  }
}

Task<Result<void>> write_chunk(Stream& stream, std::string_view bytes) {
  if (bytes.empty()) co_return Result<void>();
  char head[20];
  const int n = std::snprintf(head, sizeof head, "%zx\r\n", bytes.size());
  const std::array<std::string_view, 3> pieces = {std::string_view(head, std::size_t(n)), bytes,
                                                  "\r\n"};
  co_return co_await stream.write_pieces(pieces);
}

// ---- HttpClient ----

struct HttpClient::Impl {
  Impl(std::unique_ptr<Stream> s, HttpLimits l)
      : stream(std::move(s)), limits(l), reader(*stream, buffer, limits) {}
  std::unique_ptr<Stream> stream;
  HttpLimits limits;
  Http1Buffer buffer;
  Http1Reader reader;
  std::string method;
  bool chunked = false;
  bool sent = false;
  bool broken = false;
};

HttpClient::HttpClient(std::unique_ptr<Stream> stream, HttpLimits limits)
    : impl_(std::make_unique<Impl>(std::move(stream), limits)) {}
HttpClient::~HttpClient() = default;
HttpClient::HttpClient(HttpClient&&) noexcept = default;

std::string HttpClient::begin(const RequestHead& head, std::optional<std::uint64_t> length) {
  std::string out = head.method + " " + head.target + " HTTP/1.1\r\n";
  append_fields(out, head.headers);
  if (!head.headers.has("Host")) out += "Host: localhost\r\n";
  impl_->method = head.method;
  impl_->sent = false;
  impl_->chunked = !length;
  const bool body_expected =
      head.method == "POST" || head.method == "PUT" || head.method == "PATCH";
  if (!length) {
    out += "Transfer-Encoding: chunked\r\n";
  } else if (*length > 0 || body_expected) {
    out += "Content-Length: " + std::to_string(*length) + "\r\n";
  }
  out += "\r\n";
  impl_->broken = true;  // until a whole response was read
  return out;
}

Task<Result<void>> HttpClient::write_head(const RequestHead& head,
                                          std::optional<std::uint64_t> length) {
  const std::string text = begin(head, length);
  co_return co_await impl_->stream->write_all(text);
}

Task<Result<void>> HttpClient::write_request(const RequestHead& head, std::string_view body) {
  const std::string text = begin(head, body.size());
  impl_->sent = true;
  const std::array<std::string_view, 2> pieces = {text, body};
  co_return co_await impl_->stream->write_pieces(pieces);
}

Task<Result<void>> HttpClient::write_body(std::string_view bytes) {
  if (impl_->chunked) co_return co_await write_chunk(*impl_->stream, bytes);
  co_return co_await impl_->stream->write_all(bytes);
}

Task<Result<void>> HttpClient::finish_body() {
  impl_->sent = true;
  if (impl_->chunked) co_return co_await impl_->stream->write_all("0\r\n\r\n");
  co_return Result<void>();
}

Task<Result<ResponseHead>> HttpClient::read_head() {
  auto response = impl_->reader.read_response(impl_->method);
  auto head = co_await std::move(response);
  if (head.ok()) impl_->broken = false;
  co_return head;
}

BodyReader& HttpClient::body() { return impl_->reader; }

bool HttpClient::reusable() const {
  return !impl_->broken && impl_->sent && impl_->reader.at_end() && impl_->reader.keep_alive() &&
         impl_->buffer.size() == 0;
}

Stream& HttpClient::stream() { return *impl_->stream; }
std::string HttpClient::take_over() { return impl_->buffer.take_all(); }

Task<Result<HttpClient::Answer>> HttpClient::request(RequestHead head, std::string body,
                                                     std::size_t limit) {
  auto write = write_request(head, body);
  ATOLL_CO_TRY(co_await std::move(write));
  auto read = read_head();
  ATOLL_CO_TRY_ASSIGN(ResponseHead response, co_await std::move(read));
  auto rest = this->body().read_all(limit);
  ATOLL_CO_TRY_ASSIGN(std::string text, co_await std::move(rest));
  co_return Answer{std::move(response), std::move(text)};
}

}  // namespace atl::net
