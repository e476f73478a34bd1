#include "store/statements.h"

namespace atl::store {
namespace {

KeyRecord read_key(Use& use) {
  KeyRecord key;
  key.id = use->text(0);
  key.team_id = use->text(1);
  key.name = use->text(2);
  key.prefix = use->text(3);
  key.value_length = int(use->integer(4));
  key.mask_prefix = use->text(5);
  key.mask_suffix = use->text(6);
  key.created_at = from_ns(use->integer(7));
  if (!use->is_null(8)) key.last_used = from_ns(use->integer(8));
  return key;
}

TeamRecord read_team(Use& use) {
  return TeamRecord{use->text(0), use->text(1), from_ns(use->integer(2))};
}

}  // namespace

Result<TeamRecord> Store::create_team(const std::string& name) {
  std::lock_guard lock(mutex_);
  {
    Use find(statements_->find_team);
    find->bind(1, name);
    ATOLL_TRY_ASSIGN(const bool taken, find->step());
    if (taken) return make_error(Errc::already_exists, "there is a team '" + name + "' already");
  }
  TeamRecord team{random_uuid4(), name, now()};
  Use use(statements_->insert_team);
  use->bind(1, team.id);
  use->bind(2, team.name);
  use->bind(3, to_ns(team.created_at));
  written_ = true;
  ATOLL_TRY(use->run());
  return team;
}

Result<std::vector<TeamRecord>> Store::list_teams() {
  std::lock_guard lock(mutex_);
  Use use(statements_->list_teams);
  std::vector<TeamRecord> teams;
  for (;;) {
    ATOLL_TRY_ASSIGN(const bool there, use->step());
    if (!there) return teams;
    teams.push_back(read_team(use));
  }
}

Result<std::optional<TeamRecord>> Store::find_team(const std::string& id_or_name) {
  std::lock_guard lock(mutex_);
  Use use(statements_->find_team);
  use->bind(1, id_or_name);
  ATOLL_TRY_ASSIGN(const bool there, use->step());
  if (!there) return std::optional<TeamRecord>();
  return std::optional<TeamRecord>(read_team(use));
}

Result<void> Store::insert_key(const KeyRecord& key, const std::string& hash) {
  std::lock_guard lock(mutex_);
  Use use(statements_->insert_key);
  use->bind(1, key.id);
  use->bind(2, key.team_id);
  use->bind(3, key.name);
  use->bind(4, key.prefix);
  use->bind(5, std::int64_t(key.value_length));
  use->bind(6, key.mask_prefix);
  use->bind(7, key.mask_suffix);
  use->bind(8, to_ns(key.created_at));
  if (key.last_used) use->bind(9, to_ns(*key.last_used));
  use->bind(10, hash);
  written_ = true;
  return use->run();
}

Result<std::optional<KeyRecord>> Store::key_by_hash(const std::string& hash) {
  std::lock_guard lock(mutex_);
  Use use(statements_->key_by_hash);
  use->bind(1, hash);
  ATOLL_TRY_ASSIGN(const bool there, use->step());
  if (!there) return std::optional<KeyRecord>();
  return std::optional<KeyRecord>(read_key(use));
}

Result<std::vector<KeyRecord>> Store::list_keys(const std::string& team_id) {
  std::lock_guard lock(mutex_);
  Use use(statements_->list_keys);
  use->bind(1, team_id);
  std::vector<KeyRecord> keys;
  for (;;) {
    ATOLL_TRY_ASSIGN(const bool there, use->step());
    if (!there) return keys;
    keys.push_back(read_key(use));
  }
}

Result<bool> Store::delete_key(const std::string& team_id, const std::string& key_id) {
  std::lock_guard lock(mutex_);
  Use use(statements_->delete_key);
  use->bind(1, team_id);
  use->bind(2, key_id);
  written_ = true;
  ATOLL_TRY(use->run());
  touched_.erase(key_id);
  return main_.changes() > 0;
}

Result<void> Store::touch_key(const std::string& key_id, Timestamp at) {
  std::lock_guard lock(mutex_);
  Timestamp& last = touched_[key_id];
  if (at - last < std::chrono::minutes(1)) return {};
  last = at;
  Use use(statements_->touch_key);
  use->bind(1, key_id);
  use->bind(2, to_ns(at));
  written_ = true;
  return use->run();
}

Result<bool> Store::rename_key(const std::string& team_id, const std::string& key_id,
                               const std::string& name) {
  std::lock_guard lock(mutex_);
  Use use(statements_->rename_key);
  use->bind(1, team_id);
  use->bind(2, key_id);
  use->bind(3, name);
  written_ = true;
  ATOLL_TRY(use->run());
  return main_.changes() > 0;
}

Result<void> Store::insert_audit(const AuditRecord& record) {
  std::lock_guard lock(mutex_);
  return write_audit(record);
}

Result<void> Store::write_audit(const AuditRecord& record) {
  Use use(statements_->insert_audit);
  use->bind(1, to_ns(record.at));
  use->bind(2, record.team_id);
  use->bind(3, record.key_id);
  use->bind(4, record.action);
  use->bind(5, record.subject);
  use->bind(6, record.detail);
  use->bind(7, record.peer);
  written_ = true;
  return use->run();
}

Result<std::vector<AuditRecord>> Store::audit(const AuditFilter& filter) {
  std::lock_guard lock(mutex_);
  Use use(statements_->audit);
  use->bind(1, filter.team_id);
  use->bind(2, filter.subject);
  use->bind(3, filter.from ? to_ns(*filter.from) : 0);
  use->bind(4, std::int64_t(filter.limit));
  std::vector<AuditRecord> records;
  for (;;) {
    ATOLL_TRY_ASSIGN(const bool there, use->step());
    if (!there) return records;
    records.push_back(AuditRecord{from_ns(use->integer(0)), use->text(1), use->text(2),
                                  use->text(3), use->text(4), use->text(5), use->text(6)});
  }
}

Result<std::int64_t> Store::purge_audit(Timestamp before) {
  std::lock_guard lock(mutex_);
  Use use(statements_->purge_audit);
  use->bind(1, to_ns(before));
  written_ = true;
  ATOLL_TRY(use->run());
  return main_.changes();
}

}  // namespace atl::store
