#include "proxy/upstream.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <cerrno>

#include "net/tls.h"
#include "proxy/service.h"

namespace atl::proxy {
namespace {

namespace asio = net::asio;
using Clock = std::chrono::steady_clock;

constexpr std::uint16_t kAgent = 49983;
constexpr std::chrono::milliseconds kHandshakeTime{10'000};
constexpr std::chrono::milliseconds kSweepEvery{1'000};

// A connection that waits for its next request. Nothing is pending on it, so any thread may look at
// its descriptor or take that away; the rest of it goes away on its own strand.
class Idle {
 public:
  Idle(Upstream upstream, Clock::time_point until)
      : inside_(std::move(upstream.inside)),
        client_(std::move(upstream.client)),
        strand_(client_->stream().executor()),
        fd_(client_->stream().native_handle()),
        until_(until) {}
  Idle(Idle&&) noexcept = default;
  Idle& operator=(Idle&& other) noexcept {
    std::swap(inside_, other.inside_);
    std::swap(client_, other.client_);
    std::swap(strand_, other.strand_);
    std::swap(fd_, other.fd_);
    std::swap(until_, other.until_);
    return *this;
  }
  ~Idle() { discard(); }

  Clock::time_point until() const { return until_; }
  bool is_of(const asio::any_io_executor& strand) const { return strand_ == strand; }
  // Open, and nothing was sent that nobody asked for.
  bool is_quiet() const {
    char byte = 0;
    const ssize_t n = ::recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  }
  Result<Upstream> take(const asio::any_io_executor& strand) && {
    if (is_of(strand)) return Upstream{std::move(inside_), std::move(client_), true};
    const int fd = client_->stream().release();
    auto inside = std::move(inside_);
    discard();
    if (fd < 0) return make_error(Errc::internal, "the connection cannot move");
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    net::Socket socket(strand);
    boost::system::error_code ec;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0) {
      socket.assign(asio::generic::stream_protocol(address.ss_family, 0), fd, ec);
    } else {
      ec = {errno, boost::system::system_category()};
    }
    if (ec) {
      ::close(fd);
      return net::to_error(ec, "idle connection");
    }
    return Upstream{std::move(inside),
                    std::make_unique<net::HttpClient>(net::make_stream(std::move(socket))), true};
  }

 private:
  void discard() {
    if (!client_) return;
    asio::post(strand_, [inside = std::move(inside_), client = std::move(client_)]() mutable {
      client.reset();
    });
  }

  engine::Route::Inside inside_;
  std::unique_ptr<net::HttpClient> client_;
  asio::any_io_executor strand_;
  int fd_;
  Clock::time_point until_;
};

// Services have certificates of their own making; nobody could check them.
net::Task<Result<std::unique_ptr<net::Stream>>> secure(std::unique_ptr<net::Stream> plain) {
  static const auto context =
      net::TlsClientContext::create(net::TlsClientContext::Verify::none, {});
  if (!context.ok()) co_return Error(context.error());
  auto handshaking =
      net::connect_tls(std::move(plain), *context, "localhost", {"http/1.1"}, kHandshakeTime);
  ATOLL_CO_TRY_ASSIGN(net::TlsStream secured, co_await std::move(handshaking));
  co_return std::move(secured.stream);
}

}  // namespace

// Idle connections to one run of one sandbox, by port.
struct Upstreams::Pool {
  std::mutex mutex;  // guards the two below
  std::unordered_map<std::uint16_t, std::vector<Idle>> idle;
  bool closed = false;
  engine::Route::Subscription subscription;

  // One of this strand if there is one, else the newest, which is the least likely to be stale.
  std::optional<Idle> take(std::uint16_t port, const asio::any_io_executor& strand) {
    std::lock_guard lock(mutex);
    const auto found = idle.find(port);
    if (found == idle.end() || found->second.empty()) return std::nullopt;
    auto& list = found->second;
    auto one = std::find_if(list.rbegin(), list.rend(),
                            [&](const Idle& each) { return each.is_of(strand); });
    if (one != list.rend()) std::swap(*one, list.back());
    std::optional<Idle> out(std::move(list.back()));
    list.pop_back();
    return out;
  }
};

struct Upstreams::State {
  mutable std::mutex mutex;  // guards the pools; taken before a pool's
  std::unordered_map<const engine::Route*, std::shared_ptr<Pool>> pools;
  std::atomic<Clock::rep> swept = Clock::now().time_since_epoch().count();
  std::atomic<bool> full = false;  // as of the last sweep

