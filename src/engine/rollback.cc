// Rollback: a running sandbox is paused with its memory in files (state pausing) -> the runtime
// puts it aside and makes one from the snapshot in its place (state resuming) -> running, with the
// same id, token and end. Whatever fails before the new one runs: it goes on from those files where
// it was.
#include "base/log.h"
#include "engine/sandbox.h"

namespace atl::engine {
namespace {

constexpr std::chrono::seconds kExpiryGrace{5};  // its end may have passed meanwhile

}  // namespace

net::Task<Result<SandboxInfo>> Engine::rollback(Caller caller, SandboxId id,
                                                std::string reference) {
  {
    std::lock_guard lock(mutex_);
    ATOLL_CO_TRY(find_locked(caller, id));
  }
  ATOLL_CO_TRY_ASSIGN(const store::SnapshotRecord snapshot, find_snapshot(caller, reference));
  auto entering = gate_.enter(options_.queue_deadline);
  auto pass = co_await std::move(entering);
  if (!pass.ok()) {
    co_return is_transient(pass.error())
        ? make_error(Errc::unavailable, "the server is busy; nothing was rolled back")
        : std::move(pass).error();
  }
  SandboxPtr sandbox;
  TransitionPtr rolling;
  {
    std::lock_guard lock(mutex_);
    ATOLL_CO_TRY_ASSIGN(sandbox, find_locked(caller, id));
    ATOLL_CO_TRY_ASSIGN(rolling, begin_rollback_locked(sandbox, snapshot, caller));
    // Tasks are closed only after `stopping_` is set.
    tasks_.spawn("rollback", run_rollback(sandbox, rolling, snapshot, std::move(*pass)));
  }
  auto wait = wait_for(rolling, 2 * options_.transition_deadline,
                       "the sandbox is still being rolled back; look again in a moment");
  ATOLL_CO_TRY(co_await std::move(wait));
  std::lock_guard lock(mutex_);
  co_return describe(sandbox->record);
}

Result<Engine::TransitionPtr> Engine::begin_rollback_locked(const SandboxPtr& sandbox,
                                                            const store::SnapshotRecord& snapshot,
                                                            const Caller& by) {
  if (stopping_) return make_error(Errc::unavailable, "the server is shutting down");
  const store::SandboxRecord& record = sandbox->record;
  const std::string name = "Sandbox \"" + record.id.str() + "\"";
  if (record.state == SandboxState::paused) {
    return make_error(Errc::failed_precondition,
                      name + " is paused and cannot be rolled back; resume it first");
  }
  if (record.state != SandboxState::running) {
    return make_error(Errc::failed_precondition,
                      name + " is in another transition; try again in a moment");
  }
  const auto* there = snapshots_.find(snapshot.id);
  if (there == nullptr || there->state != store::SnapshotState::ready)
    return make_error(Errc::not_found, "template '" + public_id(snapshot) + "' not found");
  if (snapshot.template_dir != record.template_dir || snapshot.template_build != record.build_id) {
    return make_error(Errc::failed_precondition,
                      "the snapshot was made of another template than " + name + " has");
  }
  // The intent is in the store before anything happens to the sandbox.
  store::SandboxRecord intent = record;
  ATOLL_TRY_ASSIGN(intent.state, next_state(intent.state, Event::pause));
  intent.memory_kept = true;
  intent.rollback_id = snapshot.id;
  if (auto stored = store_.update_sandbox(intent); !stored.ok())
    return start_failure(std::move(stored).error());
  sandbox->record = std::move(intent);
  go_dark_locked(*sandbox);
  const auto rolling = std::make_shared<Transition>(Transition::Kind::rollback);
  sandbox->transition = rolling;
  audit(by, "sandbox.rollback", sandbox->record.id, public_id(snapshot));
  return rolling;
}

net::Task<void> Engine::run_rollback(SandboxPtr sandbox, TransitionPtr rolling,
                                     store::SnapshotRecord snapshot, Gate::Pass pass) {
  auto writing = guarded(write_aside(sandbox));
  auto aside = co_await std::move(writing);
  if (!aside.ok()) {
    finish_rollback(sandbox, rolling, Event::pause_failed, snapshot_failure(aside.error()));
    co_return;
  }
  std::unique_lock lock(mutex_);
  if (sandbox->record.state != SandboxState::pausing) {  // killed meanwhile
    rolling->failure = no_such_sandbox(sandbox->record.id);
    lock.unlock();
    rolling->done.set();
    co_return;
  }
  set_state_locked(*sandbox, Event::paused);
  set_state_locked(*sandbox, Event::resume);
  save_locked(*sandbox);
  store::SandboxRecord next = sandbox->record;
  lock.unlock();
  next.snapshot_id = snapshot.id;
  next.boot_id = snapshot.memory ? snapshot.boot_id : random_uuid4();
  auto restoring = guarded(restore(sandbox, next, Replace::yes));
  auto restored = co_await std::move(restoring);
  if (restored.ok()) {
    lock.lock();
    sandbox->record.snapshot_id = next.snapshot_id;
    sandbox->record.boot_id = next.boot_id;
    sandbox->agent_seq = snapshot.memory ? snapshot.agent_seq : 0;
    sandbox->agent_has_logs = true;
    lock.unlock();
    finish_rollback(sandbox, rolling, Event::resumed, std::nullopt);
    co_return;
  }
  Error failure = restore_failure(std::move(restored).error());
  auto returning = guarded(take_back(sandbox));
  auto returned = co_await std::move(returning);
  if (returned.ok()) {
    finish_rollback(sandbox, rolling, Event::resumed, std::move(failure));
    co_return;
  }
  log::error("a sandbox was neither rolled back nor resumed",
             {{"sandbox", next.id.str()}, {"error", returned.error().message}});
  finish_rollback(sandbox, rolling, Event::resume_failed, std::move(failure));
}

// Its memory in files, its processes ended. On failure it runs on.
net::Task<Result<void>> Engine::write_aside(SandboxPtr sandbox) {
  const SandboxId id = sandbox->record.id;
  auto announcing = announce_pause(id);
  co_await std::move(announcing);
  std::shared_ptr<Route> route;
  {
    std::lock_guard lock(mutex_);
    route = std::exchange(sandbox->route, nullptr);
  }
  if (route) route->die();
  auto leaving = let_go(sandbox, route);
  co_await std::move(leaving);
  auto freezing = guarded(runtime_.freeze(id));
  auto done = co_await std::move(freezing);
  if (done.ok()) {
    auto dumping = try_twice<runtime::Written>(sandbox, route, [this, id] { return ask_dump(id); });
    auto dumped = co_await std::move(dumping);
    if (dumped.ok()) {
      clear_address(*sandbox);
      std::lock_guard lock(mutex_);
      sandbox->record.memory_tier = store::MemoryTier::dumped;
      sandbox->record.memory_bytes = dumped->memory_bytes;
      co_return Result<void>();
    }
    done = std::move(dumped).error();
  }
  auto thawing = guarded(thaw_surely(id));
  if (auto thawed = co_await std::move(thawing); !thawed.ok()) {
    log::error("a sandbox was not thawed",
               {{"sandbox", id.str()}, {"error", thawed.error().message}});
  }
  co_return done;
}

// Back from the files that `write_aside` wrote. If they are gone the snapshot's sandbox had begun
// to run: its disk is what is left.
net::Task<Result<void>> Engine::take_back(SandboxPtr sandbox) {
  std::unique_lock lock(mutex_);
  const store::SandboxRecord record = sandbox->record;
  lock.unlock();
  clear_address(*sandbox);
  runtime::SandboxSpec spec = spec_of(*sandbox, record);
  spec.disk = runtime::Disk::kept;
  spec.memory = runtime::Memory::kept;
  auto making = guarded(runtime_.create(std::move(spec)));
  auto created = co_await std::move(making);
  Result<void> done;
  if (created.ok()) {
    set_address(*sandbox, created->address);
    auto waking = guarded(wake_agent(record, false, options_.create_deadline));
    done = co_await std::move(waking);
    if (done.ok()) co_return done;
  } else {
    done = std::move(created).error();
    auto looking = lost_memory(sandbox);
    if (co_await std::move(looking)) co_return done;
    if (done.error().code != Errc::not_found && done.error().code != Errc::failed_precondition)
      co_return done;  // the files are there for the next resume
  }
  auto stopping = guarded(runtime_.kill(record.id));
  (void)co_await std::move(stopping);
  clear_address(*sandbox);
  lock.lock();
  sandbox->record.memory_kept = false;
  sandbox->record.memory_tier = store::MemoryTier::none;
  co_return done;
}

void Engine::finish_rollback(const SandboxPtr& sandbox, const TransitionPtr& rolling, Event event,
                             std::optional<Error> failure) {
  std::unique_lock lock(mutex_);
  store::SandboxRecord& record = sandbox->record;
  ++(failure ? counts_.rollback_failures : counts_.rollbacks_total);
  const std::string_view said = failure ? "sandbox not rolled back" : "sandbox rolled back";
  if (record.state != SandboxState::pausing && record.state != SandboxState::resuming) {
    failure = no_such_sandbox(record.id);  // killed meanwhile
  } else {
    set_state_locked(*sandbox, event);
    if (event == Event::resume_failed) {
      record.end_at = cut_to_micros(options_.clock());
    } else {
      record.memory_tier = store::MemoryTier::none;
      record.memory_bytes = 0;
      record.rollback_id.clear();
      sandbox->last_cpu.reset();
    }
    save_locked(*sandbox);
    if (event != Event::resume_failed) {
      go_live_locked(*sandbox);
      warm_again_locked(*sandbox);
      if (const Timestamp soon = options_.clock() + kExpiryGrace; record.end_at < soon)
        expiry_.set(record.id, soon);
    }
    log::info(said, {{"sandbox", record.id.str()}, {"snapshot", record.snapshot_id}});
    note(*sandbox, failure ? store::LogLevel::error : store::LogLevel::info, std::string(said));
  }
  rolling->failure = std::move(failure);
  lock.unlock();
  rolling->done.set();
  collect_later();
}

}  // namespace atl::engine
