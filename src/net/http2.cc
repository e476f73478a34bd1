// An HTTP/2 connection of HttpServer, over nghttp2.
//
// Three kinds of coroutine share the connection's strand. The reader feeds nghttp2, whose callbacks
// create streams and fill their inboxes. The writer takes frames from nghttp2 and sends them; it
// asks for more only when the socket has taken the last ones, so a slow client holds back DATA at
// its source. And one handler per request. Streams are known by their number to nghttp2 and stay in
// `streams_` until nghttp2 closes them; handlers that are not done by then see a broken stream.
//
// Abuse costs the connection (GOAWAY): too many streams that end in a reset, whoever sent it; too
// many frames that make work and carry nothing; heads that do not end; silence.
#include "net/http2.h"

#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/steady_timer.hpp>
#include <unordered_map>

#include "base/log.h"
#include "net/http2_stream.h"

namespace atl::net {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::uint32_t kStreamWindow = 512 * 1024;           // one upload that nobody reads
constexpr std::int32_t kConnectionWindow = 16 * 1024 * 1024;  // all of them
constexpr std::size_t kReadBuffer = 64 * 1024;
constexpr std::size_t kBatch = 64 * 1024;   // frames that are gathered before they are sent
constexpr milliseconds kGoodbyeTime{2000};  // between GOAWAY and close

struct CallbacksFree {
  void operator()(nghttp2_session_callbacks* c) const { nghttp2_session_callbacks_del(c); }
};
struct OptionFree {
  void operator()(nghttp2_option* o) const { nghttp2_option_del(o); }
};
struct SessionFree {
  void operator()(nghttp2_session* s) const { nghttp2_session_del(s); }
};

// Allows `burst` at once and `rate` per second.
class Budget {
 public:
  Budget(double burst, double rate) : burst_(burst), rate_(rate), left_(burst) {}
  bool spend() {
    const auto now = Clock::now();
    left_ = std::min(burst_, left_ + rate_ * std::chrono::duration<double>(now - last_).count());
    last_ = now;
    left_ -= 1;
    return left_ >= 0;
  }

 private:
  const double burst_;
  const double rate_;
  double left_;
  Clock::time_point last_ = Clock::now();
};

class Http2Session;

struct Request {
  Request(Http2Link& link, const asio::any_io_executor& executor, std::int32_t id,
          const HttpLimits& limits)
      : stream(link, executor, id, limits) {}
  Http2Stream stream;
  std::optional<Http2Stream::Refusal> refusal;
};

struct Http2Exchange final : Exchange {
  explicit Http2Exchange(Http2Stream& stream) : Exchange(stream, stream, stream.facade()) {}
  std::string take_over() override { return {}; }
};

class Http2Session final : public Http2Link, public std::enable_shared_from_this<Http2Session> {
 public:
  Http2Session(std::shared_ptr<ServerConnection> connection, const ServerOptions& options,
               const Handler& handler)
      : connection_(std::move(connection)),
        stream_(*connection_->stream),
        options_(options),
        handler_(handler),
        to_write_(connection_->executor),
        finished_(connection_->executor),
        watchdog_(connection_->executor) {}

  bool init();
  Task<void> run();

  nghttp2_session* session() override { return session_.get(); }
  void wake_writer() override {
    if (!wake_) {
      wake_ = true;
      to_write_.notify();
    }
  }

 private:
  // nghttp2's callbacks; `user` is the session.
  static Http2Session& self(void* user) { return *static_cast<Http2Session*>(user); }
  static int on_begin_headers(nghttp2_session*, const nghttp2_frame* frame, void* user);
  static int on_header(nghttp2_session*, const nghttp2_frame* frame, const std::uint8_t* name,
                       std::size_t name_size, const std::uint8_t* value, std::size_t value_size,
                       std::uint8_t flags, void* user);
  static int on_begin_frame(nghttp2_session*, const nghttp2_frame_hd* head, void* user);
  static int on_frame(nghttp2_session*, const nghttp2_frame* frame, void* user);
  static int on_data(nghttp2_session*, std::uint8_t flags, std::int32_t id,
                     const std::uint8_t* data, std::size_t size, void* user);
  static int on_close(nghttp2_session*, std::int32_t id, std::uint32_t error, void* user);
  static int on_not_sent(nghttp2_session*, const nghttp2_frame* frame, int error, void* user);

