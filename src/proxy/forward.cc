// One exchange.
//
// Two coroutines share the client's strand. The main one connects, sends the head and carries the
// answer down. Beside it the uplink carries the request body up and then watches the client's side:
// when the client goes away it closes the connection to the sandbox, which ends whatever the main
// one waits for. A request whose body is sent already and whose answer comes whole and at once, as
// most do, is over before an uplink would be of use, and gets none. A small body is read before
// anything is sent, so that the request can be sent again when a kept connection turns out to be
// dead. When the sandbox dies, a handler posted to the strand closes the connection to it, and
// resets the client's if its answer has begun; if not, the client gets 502. When the route is held,
// only the connection to the sandbox is closed; a request that was not sent by then goes to the
// next run of the sandbox, any other stands still until the route dies.
#include "proxy/forward.h"

#include <algorithm>
#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <optional>

#include "engine/side_task.h"
#include "proxy/refusal.h"
#include "proxy/target.h"

namespace atl::proxy {
namespace {

namespace asio = net::asio;

constexpr std::size_t kBuffer = 64 * 1024;
constexpr std::size_t kBulkBuffer = 256 * 1024;  // for bodies known to be at least as long
constexpr std::size_t kSmallBody = 32 * 1024;
constexpr std::size_t kSmallAnswer = 32 * 1024;
constexpr std::chrono::milliseconds kUnwatched{100};
// A service that was just started may not listen yet.
constexpr std::array<std::chrono::milliseconds, 4> kDialPauses = {
    std::chrono::milliseconds(100), std::chrono::milliseconds(200), std::chrono::milliseconds(300),
    std::chrono::milliseconds(400)};
constexpr int kMaxWakes = 3;  // for one request

class Buffer {
 public:
  explicit Buffer(std::size_t size)
      : data_(std::make_unique_for_overwrite<char[]>(size)), size_(size) {}
  std::span<char> span() { return {data_.get(), size_}; }
  std::string_view first(std::size_t n) const { return {data_.get(), n}; }

 private:
  std::unique_ptr<char[]> data_;
  std::size_t size_;
};

std::size_t buffer_size(std::optional<std::uint64_t> length) {
  if (!length) return kBuffer;
  if (*length >= kBulkBuffer) return kBulkBuffer;
  return std::clamp<std::size_t>(std::size_t(*length), 1, kBuffer);
}

class Entered {
 public:
  explicit Entered(engine::Route& route) : route_(route) {}
  ~Entered() { route_.leave(); }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

 private:
  engine::Route& route_;
};

// The request to be sent, and its body if it is small enough to be sent twice.
struct Outgoing {
  bool prepared = false;
  net::RequestHead head;
  std::optional<std::uint64_t> length;  // nullopt: chunked
  std::optional<std::string> body;      // nullopt: streams
  Upgrade upgrade = Upgrade::no;
};

bool is_idempotent(std::string_view method) {
  return method == "GET" || method == "HEAD" || method == "OPTIONS" || method == "PUT" ||
         method == "DELETE";
}

net::Task<void> send_refusal(net::Exchange& exchange, Refusal refusal) {
  if (exchange.response.started()) {
    exchange.response.abort();
    co_return;
  }
  Rendered rendered = render(refusal, exchange.request);
  auto sending =
      exchange.response.send(refusal.status, std::move(rendered.headers), std::move(rendered.body));
  (void)co_await std::move(sending);  // a client that is gone needs no answer
}

// Body up, then watch for the client's end.
net::Task<void> run_uplink(std::shared_ptr<Flow> flow, bool streams) {
  net::Exchange& exchange = *flow->exchange;
  net::HttpClient& upstream = *flow->upstream;
  if (streams) {
    Buffer buffer(buffer_size(exchange.body.content_length()));
    bool taken = true;
    while (taken) {
      auto reading = exchange.body.read_some(buffer.span());
      auto n = co_await std::move(reading);
      if (!n.ok()) {
        if (!flow->settled) flow->bad_body = n.error().code == Errc::invalid_argument;
        flow->on_client_gone();
        co_return;
      }
      if (*n == 0) break;
      auto writing = upstream.write_body(buffer.first(*n));
      taken = (co_await std::move(writing)).ok();  // a sandbox that answers early may stop reading
    }
    if (taken) {
      auto finishing = upstream.finish_body();
      (void)co_await std::move(finishing);  // the main coroutine sees the same failure
    }
  }
  auto watching = exchange.stream.wait_peer_closed();
  co_await std::move(watching);
  flow->on_client_gone();
}

// The second coroutine, once there is one.
class Uplink {
 public:
  explicit Uplink(std::shared_ptr<Flow> flow) : flow_(std::move(flow)) {}
  void start(const asio::any_io_executor& strand, bool streams) {
    if (!task_) task_.emplace(strand, run_uplink(flow_, streams));
  }
  net::Task<void> stop() {
    flow_->settled = true;
    if (!task_) co_return;
    auto stopping = task_->stop();
    co_await std::move(stopping);
  }

