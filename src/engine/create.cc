// Create: limits and a place (state creating) -> in line at the gate -> row in the store -> boot ->
// running: row updated, routed, its end set -> the client hears of it. Any failure destroys what
// there is, marks the row killed and frees the place. A create whose client stopped waiting runs to
// its end and is then killed.
//
// With a sandbox from the pool there is no line and no boot, and its row is written once, as it
// runs: until then no row names it, and the next start would remove it. One that is no good is
// replaced by the next, at last by a boot.
#include "base/json.h"
#include "base/log.h"
#include "engine/sandbox.h"

namespace atl::engine {
namespace {

constexpr std::size_t kCreateSeconds = 1024;  // of the last creates, for quantiles

constexpr int kFromPool = 3;  // attempts; then it is booted

struct AtExit {
  std::function<void()> action;
  ~AtExit() {
    if (action) action();
  }
};

Error limit_reached(std::size_t limit, std::string_view whose) {
  return make_error(Errc::resource_exhausted,
                    "you have reached the maximum number of concurrent E2B sandboxes (" +
                        std::to_string(limit) + ")" + std::string(whose) +
                        ". Kill or pause sandboxes that you no longer need and try again.");
}

Result<json::object> network_object(const std::string& text) {
  ATOLL_TRY_ASSIGN(json::value network, parse_json(text));
  if (!network.is_object()) return make_error(Errc::invalid_argument, "network must be an object");
  return std::move(network.get_object());
}

}  // namespace

net::Task<Result<SandboxInfo>> Engine::create(CreateCommand command) {
  if (command.timeout <= std::chrono::seconds(0)) {
    co_return make_error(Errc::invalid_argument, "Timeout must be greater than 0");
  }
  ATOLL_CO_TRY(check_timeout(command.timeout));
  ATOLL_CO_TRY_ASSIGN(const json::object network, network_object(command.network));
  ATOLL_CO_TRY_ASSIGN(egress::Policy policy, egress::parse_policy(network, command.allow_internet));
  ATOLL_CO_TRY_ASSIGN(const Origin origin, find_origin(command));
  if (command.memory_mb && (origin.snapshot || *command.memory_mb < kMinMemoryMb)) {
    co_return make_error(Errc::invalid_argument,
                         origin.snapshot ? "a snapshot brings its limit of memory with it"
                                         : "a sandbox needs at least " +
                                               std::to_string(kMinMemoryMb) + " MB of memory");
  }
  if (origin.snapshot) {
    ATOLL_CO_TRY_ASSIGN(const SandboxPtr sandbox,
                        reserve_restore(command, origin, std::move(policy)));
    auto making = make(sandbox);
    co_return co_await std::move(making);
  }
  const templates::Template& base = origin.base;
  for (int attempt = 0;; ++attempt) {
    const Source source = attempt < kFromPool ? Source::pool_first : Source::on_demand;
    ATOLL_CO_TRY_ASSIGN(const SandboxPtr sandbox, reserve(command, base, policy, source));
    auto making = make(sandbox);
    auto made = co_await std::move(making);
    if (made.ok() || !sandbox->pooled) co_return made;
    log::warn("a sandbox of the pool was of no use",
              {{"sandbox", sandbox->record.id.str()}, {"error", made.error().message}});
    pool_.note_bad(base);
  }
}

net::Task<Result<SandboxInfo>> Engine::make(SandboxPtr sandbox) {
  const TransitionPtr making = sandbox->transition;
  {
    AtExit give_back{[&] { drop(sandbox); }};
    Gate::Pass pass;
    if (!sandbox->pooled) {
      auto entering = gate_.enter(options_.queue_deadline);
      auto entered = co_await std::move(entering);
      if (!entered.ok()) {
        std::lock_guard lock(mutex_);
        ++counts_.refused;
        co_return std::move(entered).error();
      }
      pass = std::move(*entered);
      ATOLL_CO_TRY(record_create(sandbox));
    }
    if (!tasks_.spawn("create", run_create(sandbox, std::move(pass))))
      co_return make_error(Errc::unavailable, "the server is shutting down");
    give_back.action = nullptr;
  }
  auto wait = making->done.wait(options_.create_deadline);
  co_await std::move(wait);
  std::lock_guard lock(mutex_);
  if (!making->done.is_set()) {
    sandbox->abandoned = true;
    co_return make_error(Errc::deadline_exceeded, "the sandbox was not ready in time; try again");
  }
  if (making->failure) co_return Error(*making->failure);
  co_return describe(sandbox->record);
}

store::SandboxRecord Engine::new_record(const CreateCommand& command,
                                        const templates::Template& base) const {
  store::SandboxRecord record{.id = SandboxId::generate()};
  record.team_id = command.caller.team_id;
  record.key_id = command.caller.key_id;
  record.template_id = base.id;
  record.template_dir = base.dir;
  record.build_id = base.build_id;
  record.alias = base.alias();
  record.envd_version = base.envd_version;
  record.boot_id = random_uuid4();
  record.created_at = options_.clock();
  record.timeout = command.timeout;
  record.metadata = command.metadata;
  record.envs = command.envs;
  record.network = command.network;
  record.secure = command.secure;
  record.allow_public_traffic = command.allow_public_traffic;
  record.auto_pause = command.auto_pause;
  record.auto_pause_memory = command.auto_pause_memory;
  record.auto_resume = command.auto_resume;
  record.allow_internet = command.allow_internet;
  record.start_command = base.start_command;
  record.default_user = base.default_user;
  record.mask_request_host = command.mask_request_host;
  record.cpu_count = base.cpu_count;
  record.memory_mb = command.memory_mb.value_or(base.memory_mb);
  record.disk_mb = base.disk_mb;
  return record;
}

Result<Engine::SandboxPtr> Engine::reserve(const CreateCommand& command,
                                           const templates::Template& base, egress::Policy policy,
                                           Source source) {
  store::SandboxRecord record = new_record(command, base);
  std::lock_guard lock(mutex_);
  ATOLL_TRY(check_room_locked(command.caller));
  std::optional<Pool::Entry> pooled;
  if (source == Source::pool_first) pooled = pool_.take(base);
  if (pooled) {
    record.id = pooled->id;
    record.boot_id = pooled->boot_id;
  }
  const SandboxPtr sandbox = admit_locked(std::move(record), command.caller, std::move(policy));
  sandbox->pooled = std::move(pooled);
  return sandbox;
}

Engine::SandboxPtr Engine::admit_locked(store::SandboxRecord record, const Caller& by,
                                        egress::Policy policy) {
  auto sandbox = std::make_shared<Sandbox>(std::move(record));
  sandbox->asked_by = by;
  sandbox->policy = std::move(policy);
  sandbox->transition = std::make_shared<Transition>(Transition::Kind::create);
  sandboxes_.emplace(sandbox->record.id, sandbox);
  return sandbox;
}

Result<void> Engine::check_room_locked(const Caller& caller) {
  if (stopping_) return make_error(Errc::unavailable, "the server is shutting down");
  auto fits = check_limits_locked(caller.team_id, caller.key_id);
  if (!fits.ok()) ++counts_.refused;
  return fits;
}

// A paused sandbox takes no place; everything else does, until it is gone.
Result<void> Engine::check_limits_locked(const std::string& team_id,
                                         const std::string& key_id) const {
  std::size_t all = 0;
  std::size_t of_team = 0;
  std::size_t of_key = 0;
  for (const auto& [id, sandbox] : sandboxes_) {
    if (sandbox->record.state == SandboxState::paused) continue;
    ++all;
    if (sandbox->record.team_id == team_id) ++of_team;
    if (sandbox->record.key_id == key_id) ++of_key;
  }
  if (all >= options_.max_sandboxes) return limit_reached(options_.max_sandboxes, "");
  if (options_.max_per_team > 0 && of_team >= options_.max_per_team)
    return limit_reached(options_.max_per_team, " for your team");
  if (options_.max_per_key > 0 && of_key >= options_.max_per_key)
    return limit_reached(options_.max_per_key, " for your API key");
  return {};
}

Result<void> Engine::record_create(const SandboxPtr& sandbox) {
  std::lock_guard lock(mutex_);
  if (stopping_) return make_error(Errc::unavailable, "the server is shutting down");
  if (auto stored = store_.insert_sandbox(sandbox->record); !stored.ok())
    return start_failure(std::move(stored).error());
  return {};
}

// It runs, and everybody may know: one transaction.
Result<void> Engine::record_created_locked(const Sandbox& sandbox) {
  const store::SandboxRecord& record = sandbox.record;
  store::Birth birth;
  birth.row = sandbox.pooled ? store::Birth::Row::insert : store::Birth::Row::update;
  birth.log = {
      options_.clock(), store::LogLevel::info, "sandbox created", {{"template", record.alias}}};
  birth.audit = {.at = options_.clock(),
                 .team_id = sandbox.asked_by.team_id,
                 .key_id = sandbox.asked_by.key_id,
                 .action = "sandbox.create",
                 .subject = record.id.str(),
                 .detail = record.alias,
                 .peer = sandbox.asked_by.peer};
  return store_.record_birth(record, birth);
}

net::Task<void> Engine::run_create(SandboxPtr sandbox, Gate::Pass pass) {
  // Only this task changes the record while it is creating; reading it needs no lock.
  const bool restored = !sandbox->record.snapshot_id.empty();
  auto booting = guarded(sandbox->pooled ? hand_out(sandbox, sandbox->record, *sandbox->pooled)
                         : restored      ? restore(sandbox, sandbox->record, Replace::no)
                                         : boot(sandbox, sandbox->record, runtime::Disk::fresh));
  auto made = co_await std::move(booting);
  pass = Gate::Pass();
  if (made.ok()) {
    finish_create(sandbox, Result<void>());
    co_return;
  }
  auto settling = let_nursery_arrive(sandbox);
  co_await std::move(settling);
  auto undo = destroy(sandbox->record.id);
  auto undone = co_await std::move(undo);
  clear_address(*sandbox);
  finish_create(sandbox, restored ? restore_failure(std::move(made).error())
                                  : start_failure(std::move(made).error()));
  if (!undone.ok()) {
    // Processes or directories may still be there: it keeps its place until they are gone.
    log::error("a failed create was not undone; trying again",
               {{"sandbox", sandbox->record.id.str()}, {"error", undone.error().message}});
    auto again = destroy_until_gone(sandbox->record.id);
    co_await std::move(again);
  }
  drop(sandbox);
}

void Engine::finish_create(const SandboxPtr& sandbox, Result<void> made) {
  const TransitionPtr transition = sandbox->transition;
  std::unique_lock lock(mutex_);
  store::SandboxRecord& record = sandbox->record;
  if (made.ok()) {
    // The clock of a life starts when it is ready.
    record.started_at = cut_to_micros(options_.clock());
    record.end_at = record.started_at + record.timeout;
    if (!sandbox->pooled) {  // what one of the pool used before is nobody's
      sandbox->last_cpu = std::chrono::microseconds(0);
      sandbox->last_cpu_at = record.created_at;
    }
    set_state_locked(*sandbox, Event::created);
    made = record_created_locked(*sandbox);
    if (!made.ok()) made = start_failure(std::move(made).error());
    const bool unwanted = sandbox->abandoned || stopping_;
    if (made.ok() && !unwanted) {
      go_live_locked(*sandbox);
      ++counts_.created;
      const double took =
          std::chrono::duration<double>(record.started_at - record.created_at).count();
      if (counts_.create_seconds.size() < kCreateSeconds) {
        counts_.create_seconds.push_back(took);
      } else {
        counts_.create_seconds[next_create_second_++ % kCreateSeconds] = took;
      }
      log::info("sandbox created",
                {{"sandbox", record.id.str()},
                 {"template", record.alias},
                 {"key", record.key_id},
                 {"from", to_string(sandbox->pooled ? sandbox->pooled->tier : Tier::on_demand)},
                 {"ms", milliseconds_between(record.created_at, record.started_at)}});
      tasks_.spawn("first sample", sample_first(sandbox));
    } else {
      if (made.ok())
        made = make_error(Errc::unavailable, "the sandbox was given up while it was made");
      transition->failure = std::move(made).error();
      ++counts_.create_failures;
      begin_kill_locked(sandbox, KillReason::shutdown, {record.team_id, "server", {}});
    }
  } else if (sandbox->pooled) {
    transition->failure = std::move(made).error();
    set_state_locked(*sandbox, Event::create_failed);
  } else {
    ++counts_.create_failures;
    log::info("sandbox not created",
              {{"sandbox", record.id.str()}, {"template", record.alias}, {"key", record.key_id}});
    // Whoever asked tells the reason; only when nobody waits any more it is told here.
    if (sandbox->abandoned) {
      log::error("an abandoned create failed",
                 {{"sandbox", record.id.str()}, {"error", made.error().message}});
    }
    transition->failure = std::move(made).error();
    set_state_locked(*sandbox, Event::create_failed);
    save_locked(*sandbox);
  }
  lock.unlock();
  transition->done.set();
}

}  // namespace atl::engine