  std::shared_ptr<Request> find(std::int32_t id) const {
    const auto it = streams_.find(id);
    return it == streams_.end() ? nullptr : it->second;
  }
  void take_frame(const nghttp2_frame& frame);
  void start_ready();
  Task<void> read_loop();
  Task<void> write_loop();
  Task<void> handle(std::shared_ptr<Request> request);
  void end(std::uint32_t error);  // GOAWAY, then close
  void drain();
  void watch();  // sets the watchdog to the next deadline
  std::optional<Clock::time_point> deadline() const;

  std::shared_ptr<ServerConnection> connection_;
  Stream& stream_;
  const ServerOptions& options_;
  const Handler& handler_;
  std::unique_ptr<nghttp2_session, SessionFree> session_;
  std::unordered_map<std::int32_t, std::shared_ptr<Request>> streams_;
  std::vector<std::shared_ptr<Request>> ready_;  // heads that came in the last read
  std::size_t active_ = 0;                       // handlers that have not returned

  Event to_write_;
  bool wake_ = false;
  bool writer_done_ = false;
  bool stopping_ = false;
  Event finished_;  // a handler or the writer returned

  Budget resets_{1000, 100};
  Budget idle_frames_{1000, 200};
  bool abusive_ = false;

  asio::steady_timer watchdog_;
  std::optional<Clock::time_point> watching_;
  const Clock::time_point born_ = Clock::now();
  Clock::time_point last_active_ = Clock::now();
  bool greeted_ = false;      // the client's SETTINGS came
  std::int32_t heading_ = 0;  // stream whose head has begun and not ended
  Clock::time_point heading_since_;
  std::optional<Clock::time_point> closing_since_;
};

bool Http2Session::init() {
  nghttp2_session_callbacks* raw_callbacks = nullptr;
  nghttp2_option* raw_option = nullptr;
  if (nghttp2_session_callbacks_new(&raw_callbacks) != 0) return false;
  std::unique_ptr<nghttp2_session_callbacks, CallbacksFree> callbacks(raw_callbacks);
  if (nghttp2_option_new(&raw_option) != 0) return false;
  std::unique_ptr<nghttp2_option, OptionFree> option(raw_option);
  nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks.get(), on_begin_headers);
  nghttp2_session_callbacks_set_on_header_callback(callbacks.get(), on_header);
  nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks.get(), on_begin_frame);
  nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks.get(), on_frame);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks.get(), on_data);
  nghttp2_session_callbacks_set_on_stream_close_callback(callbacks.get(), on_close);
  nghttp2_session_callbacks_set_on_frame_not_send_callback(callbacks.get(), on_not_sent);
  nghttp2_option_set_no_auto_window_update(option.get(), 1);
  nghttp2_option_set_no_closed_streams(option.get(), 1);
  nghttp2_option_set_max_outbound_ack(option.get(), 200);
  nghttp2_option_set_max_settings(option.get(), 32);
  nghttp2_option_set_max_continuations(option.get(), 8);
  nghttp2_option_set_max_send_header_block_length(option.get(), 256 * 1024);
  // resets_ is the limit; this one is for resets that come in one read.
  nghttp2_option_set_stream_reset_rate_limit(option.get(), 5000, 1000);
  nghttp2_session* raw_session = nullptr;
  if (nghttp2_session_server_new2(&raw_session, callbacks.get(), this, option.get()) != 0)
    return false;
  session_.reset(raw_session);
  const std::array<nghttp2_settings_entry, 4> settings = {{
      {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, options_.max_streams},
      {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kStreamWindow},
      {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, std::uint32_t(options_.limits.header_bytes)},
      {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
  }};
  return nghttp2_submit_settings(session_.get(), NGHTTP2_FLAG_NONE, settings.data(),
                                 settings.size()) == 0 &&
         nghttp2_session_set_local_window_size(session_.get(), NGHTTP2_FLAG_NONE, 0,
                                               kConnectionWindow) == 0;
}

