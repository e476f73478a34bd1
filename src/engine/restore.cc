// Creates from snapshots: the runtime brings memory and disk back under a new identity -> its
// address gets its policy -> the agent wakes up, is told who it is now, and tells those inside that
// they are a copy. A snapshot of a disk alone is booted.
#include "base/log.h"
#include "engine/sandbox.h"

namespace atl::engine {
namespace {

// What a sandbox made from a snapshot has of a template.
templates::Template template_of(const store::SnapshotRecord& snapshot) {
  templates::Template base;
  base.dir = snapshot.template_dir;
  base.id = snapshot.template_id;
  if (!snapshot.alias.empty()) base.names.push_back(snapshot.alias);
  base.build_id = snapshot.template_build;
  base.cpu_count = snapshot.cpu_count;
  base.memory_mb = snapshot.memory_mb;
  base.disk_mb = snapshot.disk_mb;
  base.envd_version = snapshot.envd_version;
  base.created_at = snapshot.created_at;
  base.default_user = snapshot.default_user;
  base.start_command = snapshot.start_command;
  return base;
}

}  // namespace

std::string hostname_of_copy(const SandboxId& id) { return "e2b-" + id.str().substr(1, 8); }

// An image of another kernel or version, or a damaged one, is no passing failure: it is told as it
// is.
Error Engine::restore_failure(Error error) {
  if (error.code == Errc::failed_precondition || error.code == Errc::data_loss) return error;
  return start_failure(std::move(error));
}

Result<Engine::Origin> Engine::find_origin(const CreateCommand& command) {
  auto base = templates_.find(command.template_reference);
  if (base.ok()) return Origin{std::move(*base), std::nullopt};
  if (base.error().code != Errc::not_found) return std::move(base).error();
  auto snapshot = find_snapshot(command.caller, command.template_reference);
  if (!snapshot.ok()) return std::move(base).error();
  templates::Template described = template_of(*snapshot);
  return Origin{std::move(described), std::move(*snapshot)};
}

Result<Engine::SandboxPtr> Engine::reserve_restore(const CreateCommand& command,
                                                   const Origin& origin, egress::Policy policy) {
  store::SandboxRecord record = new_record(command, origin.base);
  record.snapshot_id = origin.snapshot->id;
  if (origin.snapshot->memory) {
    record.hostname = hostname_of_copy(record.id);
    record.boot_id = origin.snapshot->boot_id;  // nothing booted
    // What the agent knew goes on; what is given now comes first.
    record.envs.insert(origin.snapshot->envs.begin(), origin.snapshot->envs.end());
  }
  std::lock_guard lock(mutex_);
  const auto* there = snapshots_.find(origin.snapshot->id);
  if (there == nullptr || there->state != store::SnapshotState::ready) {
    return make_error(Errc::not_found, "template '" + command.template_reference + "' not found");
  }
  ATOLL_TRY(check_room_locked(command.caller));
  const SandboxPtr sandbox = admit_locked(std::move(record), command.caller, std::move(policy));
  if (there->memory) sandbox->agent_seq = there->agent_seq;
  return sandbox;
}

net::Task<Result<void>> Engine::restore(SandboxPtr sandbox, store::SandboxRecord record,
                                        Replace replace) {
  bool memory = true;
  {
    std::lock_guard lock(mutex_);
    const auto* snapshot = snapshots_.find(record.snapshot_id);
    if (snapshot == nullptr) co_return make_error(Errc::not_found, "the snapshot is gone");
    memory = snapshot->memory;
  }
  runtime::SandboxSpec spec = spec_of(*sandbox, record);
  spec.disk = runtime::Disk::fresh;
  spec.snapshot = record.snapshot_id;
  spec.memory = memory ? runtime::Memory::snapshot : runtime::Memory::none;
  spec.replace = replace == Replace::yes;
  auto making = runtime_.create(std::move(spec));
  auto created = co_await std::move(making);
  if (!created.ok())
    co_return std::move(created).error().with("restore sandbox " + record.id.str());
  log::debug("restore steps", {{"sandbox", record.id.str()}, {"us", step_times(created->steps)}});
  set_address(*sandbox, created->address);
  if (!memory) {
    auto telling = init_agent(std::move(record), options_.create_deadline);
    co_return co_await std::move(telling);
  }
  auto waking = wake_agent(std::move(record), true, options_.create_deadline);
  ATOLL_CO_TRY(co_await std::move(waking));
  std::lock_guard lock(mutex_);
  sandbox->let_go = true;  // as it was when it was written
  if (replace == Replace::no) warm_again_locked(*sandbox);
  co_return Result<void>();
}

}  // namespace atl::engine
