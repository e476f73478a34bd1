// Snapshots: row (making) -> the sandbox stands still while the runtime writes -> it runs on -> row
// (ready); of one name and tag the older is doomed by the same write. Whatever fails leaves no
// snapshot. A snapshot that nobody can name any more is removed as soon as nothing lies over it:
// the runtime has the last word on that.
#include <algorithm>
#include <cerrno>
#include <set>

#include "base/log.h"
#include "engine/sandbox.h"
#include "engine/taking.h"

namespace atl::engine {
namespace {

constexpr std::size_t kPauseSeconds = 1024;  // of the last snapshots, for quantiles

Error busy(Error error) {
  if (is_transient(error)) {
    return make_error(Errc::unavailable, "the server is busy; no snapshot was made");
  }
  return error;
}

Error unknown_template(std::string_view text) {
  return make_error(Errc::not_found, "template '" + std::string(text) + "' not found");
}

}  // namespace

std::string Engine::slug_of(const std::string& team_id) const {
  auto team = store_.find_team(team_id);
  return team_slug(team.ok() && *team ? (*team)->name : std::string());
}

std::vector<std::string> Engine::names_of(const store::SnapshotRecord& record) const {
  if (record.alias.empty()) return {};
  return {slug_of(record.team_id) + "/" + public_id(record)};
}

Result<Engine::SnapshotName> Engine::check_snapshot_name(const Caller& caller,
                                                         const std::string& text) {
  SnapshotName name;
  if (text.empty()) return name;
  ATOLL_TRY_ASSIGN(const templates::Reference reference, templates::parse_reference(text));
  const std::string slug = slug_of(caller.team_id);
  if (!reference.space.empty() && reference.space != slug) {
    return make_error(Errc::invalid_argument,
                      "the namespace of a snapshot is that of your team, '" + slug + "', not '" +
                          reference.space + "'");
  }
  if (templates_.find(reference.alias).ok()) {
    return make_error(Errc::invalid_argument,
                      "the name '" + reference.alias + "' belongs to a template");
  }
  name.alias = reference.alias;
  if (!reference.tag.empty()) name.tag = reference.tag;
  return name;
}

net::Task<Result<SnapshotInfo>> Engine::snapshot(SnapshotCommand command) {
  ATOLL_CO_TRY_ASSIGN(const SnapshotName name, check_snapshot_name(command.caller, command.name));
  auto taking = take(command.caller, command.id, name, command.memory, SnapshotFor::clients);
  ATOLL_CO_TRY_ASSIGN(const TakingPtr taken, co_await std::move(taking));
  audit(command.caller, "snapshot.create", command.id, public_id(taken->record));
  co_return SnapshotInfo{taken->record, names_of(taken->record), taken->source_pause};
}

// What may be copied: 404 for a paused one, as E2B has it; a fork says it in other words.
Result<Engine::SandboxPtr> Engine::find_source_locked(const Caller& caller, const SandboxId& id,
                                                      SnapshotFor whom) const {
  ATOLL_TRY_ASSIGN(SandboxPtr sandbox, find_locked(caller, id));
  const SandboxState state = sandbox->record.state;
  if (state == SandboxState::paused || state == SandboxState::pausing) {
    if (whom == SnapshotFor::clients) return no_such_sandbox(id);
    return make_error(Errc::failed_precondition,
                      "Sandbox '" + id.str() + "' is paused and cannot be forked; resume it first");
  }
  const bool still = sandbox->transition && !sandbox->transition->done.is_set();
  if (state != SandboxState::running || still) {
    return make_error(
        Errc::failed_precondition,
        "Sandbox \"" + id.str() + "\" is in another transition or snapshot; try again in a moment");
  }
  return sandbox;
}

net::Task<Result<Engine::TakingPtr>> Engine::take(Caller caller, SandboxId id, SnapshotName name,
                                                  bool memory, SnapshotFor whom) {
  {
    std::lock_guard lock(mutex_);
    ATOLL_CO_TRY(find_source_locked(caller, id, whom));
  }
  auto entering = gate_.enter(options_.queue_deadline);
  auto pass = co_await std::move(entering);
  if (!pass.ok()) co_return busy(std::move(pass).error());
  TakingPtr taking;
  {
    std::lock_guard lock(mutex_);
    if (stopping_) co_return make_error(Errc::unavailable, "the server is shutting down");
    ATOLL_CO_TRY_ASSIGN(const SandboxPtr sandbox, find_source_locked(caller, id, whom));
    if (snapshots_.size() >= options_.max_snapshots) {
      co_return make_error(Errc::resource_exhausted,
                           "you have reached the maximum number of snapshots (" +
                               std::to_string(options_.max_snapshots) +
                               "). Delete those that you no longer need and try again.");
    }
    store::SnapshotRecord record = describe_snapshot_locked(*sandbox, name, memory, whom);
    if (auto stored = store_.insert_snapshot(record); !stored.ok())
      co_return start_failure(std::move(stored).error());
    auto begun = begin_snapshot_locked(sandbox, caller);
    if (!begun.ok()) {
      (void)store_.delete_snapshot(record.id);  // else the next start does it
      co_return std::move(begun).error();
    }
    snapshots_.put(record);
    SnapshotTable::Pin pin = snapshots_.pin(record.id);
    taking = std::make_shared<Taking>(std::move(record), std::move(pin));
    // Tasks are closed only after `stopping_` is set.
    tasks_.spawn("snapshot", run_snapshot(sandbox, *begun, taking, std::move(*pass)));
  }
  auto wait = taking->done.wait(options_.transition_deadline);
  if (!co_await std::move(wait)) {
    co_return make_error(Errc::deadline_exceeded, "the snapshot is still being written");
  }
  std::unique_lock lock(mutex_);
  std::optional<Error> failure = taking->failure;
  lock.unlock();
  if (failure) co_return std::move(*failure);
  co_return taking;
}

store::SnapshotRecord Engine::describe_snapshot_locked(const Sandbox& sandbox,
                                                       const SnapshotName& name, bool memory,
                                                       SnapshotFor whom) const {
  const store::SandboxRecord& source = sandbox.record;
  store::SnapshotRecord record;
  record.id = runtime::new_snapshot_id();
  record.team_id = source.team_id;
  record.alias = name.alias;
  record.tag = name.tag;
  if (!name.alias.empty()) record.template_id = snapshots_.template_of(source.team_id, name.alias);
  if (record.template_id.empty()) record.template_id = random_base36(20);
  record.build_id = random_uuid4();
  record.internal = whom == SnapshotFor::forks;
  record.memory = memory;
  record.sandbox_id = source.id.str();
  record.base = source.snapshot_id;
  record.created_at = cut_to_micros(options_.clock());
  record.template_dir = source.template_dir;
  record.template_build = source.build_id;
  record.envd_version = source.envd_version;
  record.boot_id = source.boot_id;
  record.start_command = source.start_command;
  record.default_user = source.default_user;
  record.envs = source.envs;
  record.agent_seq = sandbox.agent_seq;
  record.cpu_count = source.cpu_count;
  record.memory_mb = source.memory_mb;
  record.disk_mb = source.disk_mb;
  return record;
}

net::Task<Result<void>> Engine::write_snapshot(SandboxId id, TakingPtr taking) {
  auto writing = taking->record.memory ? runtime_.snapshot(id, taking->record.id)
                                       : runtime_.snapshot_disk(id, taking->record.id);
  ATOLL_CO_TRY_ASSIGN(taking->written, co_await std::move(writing));
  co_return Result<void>();
}

net::Task<void> Engine::run_snapshot(SandboxPtr sandbox, TransitionPtr transition, TakingPtr taking,
                                     Gate::Pass pass) {
  const SandboxId id = sandbox->record.id;
  auto holding = guarded(hold_still(sandbox, transition, taking->record.memory,
                                    [this, id, taking] { return write_snapshot(id, taking); }));
  auto held = co_await std::move(holding);
  pass = Gate::Pass();
  Result<void> done;
  if (!held.ok()) {
    done = std::move(held).error();
  } else {
    taking->source_pause = *held;
    for (const runtime::StepTime& step : taking->written.steps) {
      if (step.step == "after_source") taking->source_pause -= std::min(step.took, *held);
    }
    done = publish_snapshot(*sandbox, *taking);
    if (done.ok() && !taking->record.internal) {
      auto syncing = make_durable();
      co_await std::move(syncing);
    }
  }
  if (!done.ok()) {
    auto dropping = drop_snapshot(taking->record.id);
    co_await std::move(dropping);
    std::lock_guard lock(mutex_);
    ++counts_.snapshot_failures;
    log::warn("no snapshot was made", {{"sandbox", id.str()}, {"error", done.error().message}});
    note(*sandbox, store::LogLevel::warn, "snapshot not made");
    taking->failure = snapshot_failure(std::move(done).error());
  }
  taking->done.set();
  taking.reset();
  collect_later();  // the one that it replaces, or itself if nobody waits for it any more
}

// A tree that cannot be had, or a full disk, is told as such; the rest is our failure.
Error Engine::snapshot_failure(Error error) {
  switch (error.code) {
    case Errc::failed_precondition:
    case Errc::unimplemented:
    case Errc::not_found:
    case Errc::aborted:
      return error;
    case Errc::resource_exhausted:  // the API tells a full disk by it
      if (is_no_space(error)) error.sys_errno = ENOSPC;
      return error;
    default:
      return start_failure(std::move(error));
  }
}

Result<void> Engine::publish_snapshot(const Sandbox& sandbox, Taking& taking) {
  std::lock_guard lock(mutex_);
  store::SnapshotRecord& record = taking.record;
  record.state = store::SnapshotState::ready;
  record.memory_bytes = taking.written.memory_bytes;
  record.disk_bytes = taking.written.disk_bytes;
  std::vector<store::SnapshotRecord> changes = {record};
  if (!record.internal && !record.alias.empty()) {
    if (const auto* old = snapshots_.named(record.team_id, record.alias, record.tag)) {
      changes.push_back(*old);
      changes.back().state = store::SnapshotState::doomed;
    }
  }
  ATOLL_TRY(store_.update_snapshots(changes));
  for (store::SnapshotRecord& change : changes) snapshots_.put(std::move(change));
  ++counts_.snapshots_total;
  const double seconds = std::chrono::duration<double>(taking.source_pause).count();
  if (counts_.snapshot_pause_seconds.size() < kPauseSeconds) {
    counts_.snapshot_pause_seconds.push_back(seconds);
  } else {
    counts_.snapshot_pause_seconds[next_pause_second_++ % kPauseSeconds] = seconds;
  }
  const std::string paused_ms = std::to_string(
      std::chrono::duration_cast<std::chrono::milliseconds>(taking.source_pause).count());
  log::info("snapshot made", {{"snapshot", record.id},
                              {"sandbox", record.sandbox_id},
                              {"memory", std::to_string(record.memory_bytes)},
                              {"disk", std::to_string(record.disk_bytes)},
                              {"paused ms", paused_ms}});
  note(sandbox, store::LogLevel::info, record.internal ? "sandbox copied" : "snapshot made",
       {{"snapshot", public_id(record)}, {"pausedMs", paused_ms}});
  return {};
}

// Remains that cannot be removed now are without a name from here on; the next start removes them.
net::Task<void> Engine::drop_snapshot(std::string id) {
  auto removing = guarded(runtime_.remove_snapshot(id));
  if (auto removed = co_await std::move(removing); !removed.ok() &&
                                                   removed.error().code != Errc::not_found &&
                                                   removed.error().code != Errc::unimplemented) {
    log::error("the remains of a snapshot were not removed; the next start does it",
               {{"snapshot", id}, {"error", removed.error().message}});
  }
  forget_snapshot(id);
}

void Engine::forget_snapshot(const std::string& id) {
  std::lock_guard lock(mutex_);
  if (auto deleted = store_.delete_snapshot(id); !deleted.ok()) {
    log::error("the row of a snapshot was not removed",
               {{"snapshot", id}, {"error", deleted.error().message}});
  }
  snapshots_.erase(id);
}

// ---- names, lists, deletion ----

SnapshotPage Engine::list_snapshots(const SnapshotQuery& query) const {
  const std::string slug = slug_of(query.team_id);
  if (query.name && !query.name->space.empty() && query.name->space != slug) return {};
  std::lock_guard lock(mutex_);
  return snapshots_.list(query);
}

Result<store::SnapshotRecord> Engine::find_snapshot(const Caller& caller,
                                                    const std::string& text) const {
  ATOLL_TRY_ASSIGN(const templates::Reference reference, templates::parse_reference(text));
  const std::string slug = slug_of(caller.team_id);
  std::lock_guard lock(mutex_);
  const auto* found = snapshots_.resolve(caller.team_id, slug, reference);
  if (found == nullptr) return unknown_template(text);
  return *found;
}

net::Task<Result<void>> Engine::delete_template(Caller caller, std::string text) {
  auto found = find_snapshot(caller, text);
  if (!found.ok()) {
    if (found.error().code == Errc::not_found && templates_.find(text).ok()) {
      co_return make_error(Errc::permission_denied,
                           "template '" + text + "' belongs to the server");
    }
    co_return std::move(found).error();
  }
  {
    std::lock_guard lock(mutex_);
    const auto* record = snapshots_.find(found->id);
    if (record == nullptr || record->state != store::SnapshotState::ready)
      co_return unknown_template(text);
    for (const auto& [id, sandbox] : sandboxes_) {
      const store::SandboxRecord& user = sandbox->record;
      if (user.snapshot_id != record->id && user.rollback_id != record->id) continue;
      const bool paused = user.state == SandboxState::paused;
      co_return make_error(Errc::invalid_argument,
                           "cannot delete template '" + text + "' because there are " +
                               (paused ? "paused" : "running") + " sandboxes using it");
    }
    store::SnapshotRecord doomed = *record;
    doomed.state = store::SnapshotState::doomed;
    if (auto stored = store_.update_snapshots({doomed}); !stored.ok())
      co_return start_failure(std::move(stored).error());
    snapshots_.put(doomed);
    store::AuditRecord line{.at = options_.clock(),
                            .team_id = caller.team_id,
                            .key_id = caller.key_id,
                            .action = "snapshot.delete",
                            .subject = public_id(doomed),
                            .detail = {},
                            .peer = caller.peer};
    if (auto stored = store_.insert_audit(line); !stored.ok())
      log::error("the audit log was not written", {{"error", stored.error().message}});
  }
  auto collecting = collect_snapshots();
  co_await std::move(collecting);
  co_return Result<void>();
}

// ---- garbage ----

void Engine::collect_later() { tasks_.spawn("collect snapshots", collect_snapshots()); }

net::Task<void> Engine::collect_snapshots() {
  {
    std::lock_guard lock(mutex_);
    collect_again_ = true;
    if (std::exchange(collecting_, true)) co_return;  // the one under way looks again
  }
  for (;;) {
    std::vector<std::string> garbage;
    {
      std::lock_guard lock(mutex_);
      if (!std::exchange(collect_again_, false)) {
        collecting_ = false;
        co_return;
      }
      std::set<std::string> used;
      for (const auto& [id, sandbox] : sandboxes_) {
        used.insert(sandbox->record.snapshot_id);
        used.insert(sandbox->record.rollback_id);
      }
      garbage = snapshots_.garbage(used);
    }
    for (const std::string& id : garbage) {
      auto removing = guarded(runtime_.remove_snapshot(id));
      auto removed = co_await std::move(removing);
      if (removed.ok() || removed.error().code == Errc::not_found) {
        forget_snapshot(id);
        log::info("snapshot removed", {{"snapshot", id}});
        std::lock_guard lock(mutex_);
        collect_again_ = true;  // it may have kept others in place
      } else if (removed.error().code != Errc::failed_precondition) {
        log::error("a snapshot was not removed",
                   {{"snapshot", id}, {"error", removed.error().message}});
      }
    }
  }
}

// After the sandboxes were adopted: what is whole is known again, the rest goes.
net::Task<Result<void>> Engine::adopt_snapshots() {
  ATOLL_CO_TRY_ASSIGN(auto rows, store_.list_snapshots());
  auto listing = guarded(runtime_.list_snapshots());
  auto listed = co_await std::move(listing);
  if (!listed.ok()) co_return std::move(listed).error().with("list snapshots of an earlier run");
  std::map<std::string, runtime::ListedSnapshot> there;
  for (runtime::ListedSnapshot& one : *listed) there.emplace(one.id, std::move(one));
  std::vector<std::string> useless;
  {
    std::lock_guard lock(mutex_);
    for (store::SnapshotRecord& row : rows) {
      const auto found = there.find(row.id);
      const bool whole = found != there.end() && found->second.whole;
      if (row.state == store::SnapshotState::making || !whole) useless.push_back(row.id);
      if (row.state == store::SnapshotState::ready && !whole) {
        log::error("a snapshot of an earlier run is lost",
                   {{"snapshot", row.id}, {"name", public_id(row)}});
      }
      there.erase(row.id);
      snapshots_.put(std::move(row));
    }
  }
  for (const auto& [id, one] : there) useless.push_back(id);
  for (std::string& id : useless) {
    auto dropping = drop_snapshot(std::move(id));
    co_await std::move(dropping);
  }
  auto collecting = collect_snapshots();
  co_await std::move(collecting);
  co_return Result<void>();
}

}  // namespace atl::engine
