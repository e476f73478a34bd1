// A running sandbox that stands still for a moment, for something that needs its memory and disk to
// be of one instant: state snapshotting (row updated), unrouted, connections of clients break ->
// the agent lets go of what leads outside -> frozen -> the work -> thawed, routed again. Work that
// is refused because somebody outside was late to let go is tried once more. After a restart of the
// server a sandbox that was found frozen in this state is thawed.
#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>

#include "base/log.h"
#include "engine/agent_client.h"
#include "engine/sandbox.h"

namespace atl::engine {
namespace {

namespace asio = net::asio;

constexpr std::chrono::milliseconds kLeave{5'000};    // for the proxy to end its connections
constexpr std::chrono::microseconds kLeaveStep{200};  // most have left by then; doubled each time
constexpr std::chrono::microseconds kLongestLeaveStep{4'000};
constexpr std::chrono::milliseconds kSuspend{10'000};
constexpr std::chrono::milliseconds kAnnounce{1'000};
constexpr int kThawTries = 4;
constexpr std::chrono::milliseconds kThawRetry{100};

}  // namespace

Result<Engine::TransitionPtr> Engine::begin_snapshot_locked(const SandboxPtr& sandbox,
                                                            const Caller& by) {
  if (stopping_) return make_error(Errc::unavailable, "the server is shutting down");
  store::SandboxRecord intent = sandbox->record;
  ATOLL_TRY_ASSIGN(intent.state, next_state(intent.state, Event::snapshot));
  if (auto stored = store_.update_sandbox(intent); !stored.ok())
    return start_failure(std::move(stored).error());
  set_state_locked(*sandbox, Event::snapshot);
  go_dark_locked(*sandbox);
  sandbox->abandoned = false;
  const auto snapshot = std::make_shared<Transition>(Transition::Kind::snapshot);
  sandbox->transition = snapshot;
  audit(by, "sandbox.snapshot", sandbox->record.id);
  return snapshot;
}

net::Task<Result<std::chrono::microseconds>> Engine::hold_still(SandboxPtr sandbox,
                                                                TransitionPtr transition,
                                                                bool memory, StillWork work) {
  const SandboxId id = sandbox->record.id;
  std::shared_ptr<Route> route;
  if (memory) {
    {
      std::lock_guard lock(mutex_);
      route = std::exchange(sandbox->route, nullptr);
    }
    auto announcing = announce_pause(id);
    co_await std::move(announcing);
    if (route) route->die();
    auto leaving = let_go(sandbox, route);
    co_await std::move(leaving);
  }
  const auto began = std::chrono::steady_clock::now();
  auto freezing = guarded(runtime_.freeze(id));
  auto done = co_await std::move(freezing);
  if (done.ok()) {
    auto working =
        memory ? try_twice<void>(sandbox, std::move(route), std::move(work)) : guarded(work());
    done = co_await std::move(working);
  } else {
    done = std::move(done).error().with("freeze sandbox " + id.str());
  }
  auto thawing = thaw_surely(id);
  auto thawed = co_await std::move(thawing);
  const auto took = std::chrono::duration_cast<std::chrono::microseconds>(
      std::chrono::steady_clock::now() - began);
  const bool runs = thawed.ok();
  if (!runs && done.ok()) done = start_failure(std::move(thawed).error().with("thaw it again"));
  finish_still(sandbox, transition, done, runs);
  if (!done.ok()) co_return std::move(done).error();
  co_return took;
}

net::Task<Result<void>> Engine::thaw_surely(SandboxId id) {
  asio::steady_timer timer(co_await asio::this_coro::executor);
  for (int attempt = 1;; ++attempt) {
    auto thawing = guarded(runtime_.thaw(id));
    auto thawed = co_await std::move(thawing);
    if (thawed.ok() || attempt == kThawTries) co_return thawed;
    timer.expires_after(kThawRetry * attempt);
    co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
  }
}

void Engine::finish_still(const SandboxPtr& sandbox, const TransitionPtr& transition,
                          const Result<void>& done, bool thawed) {
  std::unique_lock lock(mutex_);
  store::SandboxRecord& record = sandbox->record;
  if (!done.ok()) transition->failure = done.error();
  if (record.state != SandboxState::snapshotting) {  // killed meanwhile
    if (!transition->failure) transition->failure = no_such_sandbox(record.id);
  } else if (thawed) {
    set_state_locked(*sandbox, Event::snapshotted);
    save_locked(*sandbox);
    if (sandbox->abandoned) {
      note(*sandbox, store::LogLevel::error, "the agent of the sandbox ended");
      begin_kill_locked(sandbox, KillReason::died, {record.team_id, "runtime", {}});
    } else {
      go_live_locked(*sandbox);
      warm_again_locked(*sandbox);
    }
  } else {
    log::error("a sandbox was not thawed; it is paused now", {{"sandbox", record.id.str()}});
    note(*sandbox, store::LogLevel::error, "the sandbox could not be thawed; it is paused");
    record.end_at = cut_to_micros(options_.clock());
    record.memory_kept = true;
    record.memory_tier = store::MemoryTier::frozen;
    set_state_locked(*sandbox, Event::paused);
    save_locked(*sandbox);
  }
  lock.unlock();
  transition->done.set();
}

net::Task<void> Engine::announce_pause(SandboxId id) {
  auto dialling = guarded(dial_agent(id));
  auto stream = co_await std::move(dialling);
  if (!stream.ok()) co_return;
  auto telling = guarded(announce_suspend(std::move(*stream), kAnnounce));
  (void)co_await std::move(telling);
}

net::Task<void> Engine::wait_for_leaving(SandboxPtr sandbox, std::shared_ptr<Route> route) {
  asio::steady_timer timer(co_await asio::this_coro::executor);
  const auto until = std::chrono::steady_clock::now() + kLeave;
  const auto busy = [&] {
    if (route && route->inside() > 0) return true;
    std::lock_guard lock(mutex_);
    return sandbox->pulling || sandbox->talks > 0 ||
           (sandbox->warming && !sandbox->warming->is_set()) ||
           (sandbox->network_change && !sandbox->network_change->done.is_set());
  };
  auto step = kLeaveStep;
  while (busy() && std::chrono::steady_clock::now() < until) {
    timer.expires_after(step);
    step = std::min(step * 2, kLongestLeaveStep);
    co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
  }
}

net::Task<void> Engine::let_go(SandboxPtr sandbox, std::shared_ptr<Route> route) {
  const SandboxId id = sandbox->record.id;
  auto waiting = wait_for_leaving(sandbox, std::move(route));
  co_await std::move(waiting);
  auto dialling = guarded(dial_agent(id));
  auto stream = co_await std::move(dialling);
  Result<void> told;
  if (stream.ok()) {
    auto telling = guarded(send_suspend(std::move(*stream), kSuspend));
    told = co_await std::move(telling);
  } else {
    told = std::move(stream).error();
  }
  if (!told.ok()) {
    log::warn("an agent did not let go of its connections",
              {{"sandbox", id.str()}, {"error", told.error().message}});
  }
  std::lock_guard lock(mutex_);
  sandbox->let_go = told.ok();
}

net::Task<Result<void>> Engine::let_go_frozen(SandboxPtr sandbox, std::shared_ptr<Route> route) {
  const SandboxId id = sandbox->record.id;
  auto thawing = guarded(runtime_.thaw(id));
  auto thawed = co_await std::move(thawing);
  if (thawed.ok()) {
    auto announcing = announce_pause(id);
    co_await std::move(announcing);
    if (route) route->hold();
    auto leaving = let_go(sandbox, std::move(route));
    co_await std::move(leaving);
  }
  auto freezing = freeze_surely(id);  // whatever came of the thaw
  auto frozen = co_await std::move(freezing);
  if (!frozen.ok()) {
    std::lock_guard lock(mutex_);
    sandbox->let_go = false;  // so that a later dump freezes it
    co_return frozen;
  }
  co_return thawed;
}

net::Task<Result<bool>> Engine::let_go_again(SandboxPtr sandbox, std::shared_ptr<Route> route,
                                             Error refusal) {
  const bool of_tree = refusal.code == Errc::failed_precondition || refusal.code == Errc::internal;
  {
    std::lock_guard lock(mutex_);
    if (!is_outside(refusal) && (sandbox->let_go || !of_tree)) co_return false;
  }
  log::info("the agent of a sandbox is told once more to let go",
            {{"sandbox", sandbox->record.id.str()}, {"error", refusal.message}});
  auto leaving = let_go_frozen(std::move(sandbox), std::move(route));
  ATOLL_CO_TRY(co_await std::move(leaving));
  co_return true;
}

// Kernels are started cold until it is there.
void Engine::warm_again_locked(Sandbox& sandbox) {
  if (std::exchange(sandbox.let_go, false))
    sandbox.warming = pool_.warm(sandbox.record.id, sandbox.record.template_dir);
}

}  // namespace atl::engine