 private:
  std::shared_ptr<Flow> flow_;
  std::optional<engine::SideTask> task_;
};

// The head of the answer. While it does not come, the client is watched.
net::Task<Result<net::ResponseHead>> await_head(net::HttpClient& upstream, Uplink& uplink,
                                                bool streams) {
  const auto strand = co_await asio::this_coro::executor;
  if (streams) {
    uplink.start(strand, true);
  } else {
    upstream.stream().set_read_timeout(kUnwatched);
    auto reading = upstream.read_head();
    auto head = co_await std::move(reading);
    upstream.stream().set_read_timeout(std::nullopt);
    if (head.ok() || head.error().code != Errc::deadline_exceeded) co_return head;
    uplink.start(strand, false);
  }
  auto reading = upstream.read_head();
  co_return co_await std::move(reading);
}

// The answer, head and body, to the client. False: one of the two sides failed.
net::Task<bool> carry_down(Flow& flow, net::ResponseHead head, Uplink& uplink) {
  net::ResponseWriter& response = flow.exchange->response;
  net::BodyReader& body = flow.upstream->body();
  net::Headers headers = headers_to_client(head, Upgrade::no);
  if (head.status == 204 || head.status == 304) {
    auto sending = response.send(head.status, std::move(headers), "");
    co_return (co_await std::move(sending)).ok();
  }
  const auto length = body.content_length();
  const bool framed = head.headers.lists("Transfer-Encoding", "chunked");
  Buffer buffer(buffer_size(length));
  std::size_t first = 0;
  if (length && *length <= kSmallAnswer && !body.at_end()) {
    // Usually all of it came with the head: then it leaves with the head, too.
    auto reading = body.read_some(buffer.span());
    auto n = co_await std::move(reading);
    if (!n.ok()) co_return false;
    first = *n;
    if (body.at_end()) {
      auto sending =
          response.send(head.status, std::move(headers), std::string(buffer.first(first)));
      co_return (co_await std::move(sending)).ok();
    }
  }
  uplink.start(co_await asio::this_coro::executor, false);
  auto starting = response.start(head.status, std::move(headers), length);
  if (!(co_await std::move(starting)).ok()) co_return false;
  if (first > 0) {
    auto writing = response.write(buffer.first(first));
    if (!(co_await std::move(writing)).ok()) co_return false;
  }
  for (;;) {
    auto reading = body.read_some(buffer.span());
    auto n = co_await std::move(reading);
    if (!n.ok()) co_return false;
    if (*n == 0) break;
    auto writing = response.write(buffer.first(*n));
    if (!(co_await std::move(writing)).ok()) co_return false;
  }
  // A body without framing ends with its connection, whatever ended that.
  if (!length && !framed && (flow.died() || flow.route->held())) co_return false;
  auto finishing = response.finish();
  co_return (co_await std::move(finishing)).ok();
}

enum class Outcome { done, stale, unsent, failed };

// Sends the request on one connection and carries the answer.
net::Task<Outcome> exchange_once(std::shared_ptr<Flow> flow, Outgoing& out, bool reused) {
  net::HttpClient& upstream = *flow->upstream;
  auto sending = out.body ? upstream.write_request(out.head, *out.body)
                          : upstream.write_head(out.head, out.length);
  if (!(co_await std::move(sending)).ok()) {
    if (flow->route->held()) co_return Outcome::unsent;
    co_return reused ? Outcome::stale : Outcome::failed;
  }
  flow->settled = false;
  Uplink uplink(flow);
  auto waiting = await_head(upstream, uplink, !out.body);
  auto head = co_await std::move(waiting);
  Outcome outcome = Outcome::failed;
  if (!head.ok()) {
    // Nothing came back on a kept connection: it was closed before our request got there, or while
    // it was handled.
    const bool closed = head.error().code == Errc::unavailable && !flow->died() &&
                        !flow->route->held() && !flow->client_gone;
    if (reused && closed && out.body && is_idempotent(out.head.method)) outcome = Outcome::stale;
  } else if (head->status == 101) {
    auto stopping = uplink.stop();
    co_await std::move(stopping);
    if (out.upgrade == Upgrade::no) co_return Outcome::failed;  // nobody asked
    auto tunnelling = run_tunnel(flow, std::move(*head));
    co_await std::move(tunnelling);
    co_return Outcome::done;
  } else {
    auto carrying = carry_down(*flow, std::move(*head), uplink);
    if (co_await std::move(carrying)) outcome = Outcome::done;
  }
  if (outcome == Outcome::failed && flow->stands()) {
    uplink.start(co_await asio::this_coro::executor, false);
    auto standing = flow->stand_still();
    co_await std::move(standing);
  }
  auto stopping = uplink.stop();
  co_await std::move(stopping);
  co_return outcome;
}

net::Task<Result<Upstream>> dial_patiently(Flow& flow, const std::shared_ptr<engine::Route>& route,
                                           std::uint16_t port, Upstreams& upstreams) {
  auto getting = upstreams.get(route, port);
  auto upstream = co_await std::move(getting);
  asio::steady_timer timer(co_await asio::this_coro::executor);
  for (const auto pause : kDialPauses) {
    if (upstream.ok() || upstream.error().code != Errc::not_found || flow.died() ||
        port == kAgentPort)
      break;
    timer.expires_after(pause);
    co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
    auto dialling = upstreams.dial(route, port);
    upstream = co_await std::move(dialling);
  }
  co_return upstream;
}

// The small body, if it is one. nullopt: it streams. Error: the client broke it off.
net::Task<Result<std::optional<std::string>>> read_small_body(net::BodyReader& body) {
  const auto length = body.content_length();
  if (body.at_end()) co_return std::optional<std::string>(std::string());
  if (!length || *length > kSmallBody) co_return std::optional<std::string>();
  auto reading = body.read_all(kSmallBody);
  ATOLL_CO_TRY_ASSIGN(std::string text, co_await std::move(reading));
  co_return std::optional<std::string>(std::move(text));
}

// Reads what can be sent twice. False: the client broke it off, and was answered.
net::Task<bool> prepare(net::Exchange& exchange, const engine::Route& route, std::uint16_t port,
                        Outgoing& out) {
  out.upgrade = asks_upgrade(exchange.request);
  out.head =
      request_to_sandbox(exchange.request, port, route.spec().mask_request_host, out.upgrade);
  auto reading = read_small_body(exchange.body);
  auto body = co_await std::move(reading);
  if (!body.ok()) {
    if (body.error().code == Errc::invalid_argument) {
      auto sending = exchange.response.send(400, {{"Content-Type", "text/plain; charset=utf-8"}},
                                            body.error().message);
      (void)co_await std::move(sending);
    } else {
      exchange.response.abort();
    }
    co_return false;
  }
  out.body = std::move(*body);
  out.length =
      out.body ? std::optional<std::uint64_t>(out.body->size()) : exchange.body.content_length();
  out.prepared = true;
  co_return true;
}

enum class Attempt { over, again };

net::Task<Attempt> run(std::shared_ptr<Flow> flow, std::uint16_t port, Upstreams& upstreams,
                       Outgoing& out) {
  const std::shared_ptr<engine::Route>& route = flow->route;
  net::Exchange& exchange = *flow->exchange;
  if (!out.prepared) {
    auto preparing = prepare(exchange, *route, port, out);
    if (!co_await std::move(preparing)) co_return Attempt::over;
  }
  auto dialling = dial_patiently(*flow, route, port, upstreams);
  auto upstream = co_await std::move(dialling);
  Outcome outcome = Outcome::unsent;
  while (upstream.ok() && !flow->died() && !route->held()) {
    flow->upstream = upstream->client.get();
    flow->inside = std::move(upstream->inside);
    auto once = exchange_once(flow, out, upstream->reused);
    outcome = co_await std::move(once);
    flow->upstream = nullptr;
    upstream->inside = std::move(flow->inside);
    if (outcome != Outcome::stale) break;
    auto again = upstreams.dial(route, port);
    upstream = co_await std::move(again);
  }
  if (outcome == Outcome::done) {
    if (!flow->died() && !flow->client_gone) upstreams.put(route, port, std::move(*upstream));
    co_return Attempt::over;
  }
  if (flow->bad_body && !exchange.response.started()) {
    auto sending = exchange.response.send(400, {{"Content-Type", "text/plain; charset=utf-8"}},
                                          "malformed request body");
    (void)co_await std::move(sending);
    co_return Attempt::over;
  }
  if (flow->client_gone) {
    exchange.response.abort();
    co_return Attempt::over;
  }
  if (outcome != Outcome::failed && (route->held() || flow->died())) co_return Attempt::again;
  auto refusing = refuse_unreachable(exchange, *route, port);
  co_await std::move(refusing);
  co_return Attempt::over;
}

// Over one run of the sandbox.
net::Task<Attempt> attempt(net::Exchange& exchange, std::shared_ptr<engine::Route> route,
                           std::uint16_t port, Upstreams& upstreams, Outgoing& out) {
  if (!route->enter()) {
    auto sending = send_refusal(
        exchange, too_many_connections(route->id().str(), route->spec().max_connections));
    co_await std::move(sending);
    co_return Attempt::over;
  }
  const Entered entered(*route);
  const auto strand = co_await asio::this_coro::executor;
  auto flow = std::make_shared<Flow>(route, strand);
  flow->exchange = &exchange;
  const auto tell = [weak = std::weak_ptr<Flow>(flow), strand](void (Flow::*what)()) {
    return [weak, strand, what] {
      asio::post(strand, [weak, what] {
        if (auto living = weak.lock()) ((*living).*what)();
      });
    };
  };
  auto subscription = engine::Route::subscribe(route, tell(&Flow::on_death), tell(&Flow::on_hold));
  auto running = run(flow, port, upstreams, out);
  const Attempt attempted = co_await std::move(running);
  flow->exchange = nullptr;
  co_return attempted;
}

}  // namespace

void Flow::close_upstream() {
  if (upstream != nullptr) upstream->stream().close();
  inside = {};
}

void Flow::on_death() {
  killed = true;
  close_upstream();
  if (exchange != nullptr && exchange->response.started() && !exchange->response.finished())
    exchange->response.abort();
  released.cancel();
}

void Flow::on_hold() { close_upstream(); }

void Flow::on_client_gone() {
  if (settled) return;
  client_gone = true;
  close_upstream();
  released.cancel();
}

net::Task<void> Flow::stand_still() {
  close_upstream();
  while (stands()) co_await released.async_wait(asio::as_tuple(asio::use_awaitable));
}

net::Task<void> refuse_unreachable(net::Exchange& exchange, const engine::Route& route,
                                   std::uint16_t port) {
  const std::string& id = route.id().str();
  auto sending =
      send_refusal(exchange, route.dead() ? sandbox_not_found(id) : port_not_open(id, port));
  co_await std::move(sending);
}

net::Task<Result<void>> forward(net::Exchange& exchange, std::shared_ptr<engine::Route> route,
                                std::uint16_t port, Upstreams& upstreams, Wake wake) {
  Outgoing out;
  for (int wakes = 0;; ++wakes) {
    auto attempting = attempt(exchange, route, port, upstreams, out);
    if (co_await std::move(attempting) == Attempt::over) co_return Result<void>();
    if (wakes == kMaxWakes) break;
    auto waking = wake();
    ATOLL_CO_TRY_ASSIGN(route, co_await std::move(waking));
  }
  auto refusing = refuse_unreachable(exchange, *route, port);
  co_await std::move(refusing);
  co_return Result<void>();
}

}  // namespace atl::proxy
