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

net::Task<Result<void>> FakeRuntime::step(std::string name, std::chrono::milliseconds takes) {
  if (takes.count() > 0) {
    asio::steady_timer timer(co_await asio::this_coro::executor, takes);
    co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
  }
  {
    std::lock_guard lock(mutex_);
    calls_.push_back(name);
  }
  auto holding = wait_while_held(name);
  co_await std::move(holding);
  bool hang = false;
  {
    std::lock_guard lock(mutex_);
    hang = hangs_before == name;
    if (!hang && failing[name] > 0) {
      --failing[name];
      co_return make_error(failing_with, failing_says.empty() ? name + " fails" : failing_says);
    }
  }
  if (hang) {
    auto waiting = stuck();
    co_await std::move(waiting);
  }
  co_return Result<void>();
}

net::Task<void> FakeRuntime::wait_while_held(std::string name) {
  asio::steady_timer timer(co_await asio::this_coro::executor);
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      if (held_ != name) co_return;
    }
    timer.expires_after(std::chrono::milliseconds(1));
    co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
  }
}

void FakeRuntime::hold(std::string name) {
  std::lock_guard lock(mutex_);
  held_ = std::move(name);
}

void FakeRuntime::release() {
  std::lock_guard lock(mutex_);
  held_.clear();
}

net::Task<void> FakeRuntime::after(std::string name) {
  {
    std::lock_guard lock(mutex_);
    if (hangs_after != name) co_return;
  }
  auto waiting = stuck();
  co_await std::move(waiting);
}

net::Task<void> FakeRuntime::stuck() {
  {
    std::lock_guard lock(mutex_);
    ++hung_;
  }
  asio::steady_timer timer(co_await asio::this_coro::executor, std::chrono::hours(1));
  co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
}

std::shared_ptr<FakeRuntime::Agent> FakeRuntime::find(const SandboxId& id) const {
  std::lock_guard lock(mutex_);
  const auto found = agents_.find(id);
  return found == agents_.end() ? nullptr : found->second;
}

net::Task<void> FakeRuntime::stop_agent(std::shared_ptr<Agent> agent) {
  if (!agent->server) co_return;
  auto stop = agent->server->shutdown(std::chrono::milliseconds(0));
  co_await std::move(stop);
}

net::Task<Result<runtime::Created>> FakeRuntime::create(runtime::SandboxSpec spec) {
  auto begin = step("create", create_takes);
  ATOLL_CO_TRY(co_await std::move(begin));
  Ipv4 address;
  {
    std::lock_guard lock(mutex_);
    specs_.push_back(spec);
    if (failing_creates > 0) {
      --failing_creates;
      co_return make_error(Errc::internal, "mount the root: no such device");
    }
    ATOLL_CO_TRY(check_memory_locked(spec));
    const auto kept = agents_.find(spec.id);
    if (restores_use_up && spec.memory == runtime::Memory::kept) {
      kept->second->condition = runtime::Condition::dead;
      co_return make_error(Errc::internal, "the restored process ended at once");
    }
    if (spec.disk == runtime::Disk::kept) {
      if (kept == agents_.end()) co_return make_error(Errc::not_found, "there is no such disk");
      if (kept->second->condition != runtime::Condition::dead &&
          kept->second->condition != runtime::Condition::dumped)
        co_return make_error(Errc::failed_precondition, "the disk is in use");
    } else if (kept != agents_.end()) {
      co_return make_error(Errc::already_exists, "there is such a sandbox");
    }
    auto agent = std::make_shared<Agent>();
    agent->server = std::make_unique<net::HttpServer>(
        io_, net::ServerOptions{},
        [this, id = spec.id](net::Exchange& exchange) { return answer(exchange, id); });
    agent->snapshot = spec.snapshot;
    ATOLL_CO_TRY_ASSIGN(agent->port, agent->server->listen_tcp("127.0.0.1:0", "agent"));
    agent->network = spec.network;
    agent->memory = spec.limits.memory_bytes;
    agent->address = address = Ipv4{++last_address_};
    agents_.insert_or_assign(spec.id, std::move(agent));
  }
  auto end = after("create");
  co_await std::move(end);
  co_return runtime::Created{{}, address};
}

net::Task<Result<void>> FakeRuntime::destroy(SandboxId id) {
  auto begin = step("destroy", destroy_takes);
  ATOLL_CO_TRY(co_await std::move(begin));
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
  auto stop = stop_agent(agent);
  co_await std::move(stop);
  auto end = after("destroy");
  co_await std::move(end);
  co_return Result<void>();
}

