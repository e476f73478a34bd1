// Pause: state pausing with what shall be kept (row updated), unrouted -> connections of clients
// break -> frozen, or ended with the disk at rest -> paused (row updated): its end is now, no timer
// runs. When the runtime cannot do it the sandbox goes on running and the client is told.
//
// Connections to a sandbox that keeps its memory and that traffic wakes are not broken: they stand
// still and go on after the resume. An SDK whose stream breaks asks for the sandbox's health, and
// that question would wake it at once.
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>

#include "base/log.h"
#include "engine/sandbox.h"

namespace atl::engine {
namespace {

namespace asio = net::asio;

constexpr int kKillTries = 4;
constexpr std::chrono::milliseconds kKillRetry{100};
constexpr std::chrono::seconds kExpiryRetry{5};  // after an auto-pause that failed

}  // namespace

net::Task<Result<void>> Engine::pause(Caller caller, SandboxId id, bool keep_memory) {
  TransitionPtr pausing;
  {
    std::lock_guard lock(mutex_);
    ATOLL_CO_TRY_ASSIGN(const SandboxPtr sandbox, find_locked(caller, id));
    switch (sandbox->record.state) {
      case SandboxState::running: {
        ATOLL_CO_TRY_ASSIGN(pausing, begin_pause_locked(sandbox, keep_memory, caller));
        break;
      }
      case SandboxState::pausing:
        pausing = sandbox->transition;  // two pauses at once are one
        break;
      case SandboxState::paused:
        co_return make_error(Errc::failed_precondition, "Error pausing sandbox - sandbox '" +
                                                            id.str() + "' is already paused");
      default:
        co_return make_error(Errc::failed_precondition,
                             "Error pausing sandbox - sandbox '" + id.str() +
                                 "' is being resumed; try again in a moment");
    }
  }
  auto wait = wait_for(pausing, options_.transition_deadline,
                       "the sandbox is still being paused; look again in a moment");
  co_return co_await std::move(wait);
}

Result<Engine::TransitionPtr> Engine::begin_pause_locked(const SandboxPtr& sandbox,
                                                         bool keep_memory, const Caller& by) {
  if (stopping_) return make_error(Errc::unavailable, "the server is shutting down");
  // The intent is in the store before anything happens to the sandbox.
  store::SandboxRecord intent = sandbox->record;
  ATOLL_TRY_ASSIGN(intent.state, next_state(intent.state, Event::pause));
  intent.memory_kept = keep_memory;
  if (auto stored = store_.update_sandbox(intent); !stored.ok())
    return start_failure(std::move(stored).error());
  sandbox->record.memory_kept = keep_memory;
  set_state_locked(*sandbox, Event::pause);
  go_dark_locked(*sandbox);
  const auto pause = std::make_shared<Transition>(Transition::Kind::pause);
  sandbox->transition = pause;
  audit(by, "sandbox.pause", sandbox->record.id, keep_memory ? "memory" : "disk only");
  // Tasks are closed only after `stopping_` is set.
  tasks_.spawn("pause", run_pause(sandbox, pause));
  return pause;
}

net::Task<void> Engine::run_pause(SandboxPtr sandbox, TransitionPtr pause) {
  std::shared_ptr<Route> route;
  bool keep_memory = true;
  {
    std::lock_guard lock(mutex_);
    keep_memory = sandbox->record.memory_kept;
    if (!keep_memory || !sandbox->record.auto_resume)
      route = std::exchange(sandbox->route, nullptr);
  }
  if (route) route->die();
  auto resting = guarded(put_to_rest(sandbox, keep_memory));
  auto done = co_await std::move(resting);
  if (done.ok() && !keep_memory) clear_address(*sandbox);
  finish_pause(sandbox, pause, std::move(done));
}

net::Task<Result<void>> Engine::put_to_rest(SandboxPtr sandbox, bool keep_memory) {
  const SandboxId id = sandbox->record.id;
  if (keep_memory) {
    auto freezing = runtime_.freeze(id);
    auto frozen = co_await std::move(freezing);
    if (frozen.ok()) co_return Result<void>();
    auto thawing = runtime_.thaw(id);  // in case it was half-way
    (void)co_await std::move(thawing);
    co_return std::move(frozen).error().with("freeze sandbox " + id.str());
  }
  auto pulling = pull_logs(sandbox);  // what its agent knows goes with it
  co_await std::move(pulling);
  asio::steady_timer timer(co_await asio::this_coro::executor);
  for (int attempt = 1;; ++attempt) {
    auto killing = runtime_.kill(id);
    auto killed = co_await std::move(killing);
    if (killed.ok()) co_return Result<void>();
    // An agent that still answers runs on. Otherwise it is neither running nor at rest: try again.
    bool alive = killed.error().code == Errc::unimplemented || attempt == kKillTries;
    if (!alive) {
      auto asking = check_agent(id);
      alive = (co_await std::move(asking)).ok();
    }
    if (alive) co_return std::move(killed).error().with("stop sandbox " + id.str());
    timer.expires_after(kKillRetry * attempt);
    co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
  }
}

void Engine::finish_pause(const SandboxPtr& sandbox, const TransitionPtr& pause,
                          Result<void> done) {
  std::unique_lock lock(mutex_);
  store::SandboxRecord& record = sandbox->record;
  if (record.state != SandboxState::pausing) {  // killed meanwhile
    pause->failure = no_such_sandbox(record.id);
  } else if (done.ok()) {
    record.end_at = cut_to_micros(options_.clock());
    set_state_locked(*sandbox, Event::paused);
    save_locked(*sandbox);
    ++counts_.paused_total;
    const std::string kept = record.memory_kept ? "memory" : "disk only";
    log::info("sandbox paused", {{"sandbox", record.id.str()}, {"kept", kept}});
    note(*sandbox, store::LogLevel::info, "sandbox paused", {{"kept", kept}});
  } else {
    log::error("a sandbox was not paused; it goes on running",
               {{"sandbox", record.id.str()}, {"error", done.error().message}});
    note(*sandbox, store::LogLevel::error, "sandbox not paused");
    set_state_locked(*sandbox, Event::pause_failed);
    save_locked(*sandbox);
    go_live_locked(*sandbox);
    if (const Timestamp next = options_.clock() + kExpiryRetry; record.end_at < next)
      expiry_.set(record.id, next);
    pause->failure = start_failure(std::move(done).error());
  }
  lock.unlock();
  pause->done.set();
}

}  // namespace atl::engine
