// Kill: state killing (row updated), unrouted: the proxy answers 502 from here on -> a transition
// that was under way ends, a nursery on its way arrives -> the runtime destroys it, which ends what
// clients still read from it: they get all that was said before, then a broken connection -> row
// killed, place freed. A destroy that fails is told to the client and tried again until it works.
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>

#include "base/log.h"
#include "engine/sandbox.h"

namespace atl::engine {
namespace {

namespace asio = net::asio;

constexpr std::chrono::milliseconds kFirstRetry{250};
constexpr std::chrono::milliseconds kLongestRetry{30'000};
constexpr std::chrono::milliseconds kDrain{2'000};
constexpr std::chrono::milliseconds kNursery{500};  // some milliseconds are usual
constexpr std::chrono::milliseconds kDrainStep{20};
constexpr std::string_view kSlowKill =
    "the sandbox is stopped, its removal takes longer than expected";

std::string_view to_string(KillReason reason) {
  switch (reason) {
    case KillReason::request:
      return "request";
    case KillReason::expired:
      return "timeout";
    case KillReason::died:
      return "agent exit";
    case KillReason::shutdown:
      return "shutdown";
  }
  return "unknown";
}

}  // namespace

net::Task<Result<void>> Engine::kill(Caller caller, SandboxId id) {
  TransitionPtr killing;
  {
    std::lock_guard lock(mutex_);
    ATOLL_CO_TRY_ASSIGN(const SandboxPtr sandbox, find_locked(caller, id));
    begin_kill_locked(sandbox, KillReason::request, caller);
    killing = sandbox->transition;
  }
  auto wait = wait_for(killing, options_.kill_deadline, kSlowKill);
  co_return co_await std::move(wait);
}

net::Task<KillCount> Engine::kill_team(std::string team_id) {
  std::vector<TransitionPtr> killing;
  {
    std::lock_guard lock(mutex_);
    std::vector<SandboxPtr> all;
    for (const auto& [id, sandbox] : sandboxes_) {
      if (sandbox->record.team_id == team_id && is_visible(sandbox->record.state))
        all.push_back(sandbox);
    }
    for (const SandboxPtr& sandbox : all) {
      begin_kill_locked(sandbox, KillReason::request, {team_id, "admin", {}});
      killing.push_back(sandbox->transition);
    }
  }
  KillCount count;
  const auto until = std::chrono::steady_clock::now() + options_.kill_deadline;
  for (const TransitionPtr& one : killing) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        until - std::chrono::steady_clock::now());
    auto wait = wait_for(one, std::max(left, std::chrono::milliseconds(1)), kSlowKill);
    ++((co_await std::move(wait)).ok() ? count.killed : count.failed);
  }
  co_return count;
}

void Engine::begin_kill_locked(const SandboxPtr& sandbox, KillReason reason, const Caller& by) {
  TransitionPtr before = sandbox->transition;
  if (before && before->done.is_set()) before = nullptr;
  cancel_dump_locked(sandbox);
  const auto kill = std::make_shared<Transition>(Transition::Kind::kill);
  sandbox->transition = kill;
  sandbox->reason = reason;
  set_state_locked(*sandbox, Event::kill);
  go_dark_locked(*sandbox);
  sandbox->record.end_at = options_.clock();
  // A store that cannot be written does not keep a sandbox alive: the next start removes what the
  // rows still name.
  save_locked(*sandbox);
  audit(by, "sandbox.kill", sandbox->record.id, std::string(to_string(reason)));
  if (!tasks_.spawn("kill", run_kill(sandbox, kill, std::move(before)))) {
    kill->failure = make_error(Errc::unavailable, "the server is shutting down");
    kill->done.set();
  }
}

net::Task<void> Engine::run_kill(SandboxPtr sandbox, TransitionPtr kill, TransitionPtr before) {
  const SandboxId id = sandbox->record.id;
  std::shared_ptr<Route> route;
  {
    std::lock_guard lock(mutex_);
    route = std::exchange(sandbox->route, nullptr);
  }
  if (route && route->held()) std::exchange(route, nullptr)->die();  // nothing is left to be read
  if (route) route->condemn();
  while (before && !before->done.is_set()) {
    auto wait = before->done.wait(std::chrono::minutes(1));
    co_await std::move(wait);
  }
  auto settling = let_nursery_arrive(sandbox);
  co_await std::move(settling);
  auto first = destroy(id);
  auto destroyed = co_await std::move(first);
  if (route && (!destroyed.ok() || !tasks_.spawn("drain", drain(route)))) route->die();
  if (!destroyed.ok()) {
    log::error("a sandbox was not removed; trying again",
               {{"sandbox", id.str()}, {"error", destroyed.error().message}});
    finish(kill, std::move(destroyed).error());
    auto again = destroy_until_gone(id);
    if (!co_await std::move(again))
      co_return;  // the row still says killing: the next start removes it
  }
  clear_address(*sandbox);
  {
    std::lock_guard lock(mutex_);
    set_state_locked(*sandbox, Event::gone);
    save_locked(*sandbox);
    ++counts_.killed;
    if (sandbox->reason == KillReason::expired) ++counts_.expired;
    log::info("sandbox killed", {{"sandbox", id.str()}, {"reason", to_string(sandbox->reason)}});
    note(*sandbox, store::LogLevel::info, "sandbox killed",
         {{"reason", std::string(to_string(sandbox->reason))}});
  }
  drop(sandbox);
  if (!sandbox->record.snapshot_id.empty()) collect_later();
  if (!kill->done.is_set()) finish(kill, std::nullopt);
}

// A zygote whose fork into a sandbox is cut off by the sandbox's end cannot be used any more, and
// another takes seconds to start.
net::Task<void> Engine::let_nursery_arrive(SandboxPtr sandbox) {
  std::shared_ptr<Completion> warming;
  {
    std::lock_guard lock(mutex_);
    warming = sandbox->warming;
  }
  if (!warming || warming->is_set()) co_return;
  auto wait = warming->wait(kNursery);
  co_await std::move(wait);
}

// Clients read what is left in the connections, which have ended at the other side; one that does
// not read is cut off.
net::Task<void> Engine::drain(std::shared_ptr<Route> route) {
  asio::steady_timer timer(co_await asio::this_coro::executor);
  const auto until = std::chrono::steady_clock::now() + kDrain;
  while (route->connections() > 0 && std::chrono::steady_clock::now() < until && accepting()) {
    timer.expires_after(kDrainStep);
    co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
  }
  route->die();
}

// not_found is what we want: nothing is left.
net::Task<Result<void>> Engine::destroy(SandboxId id) {
  auto destroying = guarded(runtime_.destroy(std::move(id)));
  auto done = co_await std::move(destroying);
  if (!done.ok() && done.error().code == Errc::not_found) co_return Result<void>();
  co_return done;
}

net::Task<bool> Engine::destroy_until_gone(SandboxId id) {
  asio::steady_timer timer(co_await asio::this_coro::executor);
  for (auto pause = kFirstRetry;; pause = std::min(pause * 2, kLongestRetry)) {
    timer.expires_after(pause);
    co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
    auto destroying = destroy(id);
    if ((co_await std::move(destroying)).ok()) co_return true;
    if (!accepting()) co_return false;
  }
}

// One that no row names.
net::Task<void> Engine::remove_unowned(SandboxId id) {
  auto destroying = destroy(id);
  auto done = co_await std::move(destroying);
  if (done.ok()) co_return;
  log::error("a sandbox of the pool was not removed; trying again",
             {{"sandbox", id.str()}, {"error", done.error().message}});
  auto again = destroy_until_gone(std::move(id));
  co_await std::move(again);
}

void Engine::drop(const SandboxPtr& sandbox) {
  std::lock_guard lock(mutex_);
  sandboxes_.erase(sandbox->record.id);
}

void Engine::on_agent_exit(const SandboxId& id) {
  std::lock_guard lock(mutex_);
  if (adopting_) {
    early_exits_.push_back(id);
    return;
  }
  if (pool_.died(id)) return;
  const auto found = sandboxes_.find(id);
  if (found == sandboxes_.end()) return;
  Sandbox& sandbox = *found->second;
  switch (sandbox.record.state) {
    case SandboxState::creating:
    case SandboxState::snapshotting:
      sandbox.abandoned = true;
      return;
    case SandboxState::running:
      log::warn("the agent of a sandbox ended; the sandbox is removed", {{"sandbox", id.str()}});
      note(sandbox, store::LogLevel::error, "the agent of the sandbox ended");
      begin_kill_locked(found->second, KillReason::died, {sandbox.record.team_id, "runtime", {}});
      return;
    case SandboxState::pausing:
      if (!sandbox.record.memory_kept) return;  // that is what a pause without memory does
      log::warn("the agent of a sandbox ended while it was paused", {{"sandbox", id.str()}});
      sandbox.record.memory_kept = false;
      save_locked(sandbox);
      return;
    case SandboxState::paused:
    case SandboxState::resuming:
      if (!sandbox.record.memory_kept) return;
      if (sandbox.record.state == SandboxState::paused &&
          sandbox.record.memory_tier == store::MemoryTier::dumped)
        return;  // it has none
      // Its disk is there: the next resume boots it.
      log::warn("a frozen sandbox lost its processes; its disk is kept", {{"sandbox", id.str()}});
      note(sandbox, store::LogLevel::error, "the frozen processes of the sandbox ended");
      sandbox.record.memory_kept = false;
      set_rest_locked(sandbox, Rested{});
      save_locked(sandbox);
      return;
    case SandboxState::killing:
    case SandboxState::killed:
      return;
  }
}

}  // namespace atl::engine
