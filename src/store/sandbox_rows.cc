#include "base/json.h"
#include "store/statements.h"

namespace atl::store {
namespace {

void bind_sandbox(Use& use, const SandboxRecord& r) {
  int i = 0;
  use->bind(++i, r.id.str());
  use->bind(++i, r.team_id);
  use->bind(++i, r.key_id);
  use->bind(++i, r.template_id);
  use->bind(++i, r.template_dir);
  use->bind(++i, r.build_id);
  use->bind(++i, r.alias);
  use->bind(++i, r.envd_version);
  use->bind(++i, r.boot_id);
  use->bind(++i, to_string(r.state));
  use->bind(++i, to_ns(r.created_at));
  use->bind(++i, to_ns(r.started_at));
  use->bind(++i, to_ns(r.end_at));
  use->bind(++i, std::int64_t(r.timeout.count()));
  use->bind(++i, to_json(r.metadata));
  use->bind(++i, to_json(r.envs));
  use->bind(++i, r.network);
  use->bind(++i, std::int64_t(r.secure));
  use->bind(++i, std::int64_t(r.allow_public_traffic));
  use->bind(++i, std::int64_t(r.auto_pause));
  use->bind(++i, std::int64_t(r.auto_pause_memory));
  use->bind(++i, std::int64_t(r.auto_resume));
  ++i;
  if (r.allow_internet) {
    use->bind(i, std::int64_t(*r.allow_internet));
  } else {
    use->bind_null(i);
  }
  use->bind(++i, std::int64_t(r.cpu_count));
  use->bind(++i, std::int64_t(r.memory_mb));
  use->bind(++i, std::int64_t(r.disk_mb));
  use->bind(++i, std::int64_t(r.memory_kept));
  use->bind(++i, r.start_command);
  use->bind(++i, r.default_user);
  use->bind(++i, r.mask_request_host);
  use->bind(++i, to_string(r.memory_tier));
  use->bind(++i, r.memory_reason);
  use->bind(++i, std::int64_t(r.memory_bytes));
  use->bind(++i, r.snapshot_id);
  use->bind(++i, r.rollback_id);
  use->bind(++i, r.hostname);
}

Result<SandboxRecord> read_sandbox(Use& use) {
  auto id = SandboxId::parse(use->text(0));
  const auto state = parse_state(use->text(9));
  if (!id || !state)
    return make_error(Errc::data_loss, "a sandbox in the store has a bad id or state");
  SandboxRecord r{.id = std::move(*id)};
  r.team_id = use->text(1);
  r.key_id = use->text(2);
  r.template_id = use->text(3);
  r.template_dir = use->text(4);
  r.build_id = use->text(5);
  r.alias = use->text(6);
  r.envd_version = use->text(7);
  r.boot_id = use->text(8);
  r.state = *state;
  r.created_at = from_ns(use->integer(10));
  r.started_at = from_ns(use->integer(11));
  r.end_at = from_ns(use->integer(12));
  r.timeout = std::chrono::seconds(use->integer(13));
  ATOLL_TRY_ASSIGN(r.metadata, map_from_json(use->text(14)));
  ATOLL_TRY_ASSIGN(r.envs, map_from_json(use->text(15)));
  r.network = use->text(16);
  r.secure = use->integer(17) != 0;
  r.allow_public_traffic = use->integer(18) != 0;
  r.auto_pause = use->integer(19) != 0;
  r.auto_pause_memory = use->integer(20) != 0;
  r.auto_resume = use->integer(21) != 0;
  if (!use->is_null(22)) r.allow_internet = use->integer(22) != 0;
  r.cpu_count = std::uint32_t(use->integer(23));
  r.memory_mb = std::uint32_t(use->integer(24));
  r.disk_mb = std::uint32_t(use->integer(25));
  r.memory_kept = use->integer(26) != 0;
  r.start_command = use->text(27);
  r.default_user = use->text(28);
  r.mask_request_host = use->text(29);
  const auto tier = parse_memory_tier(use->text(30));
  if (!tier) return make_error(Errc::data_loss, "a sandbox in the store has a bad memory tier");
  r.memory_tier = *tier;
  r.memory_reason = use->text(31);
  r.memory_bytes = std::uint64_t(use->integer(32));
  r.snapshot_id = use->text(33);
  r.rollback_id = use->text(34);
  r.hostname = use->text(35);
  return r;
}

}  // namespace

Result<void> Store::insert_sandbox(const SandboxRecord& record) {
  std::lock_guard lock(mutex_);
  return write_insert(record);
}

Result<void> Store::update_sandbox(const SandboxRecord& record) {
  std::lock_guard lock(mutex_);
  return write_update(record);
}

Result<void> Store::record_birth(const SandboxRecord& record, const Birth& birth) {
  std::lock_guard lock(mutex_);
  return in_transaction([&]() -> Result<void> {
    ATOLL_TRY(birth.row == Birth::Row::insert ? write_insert(record) : write_update(record));
    ATOLL_TRY(write_log(record.id, {birth.log, {}, 0}));
    return write_audit(birth.audit);
  });
}

Result<void> Store::write_insert(const SandboxRecord& record) {
  Use use(statements_->insert_sandbox);
  bind_sandbox(use, record);
  written_ = true;
  return use->run();
}

Result<void> Store::write_update(const SandboxRecord& record) {
  Use use(statements_->update_sandbox);
  use->bind(1, record.id.str());
  use->bind(2, to_string(record.state));
  use->bind(3, to_ns(record.started_at));
  use->bind(4, to_ns(record.end_at));
  use->bind(5, record.network);
  if (record.allow_internet) use->bind(6, std::int64_t(*record.allow_internet));
  use->bind(7, std::int64_t(record.auto_pause));
  use->bind(8, std::int64_t(record.memory_kept));
  use->bind(9, record.boot_id);
  use->bind(10, to_string(record.memory_tier));
  use->bind(11, record.memory_reason);
  use->bind(12, std::int64_t(record.memory_bytes));
  use->bind(13, record.snapshot_id);
  use->bind(14, record.rollback_id);
  written_ = true;
  ATOLL_TRY(use->run());
  if (main_.changes() == 0)
    return make_error(Errc::not_found, "no sandbox " + record.id.str() + " in the store");
  return {};
}

Result<std::vector<SandboxRecord>> Store::live_sandboxes() {
  std::lock_guard lock(mutex_);
  Use use(statements_->live_sandboxes);
  std::vector<SandboxRecord> records;
  for (;;) {
    ATOLL_TRY_ASSIGN(const bool there, use->step());
    if (!there) return records;
    ATOLL_TRY_ASSIGN(SandboxRecord record, read_sandbox(use));
    records.push_back(std::move(record));
  }
}

Result<std::optional<SandboxRecord>> Store::find_sandbox(const SandboxId& id) {
  std::lock_guard lock(mutex_);
  Use use(statements_->find_sandbox);
  use->bind(1, id.str());
  ATOLL_TRY_ASSIGN(const bool there, use->step());
  if (!there) return std::optional<SandboxRecord>();
  ATOLL_TRY_ASSIGN(SandboxRecord record, read_sandbox(use));
  return std::optional<SandboxRecord>(std::move(record));
}

// In steps of a few sandboxes (the statements say how many): others wait for the lock no longer
// than one takes.
Result<std::int64_t> Store::purge_killed(Timestamp before) {
  std::int64_t forgotten = 0;
  for (std::int64_t step = 1; step > 0; forgotten += step) {
    std::lock_guard lock(mutex_);
    ATOLL_TRY(in_transaction([&]() -> Result<void> {
      for (Statement* statement :
           {&statements_->forget_metrics, &statements_->forget_logs, &statements_->purge_killed}) {
        Use use(*statement);
        use->bind(1, to_ns(before));
        ATOLL_TRY(use->run());
        step = main_.changes();
      }
      return {};
    }));
  }
  return forgotten;
}

}  // namespace atl::store
