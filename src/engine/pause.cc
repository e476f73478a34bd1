// Pause: state pausing with what shall be kept (row updated), unrouted -> with memory: the agent
// lets go of its connections, frozen, memory to files (dump.cc); without: ended with the disk at
// rest -> paused (row updated): its end is now, no timer runs. A tree that cannot be dumped stays
// frozen. When the runtime cannot freeze or end it, or has no space, the sandbox goes on running
// and the client is told; at the end of a timeout there is nobody to tell, and without space it
// stays frozen.
//
// Connections of clients break, except those to a sandbox that keeps its memory and that traffic
// wakes: they stand still until it runs again. An SDK whose stream breaks asks for the sandbox's
// health, and that question would wake it at once.
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <cerrno>

#include "base/log.h"
#include "engine/sandbox.h"

namespace atl::engine {
namespace {

namespace asio = net::asio;

constexpr int kKillTries = 4;
constexpr std::chrono::milliseconds kKillRetry{100};
constexpr std::chrono::seconds kExpiryRetry{5};  // after an auto-pause that failed

Error no_space_to_pause(const SandboxId& id) {
  return Error{
      Errc::resource_exhausted, ENOSPC,
      "There is not enough disk space to pause sandbox \"" + id.str() + "\"; it goes on running"};
}

}  // namespace

net::Task<Result<void>> Engine::pause(Caller caller, SandboxId id, bool keep_memory) {
  TransitionPtr wait_on;
  do {
    {
      std::lock_guard lock(mutex_);
      ATOLL_CO_TRY_ASSIGN(const SandboxPtr sandbox, find_locked(caller, id));
      switch (sandbox->record.state) {
        case SandboxState::running: {
          ATOLL_CO_TRY_ASSIGN(wait_on, begin_pause_locked(sandbox, keep_memory, caller));
          break;
        }
        case SandboxState::pausing:  // two pauses at once are one
        case SandboxState::snapshotting:
          wait_on = sandbox->transition;
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
    auto wait = wait_for(wait_on, options_.transition_deadline,
                         "the sandbox is still being paused; look again in a moment");
    auto done = co_await std::move(wait);
    if (wait_on->kind == Transition::Kind::pause || !wait_on->done.is_set()) co_return done;
  } while (true);
}

Result<Engine::TransitionPtr> Engine::begin_pause_locked(const SandboxPtr& sandbox,
                                                         bool keep_memory, const Caller& by) {
  if (stopping_) return make_error(Errc::unavailable, "the server is shutting down");
  // The intent is in the store before anything happens to the sandbox.
  store::SandboxRecord intent = sandbox->record;
  ATOLL_TRY_ASSIGN(intent.state, next_state(intent.state, Event::pause));
  intent.memory_kept = keep_memory;
  intent.memory_tier = store::MemoryTier::none;
  intent.memory_reason.clear();
  intent.memory_bytes = 0;
  if (auto stored = store_.update_sandbox(intent); !stored.ok())
    return start_failure(std::move(stored).error());
  sandbox->record = std::move(intent);
  go_dark_locked(*sandbox);
  const auto pause = std::make_shared<Transition>(Transition::Kind::pause);
  sandbox->transition = pause;
  audit(by, "sandbox.pause", sandbox->record.id, keep_memory ? "memory" : "disk only");
  // Tasks are closed only after `stopping_` is set.
  tasks_.spawn("pause", run_pause(sandbox, pause));
  return pause;
}

net::Task<void> Engine::run_pause(SandboxPtr sandbox, TransitionPtr pause) {
  auto resting = guarded(put_to_rest(sandbox, pause));
  auto done = co_await std::move(resting);
  const bool at_rest = done.ok() && done->tier != store::MemoryTier::frozen;
  if (at_rest) clear_address(*sandbox);
  finish_pause(sandbox, pause, std::move(done));
  if (at_rest) {
    auto syncing = make_durable();
    co_await std::move(syncing);
  }
  pause->done.set();
}

net::Task<Result<Engine::Rested>> Engine::put_to_rest(SandboxPtr sandbox, TransitionPtr pause) {
  const SandboxId id = sandbox->record.id;
  std::shared_ptr<Route> route;
  bool keep_memory = true;
  bool stands = true;  // connections of clients stand still
  bool dump = true;    // at once
  Rested frozen_only;
  {
    std::lock_guard lock(mutex_);
    keep_memory = sandbox->record.memory_kept;
    stands = keep_memory && sandbox->record.auto_resume;
    dump = keep_memory && memory_.durable && options_.keep_frozen.count() == 0;
    route = stands ? sandbox->route : std::exchange(sandbox->route, nullptr);
    frozen_only.tier = store::MemoryTier::frozen;
    frozen_only.reason = memory_.durable ? std::string() : memory_.reason;
    if (memory_.durable) frozen_only.again = options_.keep_frozen;
    sandbox->let_go = false;
    sandbox->frozen_bytes = 0;
    sandbox->dump_failures = 0;
  }
  if (keep_memory && (dump || !stands)) {
    auto announcing = announce_pause(id);
    co_await std::move(announcing);
  }
  if (route && !stands) route->die();
  if (route && stands && dump) route->hold();
  if (!keep_memory) {
    auto stopping = stop_for_good(sandbox);
    ATOLL_CO_TRY(co_await std::move(stopping));
    co_return Rested{};
  }
  auto leaving =
      dump ? let_go(sandbox, route) : wait_for_leaving(sandbox, stands ? nullptr : route);
  co_await std::move(leaving);
  auto freezing = guarded(runtime_.freeze(id));
  auto frozen = co_await std::move(freezing);
  if (!frozen.ok()) {
    auto thawing = guarded(runtime_.thaw(id));  // in case it was half-way
    (void)co_await std::move(thawing);
    co_return std::move(frozen).error().with("freeze sandbox " + id.str());
  }
  if (dump) {
    auto dumping = dump_in_turn(sandbox, pause, route);
    auto written = co_await std::move(dumping);
    if (!written.ok() && is_no_space(written.error()) && !pause->by_timer) {
      auto thawing = thaw_surely(id);
      if ((co_await std::move(thawing)).ok()) co_return no_space_to_pause(id);
    }
    frozen_only = rested(std::move(written));
    if (frozen_only.tier == store::MemoryTier::dumped) co_return frozen_only;
  }
  auto asking = guarded(runtime_.usage(id));
  if (auto usage = co_await std::move(asking); usage.ok()) frozen_only.bytes = usage->memory_bytes;
  co_return frozen_only;
}

// Without memory.
net::Task<Result<void>> Engine::stop_for_good(SandboxPtr sandbox) {
  const SandboxId id = sandbox->record.id;
  auto pulling = pull_logs(sandbox);  // what its agent knows goes with it
  co_await std::move(pulling);
  auto settling = let_nursery_arrive(sandbox);
  co_await std::move(settling);
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
                          Result<Rested> done) {
  std::lock_guard lock(mutex_);
  store::SandboxRecord& record = sandbox->record;
  if (record.state != SandboxState::pausing) {  // killed meanwhile
    pause->failure = no_such_sandbox(record.id);
  } else if (done.ok()) {
    record.end_at = cut_to_micros(options_.clock());
    set_state_locked(*sandbox, Event::paused);
    // Its agent may have ended meanwhile: then only its disk is left.
    const bool memory = record.memory_kept || done->tier == store::MemoryTier::dumped;
    set_rest_locked(*sandbox, memory ? *done : Rested{});
    save_locked(*sandbox);
    ++counts_.paused_total;
    const std::string kept =
        record.memory_kept ? std::string(store::to_string(record.memory_tier)) : "disk only";
    log::info("sandbox paused", {{"sandbox", record.id.str()}, {"kept", kept}});
    StringMap fields = {{"kept", kept}};
    if (!record.memory_reason.empty()) fields.emplace("reason", record.memory_reason);
    note(*sandbox, store::LogLevel::info, "sandbox paused", std::move(fields));
  } else {
    log::error("a sandbox was not paused; it goes on running",
               {{"sandbox", record.id.str()}, {"error", done.error().message}});
    note(*sandbox, store::LogLevel::error, "sandbox not paused");
    set_state_locked(*sandbox, Event::pause_failed);
    save_locked(*sandbox);
    go_live_locked(*sandbox);
    warm_again_locked(*sandbox);
    if (const Timestamp next = options_.clock() + kExpiryRetry; record.end_at < next)
      expiry_.set(record.id, next);
    pause->failure = is_no_space(done.error()) ? std::move(done).error()
                                               : start_failure(std::move(done).error());
  }
}

}  // namespace atl::engine