net::Task<Result<void>> FakeRuntime::freeze(SandboxId id) {
  auto begin = step("freeze", freeze_takes);
  ATOLL_CO_TRY(co_await std::move(begin));
  const auto agent = find(id);
  if (!agent) co_return make_error(Errc::not_found, "no sandbox " + id.str());
  {
    std::lock_guard lock(mutex_);
    if (agent->condition == runtime::Condition::dead ||
        agent->condition == runtime::Condition::dumped)
      co_return make_error(Errc::failed_precondition, "it has no processes");
    if (agent->dumping) co_return make_error(Errc::internal, "a dump is under way");
    agent->condition = runtime::Condition::frozen;
  }
  auto end = after("freeze");
  co_await std::move(end);
  co_return Result<void>();
}

net::Task<Result<void>> FakeRuntime::thaw(SandboxId id) {
  auto begin = step("thaw", thaw_takes);
  ATOLL_CO_TRY(co_await std::move(begin));
  const auto agent = find(id);
  if (!agent) co_return make_error(Errc::not_found, "no sandbox " + id.str());
  {
    std::lock_guard lock(mutex_);
    if (agent->condition == runtime::Condition::dead ||
        agent->condition == runtime::Condition::dumped)
      co_return make_error(Errc::failed_precondition, "it has no processes");
    if (agent->dumping) co_return make_error(Errc::internal, "a dump is under way");
    agent->condition = runtime::Condition::running;
  }
  auto end = after("thaw");
  co_await std::move(end);
  co_return Result<void>();
}

net::Task<Result<void>> FakeRuntime::kill(SandboxId id) {
  auto begin = step("kill", kill_takes);
  ATOLL_CO_TRY(co_await std::move(begin));
  const auto agent = find(id);
  if (!agent) co_return make_error(Errc::not_found, "no sandbox " + id.str());
  {
    std::lock_guard lock(mutex_);
    agent->condition = runtime::Condition::dead;
    agent->address = Ipv4{};
  }
  auto stop = stop_agent(agent);
  co_await std::move(stop);
  auto end = after("kill");
  co_await std::move(end);
  co_return Result<void>();
}

net::Task<Result<void>> FakeRuntime::set_network(SandboxId id, runtime::NetworkPolicy policy) {
  auto begin = step("set_network");
  ATOLL_CO_TRY(co_await std::move(begin));
  const auto agent = find(id);
  if (!agent) co_return make_error(Errc::not_found, "no sandbox " + id.str());
  {
    std::lock_guard lock(mutex_);
    agent->network = std::move(policy);
  }
  auto end = after("set_network");
  co_await std::move(end);
  co_return Result<void>();
}

net::Task<Result<void>> FakeRuntime::set_memory(SandboxId id, std::uint64_t bytes) {
  auto begin = step("set_memory");
  ATOLL_CO_TRY(co_await std::move(begin));
  const auto agent = find(id);
  if (!agent) co_return make_error(Errc::not_found, "no sandbox " + id.str());
  std::lock_guard lock(mutex_);
  agent->memory = bytes;
  co_return Result<void>();
}

net::Task<Result<runtime::Usage>> FakeRuntime::usage(SandboxId id) {
  const auto agent = find(id);
  if (!agent) co_return make_error(Errc::not_found, "no sandbox " + id.str());
  std::lock_guard lock(mutex_);
  agent->cpu += std::chrono::milliseconds(100);
  runtime::Usage usage;
  usage.cpu = agent->cpu;
  usage.memory_bytes = usage_bytes;
  usage.memory_cache_bytes = 8 << 20;
  usage.disk_bytes = 1 << 20;
  usage.disk_total_bytes = 1 << 30;
  co_return usage;
}

net::Task<Result<std::vector<runtime::Listed>>> FakeRuntime::list() {
  std::lock_guard lock(mutex_);
  std::vector<runtime::Listed> ids;
  for (const auto& [id, agent] : agents_) ids.push_back({id, agent->condition, agent->address});
  co_return ids;
}

net::Task<Result<std::unique_ptr<net::Stream>>> FakeRuntime::connect_agent(SandboxId id) {
  std::uint16_t port = 0;
  {
    std::lock_guard lock(mutex_);
    const auto found = agents_.find(id);
    if (found == agents_.end()) co_return make_error(Errc::not_found, "no sandbox " + id.str());
    if (found->second->condition != runtime::Condition::running)
      co_return make_error(Errc::unavailable, "the agent does not run");
    port = found->second->port;
    found->second->let_go = false;
    ++dials_;
  }
  auto dial = net::connect_tcp("127.0.0.1", port);
  co_return co_await std::move(dial);
}