// ---- callbacks: they only note what came; nothing runs before nghttp2 has returned ----

int Http2Session::on_begin_headers(nghttp2_session*, const nghttp2_frame* frame, void* user) {
  auto& me = self(user);
  me.heading_ = frame->hd.stream_id;
  me.heading_since_ = Clock::now();
  me.watch();
  if (frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
    me.streams_.emplace(frame->hd.stream_id,
                        std::make_shared<Request>(me, me.connection_->executor, frame->hd.stream_id,
                                                  me.options_.limits));
  }
  return 0;
}

int Http2Session::on_header(nghttp2_session*, const nghttp2_frame* frame, const std::uint8_t* name,
                            std::size_t name_size, const std::uint8_t* value,
                            std::size_t value_size, std::uint8_t, void* user) {
  if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
  const auto request = self(user).find(frame->hd.stream_id);
  if (!request) return 0;
  request->stream.add_field({reinterpret_cast<const char*>(name), name_size},
                            {reinterpret_cast<const char*>(value), value_size});
  // A little too much gets an answer; much too much (small frames can name large fields again and
  // again) gets none.
  return request->stream.over_limit(4) ? NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE : 0;
}

int Http2Session::on_begin_frame(nghttp2_session*, const nghttp2_frame_hd* head, void* user) {
  auto& me = self(user);
  if (head->type != NGHTTP2_CONTINUATION) me.heading_ = 0;
  switch (head->type) {
    case NGHTTP2_HEADERS:
    case NGHTTP2_CONTINUATION:
    case NGHTTP2_WINDOW_UPDATE:
      return 0;
    case NGHTTP2_DATA:
      if (head->length > 0 || (head->flags & NGHTTP2_FLAG_END_STREAM) != 0) return 0;
      break;
    default:
      break;
  }
  if (!me.idle_frames_.spend()) me.abusive_ = true;
  return 0;
}

int Http2Session::on_frame(nghttp2_session*, const nghttp2_frame* frame, void* user) {
  self(user).take_frame(*frame);
  return 0;
}

void Http2Session::take_frame(const nghttp2_frame& frame) {
  const bool last = (frame.hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
  const auto request = find(frame.hd.stream_id);
  switch (frame.hd.type) {
    case NGHTTP2_HEADERS:
      heading_ = 0;
      if (!request) return;
      if (last) request->stream.on_end();
      if (frame.headers.cat == NGHTTP2_HCAT_REQUEST) {
        request->refusal = request->stream.finish_head();
        ready_.push_back(request);
      }
      return;
    case NGHTTP2_DATA:
      if (request && last) request->stream.on_end();
      return;
    case NGHTTP2_SETTINGS:
      greeted_ = true;
      return;
    default:
      return;
  }
}

int Http2Session::on_data(nghttp2_session* session, std::uint8_t, std::int32_t id,
                          const std::uint8_t* data, std::size_t size, void* user) {
  if (const auto request = self(user).find(id))
    request->stream.on_data({reinterpret_cast<const char*>(data), size});
  else
    nghttp2_session_consume(session, id, size);
  return 0;
}

int Http2Session::on_close(nghttp2_session*, std::int32_t id, std::uint32_t error, void* user) {
  auto& me = self(user);
  if (me.heading_ == id) me.heading_ = 0;
  me.last_active_ = Clock::now();
  const auto it = me.streams_.find(id);
  if (it == me.streams_.end()) return 0;
  const std::shared_ptr<Request> request = it->second;
  me.streams_.erase(it);
  // Resets that the client sends, and those that it makes us send by breaking the rules.
  if (error != NGHTTP2_NO_ERROR && !request->stream.aborted() && !me.resets_.spend())
    me.abusive_ = true;
  request->stream.on_closed(error != NGHTTP2_NO_ERROR);
  me.watch();
  return 0;
}

int Http2Session::on_not_sent(nghttp2_session* session, const nghttp2_frame* frame, int error,
                              void* user) {
  if (frame->hd.type != NGHTTP2_HEADERS) return 0;
  if (self(user).find(frame->hd.stream_id)) {
    log::warn("an answer's head could not be sent", {{"error", nghttp2_strerror(error)}});
    nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                              NGHTTP2_INTERNAL_ERROR);
  }
  return 0;
}

