// Resume: state resuming with its way and its new end (row updated) -> thawed and asked for its
// health, or its memory read from files and its agent told, or booted again from its disk ->
// running: a new start, a new end, routed again. When that fails it is paused as before; a cold
// boot that was begun, and a restore that failed after it had used up the files, have lost the
// memory, never the disk. Who wants a sandbox whose memory is being written to files cancels that
// first.
#include "base/log.h"
#include "engine/sandbox.h"

namespace atl::engine {
namespace {

constexpr std::chrono::seconds kLeastWakeTimeout{300};
constexpr int kConnectRounds = 8;  // three pauses that end, and the resumes between them
constexpr std::string_view kStillChanging =
    "The sandbox is still transitioning. Try again in a moment.";
constexpr std::string_view kMemoryLost =
    "the memory of the sandbox is lost; the next resume boots it from its disk";

Error being_killed(const SandboxId& id) {
  return make_error(Errc::failed_precondition, "Sandbox \"" + id.str() + "\" is being killed");
}

}  // namespace

net::Task<Result<Connected>> Engine::connect(Caller caller, SandboxId id,
                                             std::chrono::seconds timeout, Revive revive) {
  ATOLL_CO_TRY(check_timeout(timeout));
  bool resumed = false;
  for (int round = 0; round < kConnectRounds; ++round) {
    TransitionPtr wait_on;
    {
      std::lock_guard lock(mutex_);
      const auto found = sandboxes_.find(id);
      if (found != sandboxes_.end() && found->second->record.team_id == caller.team_id &&
          found->second->record.state == SandboxState::killing) {
        co_return being_killed(id);
      }
      ATOLL_CO_TRY_ASSIGN(const SandboxPtr sandbox, find_locked(caller, id));
      const store::SandboxRecord& record = sandbox->record;
      if (record.state == SandboxState::running) {
        const Timestamp last = record.started_at + options_.max_timeout;
        const Timestamp end = std::min(options_.clock() + timeout, last);
        if (end > record.end_at) {
          ATOLL_CO_TRY(move_end_locked(*sandbox, end));
          audit(caller, "sandbox.timeout", id, to_rfc3339(end));
        }
        co_return Connected{describe(record), resumed};
      }
      if (record.state == SandboxState::resuming && revive == Revive::cold) {
        co_return make_error(Errc::failed_precondition,
                             "Sandbox \"" + id.str() + "\" is being resumed already");
      }
      if (record.state == SandboxState::paused && !busy_locked(*sandbox)) {
        const ResumePlan plan{timeout, revive == Revive::cold, std::nullopt};
        ATOLL_CO_TRY_ASSIGN(wait_on, begin_resume_locked(sandbox, plan, caller));
      } else {
        cancel_dump_locked(sandbox);
        wait_on = sandbox->transition;
      }
    }
    auto wait = wait_for(wait_on, options_.transition_deadline, kStillChanging);
    auto done = co_await std::move(wait);
    if (wait_on->kind == Transition::Kind::resume) {
      if (!done.ok()) co_return std::move(done).error();
      resumed = true;
    } else if (!wait_on->done.is_set()) {
      co_return make_error(Errc::failed_precondition, std::string(kStillChanging));
    }
  }
  co_return make_error(Errc::failed_precondition, std::string(kStillChanging));
}

net::Task<Result<SandboxInfo>> Engine::resume(ResumeCommand command) {
  ATOLL_CO_TRY(check_timeout(command.timeout));
  TransitionPtr wait_on;
  SandboxPtr sandbox;
  for (int round = 0; round < kConnectRounds; ++round) {
    {
      std::lock_guard lock(mutex_);
      ATOLL_CO_TRY_ASSIGN(sandbox, find_locked(command.caller, command.id));
      switch (sandbox->record.state) {
        case SandboxState::paused:
          break;
        case SandboxState::pausing:
          co_return make_error(
              Errc::failed_precondition,
              "Sandbox " + command.id.str() + " is being paused; try again in a moment");
        default:
          co_return make_error(Errc::failed_precondition,
                               "Sandbox " + command.id.str() + " is already running");
      }
      wait_on = busy_locked(*sandbox);
      if (wait_on) {
        cancel_dump_locked(sandbox);
      } else {
        const ResumePlan plan{command.timeout, command.revive == Revive::cold, command.auto_pause};
        ATOLL_CO_TRY_ASSIGN(wait_on, begin_resume_locked(sandbox, plan, command.caller));
      }
    }
    auto wait = wait_for(wait_on, options_.transition_deadline, kStillChanging);
    auto done = co_await std::move(wait);
    if (wait_on->kind == Transition::Kind::resume || !wait_on->done.is_set()) {
      ATOLL_CO_TRY(std::move(done));
      std::lock_guard lock(mutex_);
      co_return describe(sandbox->record);
    }
  }
  co_return make_error(Errc::failed_precondition, std::string(kStillChanging));
}

Engine::TransitionPtr Engine::busy_locked(const Sandbox& sandbox) {
  return sandbox.transition && !sandbox.transition->done.is_set() ? sandbox.transition : nullptr;
}

net::Task<Result<std::shared_ptr<Route>>> Engine::wake(WakeRequest request) {
  const auto until = std::chrono::steady_clock::now() + options_.transition_deadline;
  for (;;) {
    TransitionPtr wait_on;
    {
      std::lock_guard lock(mutex_);
      const auto found = sandboxes_.find(request.id);
      if (found == sandboxes_.end() || !is_visible(found->second->record.state))
        co_return no_such_sandbox(request.id);
      const SandboxPtr& sandbox = found->second;
      const store::SandboxRecord& record = sandbox->record;
      if (record.state == SandboxState::running) co_return sandbox->route;
      if (record.state == SandboxState::pausing || record.state == SandboxState::paused) {
        ATOLL_CO_TRY(may_wake_locked(*sandbox, request));
      }
      if (record.state == SandboxState::paused && !busy_locked(*sandbox)) {
        const auto timeout =
            std::min(std::max(record.timeout, kLeastWakeTimeout), options_.max_timeout);
        ATOLL_CO_TRY_ASSIGN(wait_on,
                            begin_resume_locked(sandbox, {timeout, false, std::nullopt},
                                                {record.team_id, "traffic", request.peer}));
      } else {
        cancel_dump_locked(sandbox);
        wait_on = sandbox->transition;
      }
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        until - std::chrono::steady_clock::now());
    auto wait = wait_for(wait_on, std::max(left, std::chrono::milliseconds(1)), kStillChanging);
    auto done = co_await std::move(wait);
    if (!wait_on->done.is_set())
      co_return make_error(Errc::deadline_exceeded, std::string(kStillChanging));
    if (wait_on->kind == Transition::Kind::resume && !done.ok()) co_return std::move(done).error();
  }
}

// Who may wake it: whoever could reach what the request is for. Without memory there is nothing to
// wake.
Result<void> Engine::may_wake_locked(const Sandbox& sandbox, const WakeRequest& request) const {
  const store::SandboxRecord& record = sandbox.record;
  if (!record.auto_resume || !record.memory_kept) return no_such_sandbox(record.id);
  const auto refuse = [] {
    return make_error(Errc::permission_denied,
                      "This sandbox can't be resumed with the credentials provided. Check your "
                      "access token and try again.");
  };
  if (request.agent_port) {
    if (record.secure &&
        !constant_time_equal(request.access_token, tokens_.access_token(record.id)))
      return refuse();
  } else if (!record.allow_public_traffic &&
             !constant_time_equal(request.traffic_token, tokens_.traffic_token(record.id))) {
    return refuse();
  }
  return {};
}

Result<Engine::TransitionPtr> Engine::begin_resume_locked(const SandboxPtr& sandbox,
                                                          ResumePlan plan, const Caller& by) {
  if (stopping_) return make_error(Errc::unavailable, "the server is shutting down");
  if (auto fits = check_limits_locked(sandbox->record.team_id, sandbox->record.key_id);
      !fits.ok()) {
    ++counts_.refused;
    return std::move(fits).error();
  }
  plan.cold = plan.cold || !sandbox->record.memory_kept;
  plan.paused_at = sandbox->record.end_at;
  // The intent is in the store before anything happens to the sandbox.
  store::SandboxRecord intent = sandbox->record;
  ATOLL_TRY_ASSIGN(intent.state, next_state(intent.state, Event::resume));
  intent.memory_kept = !plan.cold;
  if (plan.auto_pause) intent.auto_pause = *plan.auto_pause;
  intent.end_at = cut_to_micros(options_.clock()) + plan.timeout;
  if (auto stored = store_.update_sandbox(intent); !stored.ok())
    return start_failure(std::move(stored).error());
  plan.memory_there = sandbox->record.memory_kept;
  plan.tier = plan.memory_there ? sandbox->record.memory_tier : store::MemoryTier::none;
  sandbox->record = std::move(intent);
  const auto resume = std::make_shared<Transition>(Transition::Kind::resume);
  sandbox->transition = resume;
  audit(by, "sandbox.resume", sandbox->record.id, plan.cold ? "cold" : "memory");
  // Tasks are closed only after `stopping_` is set.
  tasks_.spawn("resume", run_resume(sandbox, resume, plan));
  return resume;
}

net::Task<void> Engine::run_resume(SandboxPtr sandbox, TransitionPtr resume, ResumePlan plan) {
  if (plan.cold) {
    auto booting = run_cold_resume(std::move(sandbox), std::move(resume), plan);
    co_await std::move(booting);
    co_return;
  }
  Result<void> done;
  if (plan.tier == store::MemoryTier::dumped) {
    auto restoring = guarded(revive(sandbox, plan));
    done = co_await std::move(restoring);
  } else {
    auto thawing = guarded(thaw(sandbox->record.id));
    done = co_await std::move(thawing);
  }
  finish_resume(sandbox, resume, plan, std::move(done), {});
}

net::Task<Result<void>> Engine::revive(SandboxPtr sandbox, ResumePlan& plan) {
  auto entering = gate_.enter(options_.queue_deadline);
  ATOLL_CO_TRY_ASSIGN(const Gate::Pass pass, co_await std::move(entering));
  std::unique_lock lock(mutex_);
  const store::SandboxRecord record = sandbox->record;
  lock.unlock();
  runtime::SandboxSpec spec = spec_of(*sandbox, record);
  spec.disk = runtime::Disk::kept;
  spec.memory = runtime::Memory::kept;
  const auto began = std::chrono::steady_clock::now();
  auto making = guarded(runtime_.create(std::move(spec)));
  auto created = co_await std::move(making);
  if (!created.ok()) {
    Error failure = std::move(created).error().with("restore sandbox " + record.id.str());
    auto looking = lost_memory(sandbox);
    if (co_await std::move(looking)) {
      failure.code = Errc::data_loss;
      failure = std::move(failure).with(kMemoryLost);
    }
    lock.lock();
    ++counts_.restore_failures;
    co_return failure;
  }
  log::debug("restore steps", {{"sandbox", record.id.str()}, {"us", step_times(created->steps)}});
  plan.restored = true;
  plan.tier = store::MemoryTier::frozen;  // the files are used up: what it is now has to be kept
  set_address(*sandbox, created->address);
  auto waking = guarded(wake_agent(record, false, options_.create_deadline));
  auto woken = co_await std::move(waking);
  lock.lock();
  remember_seconds(counts_.restore_seconds, counts_.restores,
                   std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  sandbox->let_go = true;  // as it was when it was dumped
  lock.unlock();
  if (woken.ok()) co_return woken;
  auto freezing = freeze_surely(record.id);
  (void)co_await std::move(freezing);
  co_return woken;
}

net::Task<bool> Engine::lost_memory(SandboxPtr sandbox) {
  auto looking = condition_of(sandbox->record.id);
  if (co_await std::move(looking) != runtime::Condition::dead) co_return false;
  std::lock_guard lock(mutex_);
  log::error("a restore lost the memory of a sandbox; its disk is kept",
             {{"sandbox", sandbox->record.id.str()}});
  note(*sandbox, store::LogLevel::error, std::string(kMemoryLost));
  sandbox->record.memory_kept = false;
  sandbox->record.memory_tier = store::MemoryTier::none;
  co_return true;
}

net::Task<void> Engine::run_cold_resume(SandboxPtr sandbox, TransitionPtr resume, ResumePlan plan) {
  std::shared_ptr<Route> kept;
  {
    std::lock_guard lock(mutex_);
    kept = std::exchange(sandbox->route, nullptr);
  }
  if (kept) kept->die();  // what its connections led to ends now
  const std::string boot_id = random_uuid4();
  const SandboxId id = sandbox->record.id;
  Result<void> booted;
  {
    auto entering = gate_.enter(options_.queue_deadline);
    auto pass = co_await std::move(entering);
    if (pass.ok()) {
      // Also when only the disk was kept: processes that ended by themselves may have left more.
      auto ending = guarded(runtime_.kill(id));
      auto ended = co_await std::move(ending);
      if (plan.memory_there && !ended.ok()) {
        booted = std::move(ended).error().with("stop sandbox " + id.str());
      } else {
        plan.memory_there = false;
        clear_address(*sandbox);
        auto booting = guarded(boot_again(sandbox, boot_id));
        booted = co_await std::move(booting);
      }
    } else {
      booted = std::move(pass).error();
    }
  }
  finish_resume(sandbox, resume, plan, std::move(booted), boot_id);
}

net::Task<Result<void>> Engine::thaw(SandboxId id) {
  auto thawing = runtime_.thaw(id);
  auto thawed = co_await std::move(thawing);
  if (!thawed.ok()) {
    thawed = std::move(thawed).error().with("thaw sandbox " + id.str());
  } else {
    auto asking = check_agent(id);
    thawed = co_await std::move(asking);
    if (thawed.ok()) co_return thawed;
  }
  auto freezing = runtime_.freeze(id);  // it stays paused
  (void)co_await std::move(freezing);
  co_return thawed;
}

net::Task<Result<void>> Engine::boot_again(SandboxPtr sandbox, std::string boot_id) {
  const SandboxId id = sandbox->record.id;
  std::unique_lock lock(mutex_);
  store::SandboxRecord record = sandbox->record;
  lock.unlock();
  record.boot_id = std::move(boot_id);
  auto booting = boot(sandbox, std::move(record), runtime::Disk::kept);
  auto booted = co_await std::move(booting);
  if (!booted.ok()) {
    auto undoing = runtime_.kill(id);  // it may run without knowing who it is
    (void)co_await std::move(undoing);
    clear_address(*sandbox);
  }
  co_return booted;
}

void Engine::finish_resume(const SandboxPtr& sandbox, const TransitionPtr& resume,
                           const ResumePlan& plan, Result<void> done, const std::string& boot_id) {
  std::unique_lock lock(mutex_);
  store::SandboxRecord& record = sandbox->record;
  if (record.state != SandboxState::resuming) {  // killed meanwhile
    resume->failure = no_such_sandbox(record.id);
  } else if (done.ok()) {
    const Timestamp current = options_.clock();
    record.started_at = cut_to_micros(current);
    record.end_at = record.started_at + plan.timeout;
    if (plan.cold) {
      record.boot_id = boot_id;
      sandbox->agent_seq = 0;
      sandbox->agent_has_logs = true;
    }
    sandbox->last_cpu.reset();
    set_state_locked(*sandbox, Event::resumed);
    set_rest_locked(*sandbox, Rested{});
    save_locked(*sandbox);
    go_live_locked(*sandbox);
    if (plan.cold) sandbox->let_go = false;
    warm_again_locked(*sandbox);
    ++counts_.resumed_total;
    const std::string_view way = plan.cold       ? "booted from its disk"
                                 : plan.restored ? "files"
                                                 : "memory";
    log::info("sandbox resumed", {{"sandbox", record.id.str()}, {"from", way}});
    note(*sandbox, store::LogLevel::info, "sandbox resumed", {{"from", std::string(way)}});
  } else {
    log::error("a sandbox was not resumed; it stays paused",
               {{"sandbox", record.id.str()}, {"error", done.error().message}});
    note(*sandbox, store::LogLevel::error, "sandbox not resumed");
    record.end_at = plan.paused_at;
    if (plan.cold && plan.memory_there) record.memory_kept = true;  // it is still there
    const bool from_files = !plan.cold && plan.tier == store::MemoryTier::dumped;
    Error failure = from_files ? restore_failure(done.error()) : start_failure(done.error());
    set_state_locked(*sandbox, Event::resume_failed);
    if (!record.memory_kept) {
      set_rest_locked(*sandbox, Rested{});
    } else if (plan.restored) {  // it is in RAM now
      set_rest_locked(*sandbox, {plan.tier, done.error().message, 0, std::chrono::seconds(60)});
    } else if (from_files && failure.code != Errc::internal) {
      record.memory_reason = done.error().message;
    }
    save_locked(*sandbox);
    resume->failure = std::move(failure);
  }
  lock.unlock();
  resume->done.set();
}

}  // namespace atl::engine