net::Task<Result<void>> FakeRuntime::prepare(std::string) {
  auto begin = step("prepare");
  co_return co_await std::move(begin);
}

net::Task<Result<void>> FakeRuntime::warm(SandboxId id) {
  auto begin = step("warm");
  ATOLL_CO_TRY(co_await std::move(begin));
  if (!find(id)) co_return make_error(Errc::not_found, "no sandbox " + id.str());
  co_return Result<void>();
}

void FakeRuntime::on_exit(std::function<void(runtime::ExitNotice)> handler) {
  std::lock_guard lock(mutex_);
  on_exit_ = std::move(handler);
}

void FakeRuntime::add_leftover(const SandboxId& id) {
  std::lock_guard lock(mutex_);
  auto agent = std::make_shared<Agent>();
  agent->condition = runtime::Condition::leftover;
  agents_.emplace(id, std::move(agent));
}

std::optional<runtime::Condition> FakeRuntime::condition(const SandboxId& id) const {
  const auto agent = find(id);
  std::lock_guard lock(mutex_);
  return agent ? std::optional(agent->condition) : std::nullopt;
}

void FakeRuntime::set_condition(const SandboxId& id, runtime::Condition condition) {
  const auto agent = find(id);
  std::lock_guard lock(mutex_);
  if (agent) agent->condition = condition;
}

Ipv4 FakeRuntime::address(const SandboxId& id) const {
  const auto agent = find(id);
  std::lock_guard lock(mutex_);
  return agent ? agent->address : Ipv4{};
}

runtime::NetworkPolicy FakeRuntime::network(const SandboxId& id) const {
  const auto agent = find(id);
  std::lock_guard lock(mutex_);
  return agent ? agent->network : runtime::NetworkPolicy{};
}

std::uint64_t FakeRuntime::memory(const SandboxId& id) const {
  const auto agent = find(id);
  std::lock_guard lock(mutex_);
  return agent ? agent->memory : 0;
}

std::vector<std::string> FakeRuntime::calls() const {
  std::lock_guard lock(mutex_);
  return calls_;
}

int FakeRuntime::hung() const {
  std::lock_guard lock(mutex_);
  return hung_;
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

// /init, /suspend, /wake
net::Task<void> FakeRuntime::answer_step(net::Exchange& exchange, std::string name, SandboxId id) {
  auto begin = step(name);
  if (auto begun = co_await std::move(begin); !begun.ok()) {
    auto sending = exchange.response.send(500, {}, begun.error().message);
    (void)co_await std::move(sending);
    co_return;
  }
  auto reading = exchange.body.read_all(1 << 20);
  auto body = co_await std::move(reading);
  const auto agent = find(id);
  {
    std::lock_guard lock(mutex_);
    if (name == "init") inits_.push_back(body.ok() ? *body : "");
    if (name == "wake") wakes_.push_back(body.ok() ? *body : "");
    if (name == "suspend") {
      ++suspends_;
      if (agent) agent->let_go = true;
    }
  }
  auto end = after(name);
  co_await std::move(end);
  net::Headers headers;
  if (name == "suspend") headers.add("Connection", "close");
  auto sending = exchange.response.send(name == "init" ? init_status : 204, std::move(headers), "");
  (void)co_await std::move(sending);
}

net::Task<void> FakeRuntime::answer(net::Exchange& exchange, SandboxId id) {
  if (exchange.request.method == "CONNECT") {
    auto tunnelling = tunnel(exchange);
    co_await std::move(tunnelling);
    co_return;
  }
  if (exchange.request.target == "/suspend?soon=1") {
    auto sending = exchange.response.send(204, {}, "");
    (void)co_await std::move(sending);
    co_return;
  }
  const std::string path(exchange.request.path());
  if (path == "/init" || path == "/suspend" || path == "/wake") {
    auto answering = answer_step(exchange, path.substr(1), std::move(id));
    co_await std::move(answering);
    co_return;
  }
  if (exchange.request.path() == "/logs" && !agent_logs.empty()) {
    auto sending = exchange.response.send(200, {}, agent_logs);
    (void)co_await std::move(sending);
    co_return;
  }
  if (exchange.request.path() == "/warm") {
    auto sending = exchange.response.send(warm_status, {}, "");
    (void)co_await std::move(sending);
    co_return;
  }
  const bool health = exchange.request.path() == "/health";
  if (health || !handler) {
    auto sending = exchange.response.send(health ? 204 : 404, {}, "");
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