// ---- deadlines ----

std::optional<Clock::time_point> Http2Session::deadline() const {
  if (closing_since_) return *closing_since_ + kGoodbyeTime;
  if (!greeted_) return born_ + options_.limits.header_time;
  if (heading_ != 0) return heading_since_ + options_.limits.header_time;
  if (streams_.empty() && active_ == 0) return last_active_ + options_.limits.idle_time;
  return std::nullopt;
}

void Http2Session::watch() {
  const auto next = deadline();
  if (!next || (watching_ && *watching_ <= *next) || stopping_) return;
  watching_ = next;
  watchdog_.expires_at(*next);
  watchdog_.async_wait([weak = weak_from_this()](const boost::system::error_code& ec) {
    const auto me = weak.lock();
    if (ec || !me || me->stopping_) return;
    me->watching_ = std::nullopt;
    const auto due = me->deadline();
    if (due && *due <= Clock::now()) {
      if (me->closing_since_) {
        me->stream_.close();
        return;
      }
      const bool idle = me->greeted_ && me->heading_ == 0;
      me->end(idle ? NGHTTP2_NO_ERROR : NGHTTP2_ENHANCE_YOUR_CALM);
    }
    me->watch();
  });
}

void Http2Session::end(std::uint32_t error) {
  if (closing_since_) return;
  closing_since_ = Clock::now();
  nghttp2_session_terminate_session(session_.get(), error);
  wake_writer();
  watch();
}

void Http2Session::drain() {
  if (closing_since_) return;
  nghttp2_submit_goaway(session_.get(), NGHTTP2_FLAG_NONE,
                        nghttp2_session_get_last_proc_stream_id(session_.get()), NGHTTP2_NO_ERROR,
                        nullptr, 0);
  wake_writer();
}

// ---- coroutines ----

Task<void> Http2Session::run() {
  stream_.set_read_timeout(std::nullopt);
  stream_.set_write_timeout(options_.limits.write_time);
  auto me = shared_from_this();
  connection_->drain = [weak = weak_from_this()] {
    if (const auto session = weak.lock()) session->drain();
  };
  asio::co_spawn(connection_->executor, write_loop(), [me](std::exception_ptr failure) {
    if (failure) log::error("the writer of an HTTP/2 connection ended with an exception");
    me->writer_done_ = true;
    if (failure) me->stream_.close();
    me->finished_.notify();
  });
  watch();
  auto reading = read_loop();
  co_await std::move(reading);

  // Nothing more comes in. Streams break, so that handlers return; the writer goes last, for it may
  // still have a GOAWAY to send.
  auto streams = std::move(streams_);
  streams_.clear();
  for (const auto& [id, request] : streams) request->stream.on_closed(true);
  ready_.clear();
  stopping_ = true;
  watchdog_.cancel();
  wake_writer();
  while (active_ > 0 || !writer_done_) {
    auto waiting = finished_.wait(std::nullopt);
    co_await std::move(waiting);
  }
  connection_->drain = nullptr;
}

Task<void> Http2Session::read_loop() {
  std::vector<char> buffer(kReadBuffer);
  for (;;) {
    auto reading = stream_.read_some(buffer);
    const auto n = co_await std::move(reading);
    if (!n.ok() || *n == 0) co_return;
    if (closing_since_) continue;  // GOAWAY is out; what still comes is thrown away
    last_active_ = Clock::now();
    const auto taken = nghttp2_session_mem_recv(
        session_.get(), reinterpret_cast<const std::uint8_t*>(buffer.data()), *n);
    if (taken < 0) {
      end(taken == NGHTTP2_ERR_FLOODED ? NGHTTP2_ENHANCE_YOUR_CALM : NGHTTP2_PROTOCOL_ERROR);
      continue;
    }
    if (abusive_) {
      log::warn("an HTTP/2 client abuses its connection", {{"peer", connection_->peer}});
      ready_.clear();
      end(NGHTTP2_ENHANCE_YOUR_CALM);
      continue;
    }
    start_ready();
    if (nghttp2_session_want_write(session_.get()) != 0 ||
        nghttp2_session_want_read(session_.get()) == 0)
      wake_writer();
  }
}

