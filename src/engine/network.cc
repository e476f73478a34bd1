// Changes of the network of a running sandbox, one at a time: row updated (a restart enforces it)
// -> the kernel's part -> the part of the egress proxy -> the client hears of it.
#include "base/json.h"
#include "base/log.h"
#include "engine/sandbox.h"

namespace atl::engine {
namespace {

constexpr std::string_view kEgressKeys[] = {"allowOut", "denyOut", "rules", "egressProxy"};

// The stored object with its egress part replaced.
Result<json::object> merged(const std::string& stored, const std::string& update) {
  ATOLL_TRY_ASSIGN(json::value network, parse_json(stored));
  ATOLL_TRY_ASSIGN(json::value egress, parse_json(update));
  if (!network.is_object() || !egress.is_object())
    return make_error(Errc::invalid_argument, "network must be an object");
  for (const std::string_view key : kEgressKeys) {
    network.get_object().erase(key);
    if (const json::value* given = egress.get_object().if_contains(key))
      network.get_object()[key] = *given;
  }
  return std::move(network.get_object());
}

}  // namespace

net::Task<Result<void>> Engine::update_network(Caller caller, SandboxId id, NetworkUpdate update) {
  const auto change = std::make_shared<Transition>(Transition::Kind::network);
  for (bool begun = false; !begun;) {
    TransitionPtr other;
    {
      std::lock_guard lock(mutex_);
      ATOLL_CO_TRY_ASSIGN(const SandboxPtr sandbox, find_locked(caller, id));
      other = sandbox->network_change;
      if (!other && sandbox->record.state == SandboxState::snapshotting)
        other = sandbox->transition;
      if (!other) {
        ATOLL_CO_TRY(begin_network_locked(sandbox, change, update, caller));
        begun = true;
      }
    }
    if (!other) break;
    auto wait = other->done.wait(options_.transition_deadline);
    if (!co_await std::move(wait)) {
      co_return make_error(Errc::failed_precondition,
                           "the network of the sandbox is being changed; try again in a moment");
    }
  }
  auto wait = wait_for(change, options_.transition_deadline,
                       "the network of the sandbox is still being changed");
  co_return co_await std::move(wait);
}

Result<void> Engine::begin_network_locked(const SandboxPtr& sandbox, const TransitionPtr& change,
                                          const NetworkUpdate& update, const Caller& by) {
  store::SandboxRecord& record = sandbox->record;
  if (record.state == SandboxState::paused) return no_such_sandbox(record.id);
  if (record.state != SandboxState::running) {
    return make_error(
        Errc::failed_precondition,
        "Sandbox \"" + record.id.str() + "\" is changing its state; try again in a moment");
  }
  ATOLL_TRY_ASSIGN(const json::object network, merged(record.network, update.egress));
  const auto allow_internet = update.allow_internet ? update.allow_internet : record.allow_internet;
  ATOLL_TRY_ASSIGN(egress::Policy policy, egress::parse_policy(network, allow_internet));
  store::SandboxRecord changed = record;
  changed.network = json::serialize(network);
  changed.allow_internet = allow_internet;
  if (auto stored = store_.update_sandbox(changed); !stored.ok())
    return start_failure(std::move(stored).error());
  std::swap(record, changed);
  sandbox->network_change = change;
  audit(by, "sandbox.network", record.id);
  if (!tasks_.spawn("network", run_network(sandbox, change, std::move(changed), std::move(policy))))
    return make_error(Errc::unavailable, "the server is shutting down");
  return {};
}

net::Task<void> Engine::run_network(SandboxPtr sandbox, TransitionPtr change,
                                    store::SandboxRecord before, egress::Policy policy) {
  const SandboxId id = before.id;
  auto setting = guarded(runtime_.set_network(id, egress::for_kernel(policy)));
  auto set = co_await std::move(setting);
  {
    std::lock_guard lock(mutex_);
    if (set.ok()) {
      sandbox->policy = std::move(policy);
      if (sandbox->address.value != 0) egress_.set(sandbox->address, id, sandbox->policy);
      note(*sandbox, store::LogLevel::info, "network updated");
    } else {
      // What is in force is the old policy: so say the row and the answer.
      sandbox->record.network = before.network;
      sandbox->record.allow_internet = before.allow_internet;
      save_locked(*sandbox);
      change->failure = start_failure(std::move(set).error().with("network of " + id.str()));
    }
    sandbox->network_change = nullptr;
  }
  change->done.set();
}

}  // namespace atl::engine
