#include "engine/testing/fake_runtime.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <charconv>

#include "engine/side_task.h"

namespace atl::engine::testing {
namespace {

namespace asio = net::asio;

net::Task<void> pump(net::Stream& from, net::Stream& to) {
  std::vector<char> buffer(16 * 1024);
  for (;;) {
    auto read = from.read_some(buffer);
    auto n = co_await std::move(read);
    if (!n.ok() || *n == 0) break;
    auto write = to.write_all(std::string_view(buffer.data(), *n));
    if (!(co_await std::move(write)).ok()) break;
  }
  to.shutdown_write();
}

}  // namespace

net::Task<Result<runtime::Created>> FakeRuntime::create(runtime::SandboxSpec spec) {
  if (create_takes.count() > 0) {
    asio::steady_timer timer(co_await asio::this_coro::executor, create_takes);
    co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
  }
  std::lock_guard lock(mutex_);
  specs_.push_back(spec);
  if (failing_creates > 0) {
    --failing_creates;
    co_return make_error(Errc::internal, "mount the root: no such device");
  }
  auto agent = std::make_shared<Agent>();
  agent->server = std::make_unique<net::HttpServer>(
      io_, net::ServerOptions{}, [this](net::Exchange& exchange) { return answer(exchange); });
  ATOLL_CO_TRY_ASSIGN(agent->port, agent->server->listen_tcp("127.0.0.1:0", "agent"));
  agents_.emplace(spec.id, std::move(agent));
  co_return runtime::Created{};
}

net::Task<Result<void>> FakeRuntime::destroy(SandboxId id) {
  std::shared_ptr<Agent> agent;
  {
    std::lock_guard lock(mutex_);
    if (failing_destroys > 0) {
      --failing_destroys;
      co_return make_error(Errc::internal, "cgroup: device or resource busy");
    }
    const auto found = agents_.find(id);
    if (found == agents_.end()) co_return make_error(Errc::not_found, "no sandbox " + id.str());
    agent = found->second;
    agents_.erase(found);
  }
  if (agent->server) {
    auto stop = agent->server->shutdown(std::chrono::milliseconds(0));
    co_await std::move(stop);
  }
  co_return Result<void>();
}

net::Task<Result<void>> FakeRuntime::freeze(SandboxId) {
  co_return make_error(Errc::unimplemented, "freeze");
}
net::Task<Result<void>> FakeRuntime::thaw(SandboxId) {
  co_return make_error(Errc::unimplemented, "thaw");
}

net::Task<Result<std::vector<runtime::Listed>>> FakeRuntime::list() {
  std::lock_guard lock(mutex_);
  std::vector<runtime::Listed> ids;
  for (const auto& [id, agent] : agents_) ids.push_back({id, runtime::Condition::running, Ipv4{}});
  co_return ids;
}

net::Task<Result<std::unique_ptr<net::Stream>>> FakeRuntime::connect_agent(SandboxId id) {
  std::uint16_t port = 0;
  {
    std::lock_guard lock(mutex_);
    const auto found = agents_.find(id);
    if (found == agents_.end()) co_return make_error(Errc::not_found, "no sandbox " + id.str());
    port = found->second->port;
    ++dials_;
  }
  auto dial = net::connect_tcp("127.0.0.1", port);
  co_return co_await std::move(dial);
}

void FakeRuntime::on_exit(std::function<void(runtime::ExitNotice)> handler) {
  std::lock_guard lock(mutex_);
  on_exit_ = std::move(handler);
}

void FakeRuntime::add_leftover(const SandboxId& id) {
  std::lock_guard lock(mutex_);
  agents_.emplace(id, std::make_shared<Agent>());
}

void FakeRuntime::exit(const SandboxId& id) {
  std::function<void(runtime::ExitNotice)> handler;
  {
    std::lock_guard lock(mutex_);
    handler = on_exit_;
  }
  if (handler) handler(runtime::ExitNotice{.id = id, .signaled = true, .status = 9});
}

std::set<std::string> FakeRuntime::alive() const {
  std::lock_guard lock(mutex_);
  std::set<std::string> ids;
  for (const auto& [id, agent] : agents_) ids.insert(id.str());
  return ids;
}

std::vector<std::string> FakeRuntime::inits() const {
  std::lock_guard lock(mutex_);
  return inits_;
}

std::vector<runtime::SandboxSpec> FakeRuntime::specs() const {
  std::lock_guard lock(mutex_);
  return specs_;
}

int FakeRuntime::dials() const {
  std::lock_guard lock(mutex_);
  return dials_;
}

int FakeRuntime::connects() const {
  std::lock_guard lock(mutex_);
  return connects_;
}

net::Task<void> FakeRuntime::answer(net::Exchange& exchange) {
  if (exchange.request.method == "CONNECT") {
    auto tunnelling = tunnel(exchange);
    co_await std::move(tunnelling);
    co_return;
  }
  if (exchange.request.path() == "/init") {
    auto reading = exchange.body.read_all(1 << 20);
    auto body = co_await std::move(reading);
    {
      std::lock_guard lock(mutex_);
      inits_.push_back(body.ok() ? *body : "");
    }
    auto sending = exchange.response.send(init_status, {}, "");
    (void)co_await std::move(sending);
    co_return;
  }
  if (exchange.request.path() == "/health" || !handler) {
    auto sending = exchange.response.send(handler ? 204 : 404, {}, "");
    (void)co_await std::move(sending);
    co_return;
  }
  auto handling = handler(exchange);
  co_await std::move(handling);
}

net::Task<void> FakeRuntime::tunnel(net::Exchange& exchange) {
  int port = 0;
  const std::string& target = exchange.request.target;
  const std::size_t colon = target.rfind(':');
  const char* digits = target.data() + (colon == std::string::npos ? 0 : colon + 1);
  std::from_chars(digits, target.data() + target.size(), port);
  std::uint16_t real = 0;
  {
    std::lock_guard lock(mutex_);
    ++connects_;
    const auto found = open_ports.find(port);
    if (found != open_ports.end()) real = found->second;
  }
  if (real == 0) {
    auto sending = exchange.response.send(502, {}, "port is not open");
    (void)co_await std::move(sending);
    co_return;
  }
  auto dial = net::connect_tcp("127.0.0.1", real);
  auto service = co_await std::move(dial);
  if (!service.ok()) {
    auto sending = exchange.response.send(502, {}, "port is not open");
    (void)co_await std::move(sending);
    co_return;
  }
  const std::string early = exchange.take_over();
  auto hello = exchange.stream.write_all("HTTP/1.1 200 OK\r\n\r\n");
  (void)co_await std::move(hello);
  if (!early.empty()) {
    auto first = (*service)->write_all(early);
    (void)co_await std::move(first);
  }
  SideTask back(co_await asio::this_coro::executor, pump(**service, exchange.stream));
  auto forth = pump(exchange.stream, **service);
  co_await std::move(forth);
  auto rest = back.wait(std::chrono::milliseconds(60'000));
  co_await std::move(rest);
  auto stop = back.stop();
  co_await std::move(stop);
}

}  // namespace atl::engine::testing
