#include "store/statements.h"

namespace atl::store {
namespace {

void bind_snapshot(Use& use, const SnapshotRecord& r) {
  int i = 0;
  use->bind(++i, r.id);
  use->bind(++i, r.team_id);
  use->bind(++i, r.template_id);
  use->bind(++i, r.alias);
  use->bind(++i, r.tag);
  use->bind(++i, r.build_id);
  use->bind(++i, to_string(r.state));
  use->bind(++i, std::int64_t(r.internal));
  use->bind(++i, std::int64_t(r.memory));
  use->bind(++i, r.sandbox_id);
  use->bind(++i, r.base);
  use->bind(++i, to_ns(r.created_at));
  use->bind(++i, std::int64_t(r.memory_bytes));
  use->bind(++i, std::int64_t(r.disk_bytes));
  use->bind(++i, r.template_dir);
  use->bind(++i, r.template_build);
  use->bind(++i, r.envd_version);
  use->bind(++i, r.boot_id);
  use->bind(++i, r.start_command);
  use->bind(++i, r.default_user);
  use->bind(++i, to_json(r.envs));
  use->bind(++i, r.agent_seq);
  use->bind(++i, std::int64_t(r.cpu_count));
  use->bind(++i, std::int64_t(r.memory_mb));
  use->bind(++i, std::int64_t(r.disk_mb));
}

Result<SnapshotRecord> read_snapshot(Use& use) {
  const auto state = parse_snapshot_state(use->text(6));
  if (!state) return make_error(Errc::data_loss, "a snapshot in the store has a bad state");
  SnapshotRecord r;
  r.id = use->text(0);
  r.team_id = use->text(1);
  r.template_id = use->text(2);
  r.alias = use->text(3);
  r.tag = use->text(4);
  r.build_id = use->text(5);
  r.state = *state;
  r.internal = use->integer(7) != 0;
  r.memory = use->integer(8) != 0;
  r.sandbox_id = use->text(9);
  r.base = use->text(10);
  r.created_at = from_ns(use->integer(11));
  r.memory_bytes = std::uint64_t(use->integer(12));
  r.disk_bytes = std::uint64_t(use->integer(13));
  r.template_dir = use->text(14);
  r.template_build = use->text(15);
  r.envd_version = use->text(16);
  r.boot_id = use->text(17);
  r.start_command = use->text(18);
  r.default_user = use->text(19);
  ATOLL_TRY_ASSIGN(r.envs, map_from_json(use->text(20)));
  r.agent_seq = use->integer(21);
  r.cpu_count = std::uint32_t(use->integer(22));
  r.memory_mb = std::uint32_t(use->integer(23));
  r.disk_mb = std::uint32_t(use->integer(24));
  return r;
}

}  // namespace

Result<void> Store::insert_snapshot(const SnapshotRecord& record) {
  std::lock_guard lock(mutex_);
  Use use(statements_->insert_snapshot);
  bind_snapshot(use, record);
  written_ = true;
  return use->run();
}

Result<void> Store::update_snapshots(const std::vector<SnapshotRecord>& records) {
  std::lock_guard lock(mutex_);
  return in_transaction([&]() -> Result<void> {
    for (const SnapshotRecord& record : records) {
      Use use(statements_->update_snapshot);
      use->bind(1, record.id);
      use->bind(2, to_string(record.state));
      use->bind(3, record.base);
      use->bind(4, std::int64_t(record.memory_bytes));
      use->bind(5, std::int64_t(record.disk_bytes));
      ATOLL_TRY(use->run());
      if (main_.changes() == 0)
        return make_error(Errc::not_found, "no snapshot " + record.id + " in the store");
    }
    return {};
  });
}

Result<void> Store::delete_snapshot(const std::string& id) {
  std::lock_guard lock(mutex_);
  Use use(statements_->delete_snapshot);
  use->bind(1, id);
  written_ = true;
  return use->run();
}

Result<std::vector<SnapshotRecord>> Store::list_snapshots() {
  std::lock_guard lock(mutex_);
  Use use(statements_->list_snapshots);
  std::vector<SnapshotRecord> records;
  for (;;) {
    ATOLL_TRY_ASSIGN(const bool there, use->step());
    if (!there) return records;
    ATOLL_TRY_ASSIGN(SnapshotRecord record, read_snapshot(use));
    records.push_back(std::move(record));
  }
}

}  // namespace atl::store