  // Closes what is past its time, and says how many are left.
  std::size_t sweep(Clock::time_point now) {
    std::size_t left = 0;
    for (const auto& [route, pool] : pools) {
      std::lock_guard lock(pool->mutex);
      for (auto& [port, idle] : pool->idle) {
        std::erase_if(idle, [&](const Idle& one) { return one.until() <= now; });
        left += idle.size();
      }
      std::erase_if(pool->idle, [](const auto& entry) { return entry.second.empty(); });
    }
    return left;
  }
};

Upstreams::Upstreams(engine::Engine& engine, PoolLimits limits)
    : engine_(engine), limits_(limits), state_(std::make_shared<State>()) {}
Upstreams::~Upstreams() = default;

std::shared_ptr<Upstreams::Pool> Upstreams::pool_of(const std::shared_ptr<engine::Route>& route) {
  {
    std::lock_guard lock(state_->mutex);
    const auto found = state_->pools.find(route.get());
    if (found != state_->pools.end()) return found->second;
  }
  auto pool = std::make_shared<Pool>();
  {
    std::lock_guard lock(state_->mutex);
    const auto [place, fresh] = state_->pools.try_emplace(route.get(), pool);
    if (!fresh) return place->second;
  }
  // When the sandbox dies, or its memory goes to files, its connections go with it. The route
  // outlives the entry: the subscription holds it.
  const auto end = [state = std::weak_ptr<State>(state_), key = route.get(),
                    kept = std::weak_ptr<Pool>(pool)] {
    if (auto dying = kept.lock()) {
      std::lock_guard lock(dying->mutex);
      dying->closed = true;
      dying->idle.clear();
    }
    if (auto owner = state.lock()) {
      std::lock_guard lock(owner->mutex);
      const auto found = owner->pools.find(key);
      if (found != owner->pools.end() && found->second == kept.lock()) owner->pools.erase(found);
    }
  };
  auto subscription = engine::Route::subscribe(route, end, end);
  std::lock_guard lock(pool->mutex);
  if (!pool->closed) pool->subscription = std::move(subscription);
  return pool;
}

net::Task<Result<Upstream>> Upstreams::get(const std::shared_ptr<engine::Route>& route,
                                           std::uint16_t port) {
  const auto strand = co_await asio::this_coro::executor;
  auto pool = pool_of(route);
  const auto now = Clock::now();
  for (;;) {
    auto kept = pool->take(port, strand);
    if (!kept) break;
    if (kept->until() <= now || !kept->is_quiet()) continue;
    auto taken = std::move(*kept).take(strand);
    if (taken.ok()) co_return std::move(*taken);
  }
  auto dialling = dial(route, port);
  co_return co_await std::move(dialling);
}

net::Task<Result<Upstream>> Upstreams::dial(const std::shared_ptr<engine::Route>& route,
                                            std::uint16_t port) {
  auto inside = engine::Route::go_inside(route);
  if (!inside) co_return make_error(Errc::aborted, "no connection may be made into the sandbox");
  if (port == kAgent) {
    auto dialling = engine_.dial_agent(route->id());
    ATOLL_CO_TRY_ASSIGN(auto stream, co_await std::move(dialling));
    co_return Upstream{std::move(inside), std::make_unique<net::HttpClient>(std::move(stream)),
                       false};
  }
  auto dialling = engine_.dial_agent(route->id());
  ATOLL_CO_TRY_ASSIGN(auto agent, co_await std::move(dialling));
  auto connecting = connect_service(std::move(agent), port);
  ATOLL_CO_TRY_ASSIGN(auto stream, co_await std::move(connecting));
  const auto& secured = route->spec().https_ports;
  if (std::find(secured.begin(), secured.end(), port) != secured.end()) {
    auto securing = secure(std::move(stream));
    ATOLL_CO_TRY_ASSIGN(stream, co_await std::move(securing));
  }
  co_return Upstream{std::move(inside), std::make_unique<net::HttpClient>(std::move(stream)),
                     false};
}

void Upstreams::put(const std::shared_ptr<engine::Route>& route, std::uint16_t port,
                    Upstream upstream) {
  if (limits_.per_target == 0 || route->dead() || route->held() || !upstream.inside ||
      !upstream.client->reusable())
    return;
  if (upstream.client->stream().native_handle() < 0) return;
  auto pool = pool_of(route);
  const auto now = Clock::now();
  if (auto last = state_->swept.load();
      now - Clock::time_point(Clock::duration(last)) > kSweepEvery &&
      state_->swept.compare_exchange_strong(last, now.time_since_epoch().count())) {
    std::lock_guard lock(state_->mutex);
    state_->full = state_->sweep(now) >= limits_.total;
  }
  if (state_->full) return;
  Idle kept(std::move(upstream),
            now + (port == kAgent ? limits_.idle_agent : limits_.idle_service));
  std::lock_guard lock(pool->mutex);
  if (pool->closed) return;
  auto& idle = pool->idle[port];
  if (idle.size() >= limits_.per_target) idle.erase(idle.begin());
  idle.push_back(std::move(kept));
}

std::size_t Upstreams::idle() const {
  std::size_t count = 0;
  std::lock_guard lock(state_->mutex);
  for (const auto& [route, pool] : state_->pools) {
    std::lock_guard inner(pool->mutex);
    for (const auto& [port, idle] : pool->idle) count += idle.size();
  }
  return count;
}

}  // namespace atl::proxy
