#include "proxy/upstream.h"

#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/this_coro.hpp>
#include <cerrno>

namespace atl::proxy {
namespace {

namespace asio = net::asio;
using Clock = std::chrono::steady_clock;

constexpr std::uint16_t kAgent = 49983;
constexpr std::size_t kMaxConnectAnswer = 4096;
constexpr std::chrono::milliseconds kConnectTime{10'000};
constexpr std::chrono::milliseconds kSweepEvery{1'000};

class IdleFd {
 public:
  explicit IdleFd(int fd) : fd_(fd) {}
  IdleFd(IdleFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  IdleFd& operator=(IdleFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~IdleFd() {
    if (fd_ >= 0) ::close(fd_);
  }
  // Open, and nothing was sent that nobody asked for.
  bool is_quiet() const {
    char byte = 0;
    const ssize_t n = ::recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  }
  Result<std::unique_ptr<net::Stream>> become_stream(const asio::any_io_executor& executor) && {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    if (::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length) != 0)
      return errno_error("idle connection");
    net::Socket socket(executor);
    boost::system::error_code ec;
    socket.assign(asio::generic::stream_protocol(address.ss_family, 0), fd_, ec);
    if (ec) return net::to_error(ec, "idle connection");
    fd_ = -1;
    return net::make_stream(std::move(socket));
  }

 private:
  int fd_;
};

struct Idle {
  IdleFd fd;
  Clock::time_point until;
};

// Status of the answer to CONNECT, once its head is whole. 0: not yet.
Result<int> connect_status(std::string_view head) {
  if (!head.ends_with("\r\n\r\n")) return 0;
  if (!head.starts_with("HTTP/1.") || head.size() < 13)
    return make_error(Errc::internal, "the agent speaks no HTTP");
  int status = 0;
  for (const char c : head.substr(9, 3)) {
    if (c < '0' || c > '9') return make_error(Errc::internal, "the agent speaks no HTTP");
    status = status * 10 + (c - '0');
  }
  return status;
}

}  // namespace

// Idle connections to one run of one sandbox, by port.
struct Upstreams::Pool {
  std::mutex mutex;  // guards the two below
  std::unordered_map<std::uint16_t, std::vector<Idle>> idle;
  bool closed = false;
  engine::Route::Subscription subscription;
};

struct Upstreams::State {
  mutable std::mutex mutex;  // guards the three below; taken before a pool's
  std::unordered_map<const engine::Route*, std::shared_ptr<Pool>> pools;
  Clock::time_point swept = Clock::now();
  bool full = false;  // as of the last sweep

  // Closes what is past its time, and says how many are left.
  std::size_t sweep(Clock::time_point now) {
    std::size_t left = 0;
    for (const auto& [route, pool] : pools) {
      std::lock_guard lock(pool->mutex);
      for (auto& [port, idle] : pool->idle) {
        std::erase_if(idle, [&](const Idle& one) { return one.until <= now; });
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
  // When the sandbox dies its connections go with it. The route outlives the entry: the
  // subscription holds it.
  auto subscription = engine::Route::subscribe(
      route,
      [state = std::weak_ptr<State>(state_), key = route.get(), kept = std::weak_ptr<Pool>(pool)] {
        if (auto dying = kept.lock()) {
          std::lock_guard lock(dying->mutex);
          dying->closed = true;
          dying->idle.clear();
        }
        if (auto owner = state.lock()) {
          std::lock_guard lock(owner->mutex);
          owner->pools.erase(key);
        }
      });
  std::lock_guard lock(pool->mutex);
  if (!pool->closed) pool->subscription = std::move(subscription);
  return pool;
}

net::Task<Result<Upstream>> Upstreams::get(const std::shared_ptr<engine::Route>& route,
                                           std::uint16_t port) {
  auto pool = pool_of(route);
  std::optional<IdleFd> kept;
  {
    std::lock_guard lock(pool->mutex);
    const auto found = pool->idle.find(port);
    const auto now = Clock::now();
    // The newest is the least likely to be stale.
    while (found != pool->idle.end() && !found->second.empty() && !kept) {
      Idle last = std::move(found->second.back());
      found->second.pop_back();
      if (last.until > now && last.fd.is_quiet()) kept.emplace(std::move(last.fd));
    }
  }
  if (kept) {
    auto executor = co_await asio::this_coro::executor;
    auto stream = std::move(*kept).become_stream(executor);
    if (stream.ok())
      co_return Upstream{std::make_unique<net::HttpClient>(std::move(*stream)), true};
  }
  auto dialling = dial(route, port);
  co_return co_await std::move(dialling);
}

net::Task<Result<Upstream>> Upstreams::dial(const std::shared_ptr<engine::Route>& route,
                                            std::uint16_t port) {
  if (port == kAgent) {
    auto dialling = engine_.dial_agent(route->id());
    ATOLL_CO_TRY_ASSIGN(auto stream, co_await std::move(dialling));
    co_return Upstream{std::make_unique<net::HttpClient>(std::move(stream)), false};
  }
  auto tunnelling = open_tunnel(route->id(), port);
  ATOLL_CO_TRY_ASSIGN(auto stream, co_await std::move(tunnelling));
  co_return Upstream{std::make_unique<net::HttpClient>(std::move(stream)), false};
}

// The answer is read byte by byte: what follows the head is the service's, and must stay in the
// socket.
net::Task<Result<std::unique_ptr<net::Stream>>> Upstreams::open_tunnel(SandboxId id,
                                                                       std::uint16_t port) {
  auto dialling = engine_.dial_agent(std::move(id));
  ATOLL_CO_TRY_ASSIGN(auto stream, co_await std::move(dialling));
  const std::string number = std::to_string(port);
  stream->set_read_timeout(kConnectTime);
  stream->set_write_timeout(kConnectTime);
  const std::string request =
      "CONNECT " + number + " HTTP/1.1\r\nHost: localhost:" + number + "\r\n\r\n";
  auto asking = stream->write_all(request);
  ATOLL_CO_TRY(co_await std::move(asking));
  std::string head;
  int status = 0;
  while (status == 0) {
    char byte = 0;
    auto reading = stream->read_some(std::span<char>(&byte, 1));
    ATOLL_CO_TRY_ASSIGN(const std::size_t n, co_await std::move(reading));
    if (n == 0) co_return make_error(Errc::unavailable, "the agent ended the connection");
    head += byte;
    if (head.size() > kMaxConnectAnswer)
      co_return make_error(Errc::internal, "the agent's answer is too long");
    ATOLL_CO_TRY_ASSIGN(status, connect_status(head));
  }
  if (status == 502) co_return make_error(Errc::not_found, "nothing listens on port " + number);
  if (status != 200)
    co_return make_error(Errc::internal,
                         "the agent answered " + std::to_string(status) + " to CONNECT");
  stream->set_read_timeout(std::nullopt);
  stream->set_write_timeout(std::nullopt);
  co_return stream;
}

void Upstreams::put(const std::shared_ptr<engine::Route>& route, std::uint16_t port,
                    Upstream upstream) {
  if (limits_.per_target == 0 || route->dead() || !upstream.client->reusable()) return;
  IdleFd kept(upstream.client->stream().release());
  if (!kept.is_quiet()) return;
  auto pool = pool_of(route);
  const auto now = Clock::now();
  {
    std::lock_guard lock(state_->mutex);
    if (now - state_->swept > kSweepEvery) {
      state_->swept = now;
      state_->full = state_->sweep(now) >= limits_.total;
    }
    if (state_->full) return;
  }
  std::lock_guard lock(pool->mutex);
  if (pool->closed) return;
  auto& idle = pool->idle[port];
  if (idle.size() >= limits_.per_target) idle.erase(idle.begin());
  idle.push_back(
      {std::move(kept), now + (port == kAgent ? limits_.idle_agent : limits_.idle_service)});
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