void Http2Session::start_ready() {
  for (auto& request : ready_) {
    if (request->stream.closed()) continue;  // reset before it began
    if (active_ >= 2 * std::size_t(options_.max_streams)) {
      // Handlers of streams that were reset still run.
      nghttp2_submit_rst_stream(session_.get(), NGHTTP2_FLAG_NONE, request->stream.id(),
                                NGHTTP2_REFUSED_STREAM);
      continue;
    }
    ++active_;
    connection_->busy = true;
    asio::co_spawn(connection_->executor, handle(request),
                   [me = shared_from_this()](std::exception_ptr failure) {
                     if (failure) log::error("an HTTP/2 stream ended with an exception");
                     if (--me->active_ == 0) {
                       me->connection_->busy = false;
                       me->last_active_ = Clock::now();
                       me->watch();
                     }
                     me->finished_.notify();
                   });
  }
  ready_.clear();
}

Task<void> Http2Session::handle(std::shared_ptr<Request> request) {
  Http2Stream& stream = request->stream;
  Http2Exchange exchange(stream);
  exchange.request = std::move(stream.head());
  exchange.listener = connection_->listener;
  exchange.peer = connection_->peer;
  std::string failure;
  try {
    if (request->refusal) {
      auto refusing = stream.send(
          request->refusal->status, {{"Content-Type", "application/json; charset=utf-8"}},
          error_body(options_, request->refusal->status, request->refusal->message));
      (void)co_await std::move(refusing);
    } else {
      auto handling = handler_(exchange);
      co_await std::move(handling);
    }
  } catch (const std::exception& e) {
    failure = e.what();
  }
  if (!failure.empty())
    log::error("a handler threw", {{"what", failure}, {"target", exchange.request.target}});
  if (!stream.started() && !stream.closed()) {
    auto refusing =
        stream.send(500, {{"Content-Type", "application/json; charset=utf-8"}},
                    error_body(options_, 500, "internal error: the request was not answered"));
    (void)co_await std::move(refusing);
  }
  if (!stream.finished()) stream.abort();
  auto settling = stream.settle();
  co_await std::move(settling);
}

Task<void> Http2Session::write_loop() {
  std::string batch;
  for (;;) {
    wake_ = false;
    batch.clear();
    while (batch.size() < kBatch) {
      const std::uint8_t* data = nullptr;
      const auto n = nghttp2_session_mem_send(session_.get(), &data);
      if (n < 0) {
        stream_.close();
        co_return;
      }
      if (n == 0) break;
      batch.append(reinterpret_cast<const char*>(data), std::size_t(n));
    }
    if (!batch.empty()) {
      auto writing = stream_.write_all(batch);
      if (!(co_await std::move(writing)).ok()) {
        stream_.close();
        co_return;
      }
      if (batch.capacity() > 4 * kBatch) batch = {};
      continue;
    }
    if (stopping_) co_return;
    if (nghttp2_session_want_read(session_.get()) == 0 &&
        nghttp2_session_want_write(session_.get()) == 0) {
      // All is said. The client closes, or the watchdog does.
      if (!closing_since_) closing_since_ = Clock::now();
      stream_.shutdown_write();
      watch();
      co_return;
    }
    if (wake_) continue;
    auto waiting = to_write_.wait(std::nullopt);
    co_await std::move(waiting);
  }
}

}  // namespace

Task<void> serve_http2(std::shared_ptr<ServerConnection> connection, const ServerOptions& options,
                       const Handler& handler) {
  auto session = std::make_shared<Http2Session>(std::move(connection), options, handler);
  if (!session->init()) {
    log::error("no HTTP/2 session could be made");
    co_return;
  }
  auto running = session->run();
  co_await std::move(running);
}

}  // namespace atl::net
