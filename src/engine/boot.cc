// Boot: the runtime makes it -> its address gets its policy -> the agent is told who it is. The
// same for a new sandbox and for one that comes back from its disk.
#include <fmt/format.h>

#include <boost/asio/post.hpp>

#include "base/log.h"
#include "engine/agent_client.h"
#include "engine/sandbox.h"

namespace atl::engine {
namespace {

constexpr std::chrono::milliseconds kWarmLimit{5'000};     // then the agent starts kernels cold
constexpr std::chrono::milliseconds kHandOutLimit{5'000};  // then the next one is tried

}  // namespace

std::string step_times(const std::vector<runtime::StepTime>& steps) {
  std::string out;
  for (const auto& [step, took] : steps) {
    if (!out.empty()) out += ' ';
    out += step + "=" + std::to_string(took.count());
  }
  return out;
}

Error no_such_sandbox(const SandboxId& id) {
  return make_error(Errc::not_found,
                    "Sandbox \"" + id.str() + "\" doesn't exist or you don't have access to it");
}

Error start_failure(Error error) {
  switch (error.code) {
    case Errc::unavailable:
    case Errc::deadline_exceeded:
      return error;
    case Errc::resource_exhausted:
      if (is_transient(error)) return error;  // the gate's words
      error.code = Errc::unavailable;
      return error;
    default:
      error.code = Errc::internal;
      return error;
  }
}

std::string milliseconds_between(Timestamp from, Timestamp to) {
  return fmt::format("{:.1f}", std::chrono::duration<double, std::milli>(to - from).count());
}

runtime::SandboxSpec Engine::spec_of(const Sandbox& sandbox,
                                     const store::SandboxRecord& record) const {
  runtime::SandboxSpec spec{.id = record.id};
  spec.template_id = record.template_dir;
  spec.hostname = record.hostname;
  spec.boot_id = record.boot_id;
  spec.limits.memory_bytes = std::uint64_t(record.memory_mb) << 20;
  spec.limits.cpu_millis = record.cpu_count * 1000;
  spec.limits.disk_bytes = std::uint64_t(record.disk_mb) << 20;
  spec.limits.pids = options_.max_pids;
  std::lock_guard lock(mutex_);
  spec.network = egress::for_kernel(sandbox.policy);
  return spec;
}

std::shared_ptr<Completion> Engine::warm(Sandbox& sandbox, const store::SandboxRecord& record) {
  auto warming = pool_.warm(record.id, record.template_dir);
  std::lock_guard lock(mutex_);
  sandbox.warming = warming;
  return warming;
}

net::Task<Result<void>> Engine::boot(SandboxPtr sandbox, store::SandboxRecord record,
                                     runtime::Disk disk) {
  runtime::SandboxSpec spec = spec_of(*sandbox, record);
  spec.disk = disk;
  auto making = runtime_.create(std::move(spec));
  auto created = co_await std::move(making);
  if (!created.ok()) co_return std::move(created).error().with("start sandbox " + record.id.str());
  log::debug("launch steps", {{"sandbox", record.id.str()}, {"us", step_times(created->steps)}});
  set_address(*sandbox, created->address);
  // Only into a root in which nobody's code has run yet.
  std::shared_ptr<Completion> warming;
  if (disk == runtime::Disk::fresh) warming = warm(*sandbox, record);
  auto telling = init_agent(std::move(record), options_.create_deadline);
  auto told = co_await std::move(telling);
  if (warming && told.ok()) {
    auto wait = warming->wait(kWarmLimit);
    co_await std::move(wait);
  }
  co_return told;
}

net::Task<Result<void>> Engine::hand_out(SandboxPtr sandbox, store::SandboxRecord record,
                                         Pool::Entry entry) {
  runtime::NetworkPolicy network;
  {
    std::lock_guard lock(mutex_);
    network = egress::for_kernel(sandbox->policy);
  }
  if (network != pool_.network()) {
    auto setting = runtime_.set_network(record.id, std::move(network));
    ATOLL_CO_TRY(co_await std::move(setting));
  }
  if (record.memory_mb != entry.memory_mb) {
    auto limiting = runtime_.set_memory(record.id, std::uint64_t(record.memory_mb) << 20);
    ATOLL_CO_TRY(co_await std::move(limiting));
  }
  set_address(*sandbox, entry.address);
  std::shared_ptr<Completion> warming;
  if (entry.tier == Tier::skeleton) warming = warm(*sandbox, record);
  auto telling = init_agent(std::move(record), kHandOutLimit);
  ATOLL_CO_TRY(co_await std::move(telling));
  if (warming) {
    auto wait = warming->wait(kWarmLimit);
    co_await std::move(wait);
  }
  co_return Result<void>();
}

AgentInit Engine::init_of(const store::SandboxRecord& record) const {
  AgentInit init;
  init.sandbox_id = record.id.str();
  init.template_id = record.template_id;
  if (record.secure) init.access_token = tokens_.access_token(record.id);
  init.envs = record.envs;
  init.default_user = record.default_user;
  init.memory_bytes = std::uint64_t(record.memory_mb) << 20;
  init.cpu_count = record.cpu_count;
  init.timestamp = now();
  init.start_command = record.start_command;
  init.ca_bundle = options_.ca_bundle;
  return init;
}

net::Task<Result<void>> Engine::init_agent(store::SandboxRecord record,
                                           std::chrono::milliseconds limit) {
  auto dial = dial_agent(record.id);
  ATOLL_CO_TRY_ASSIGN(auto stream, co_await std::move(dial));
  auto sent = send_init(std::move(stream), init_of(record), limit);
  co_return co_await std::move(sent);
}

net::Task<Result<void>> Engine::wake_agent(store::SandboxRecord record, bool forked,
                                           std::chrono::milliseconds limit) {
  AgentWake wake{.init = init_of(record), .forked = forked, .seed = {}, .hostname = {}};
  if (forked) {
    wake.seed = random_hex(32);
    wake.hostname = record.hostname;
  }
  auto dial = dial_agent(record.id);
  ATOLL_CO_TRY_ASSIGN(auto stream, co_await std::move(dial));
  auto telling = send_wake(std::move(stream), std::move(wake), limit);
  ATOLL_CO_TRY(co_await std::move(telling));
  auto asking = check_agent(std::move(record.id));
  co_return co_await std::move(asking);
}

net::Task<Result<void>> Engine::check_agent(SandboxId id) {
  auto dial = dial_agent(std::move(id));
  ATOLL_CO_TRY_ASSIGN(auto stream, co_await std::move(dial));
  auto asked = ask_health(std::move(stream), options_.dial_deadline);
  co_return co_await std::move(asked);
}

void Engine::set_address(Sandbox& sandbox, Ipv4 address) {
  std::lock_guard lock(mutex_);
  sandbox.address = address;
  if (address.value != 0) egress_.set(address, sandbox.record.id, sandbox.policy);
}

void Engine::clear_address(Sandbox& sandbox) {
  std::lock_guard lock(mutex_);
  const Ipv4 address = std::exchange(sandbox.address, Ipv4{});
  if (address.value != 0) egress_.remove(address, sandbox.record.id);
}

void Engine::go_live_locked(Sandbox& sandbox) {
  const store::SandboxRecord& record = sandbox.record;
  if (sandbox.route && sandbox.route->held()) {
    // What stood still over it led to connections that are gone.
    net::asio::post(io_, [old = std::exchange(sandbox.route, nullptr)] { old->die(); });
  }
  if (!sandbox.route) {  // a frozen sandbox may have kept its route, with its connections
    sandbox.route = std::make_shared<Route>(RouteSpec{
        .id = record.id,
        .access_token = record.secure ? tokens_.access_token(record.id) : std::string(),
        .traffic_token = record.allow_public_traffic
                             ? std::nullopt
                             : std::optional<std::string>(tokens_.traffic_token(record.id)),
        .mask_request_host = record.mask_request_host,
        .max_connections = options_.max_connections_per_sandbox,
        .https_ports = https_ports_of(record.network),
        .last_use = sandbox.last_use});
  }
  routes_.add(sandbox.route);
  expiry_.set(record.id, record.end_at);
  wake_expiry_locked();
}

// Connections that are open break when the task of the transition lets the route die.
void Engine::go_dark_locked(Sandbox& sandbox) {
  expiry_.remove(sandbox.record.id);
  routes_.remove(sandbox.record.id);
}

}  // namespace atl::engine
