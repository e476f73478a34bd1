#include "store/session_rows.h"

#include <algorithm>

#include "base/ids.h"
#include "store/store.h"

namespace atl::store {
namespace {

constexpr const char* kSelect =
    "SELECT team, key, version, ready, node, claim, lease_ns, sandbox_id, options, created_ns, "
    "used_ns FROM sessions ";

SessionRecord read_session(Use& use) {
  SessionRecord r;
  r.team = use->text(0);
  r.key = use->text(1);
  r.version = use->text(2);
  r.ready = use->integer(3) != 0;
  r.node = use->text(4);
  r.claim = use->text(5);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(from_ns(use->integer(6)) - now());
  r.lease = std::max(left, std::chrono::milliseconds(0));
  r.sandbox_id = use->text(7);
  r.options = use->text(8);
  r.created_at = from_ns(use->integer(9));
  r.used_at = from_ns(use->integer(10));
  return r;
}

void bind_session(Use& use, const SessionRecord& r, const std::string& version) {
  use->bind(1, r.team);
  use->bind(2, r.key);
  use->bind(3, version);
  use->bind(4, std::int64_t(r.ready));
  use->bind(5, r.node);
  use->bind(6, r.claim);
  use->bind(7, r.lease.count() > 0 ? to_ns(now() + r.lease) : 0);
  use->bind(8, r.sandbox_id);
  use->bind(9, r.options);
  use->bind(10, to_ns(r.created_at));
  use->bind(11, to_ns(r.used_at));
}

}  // namespace

struct SessionRows::Statements {
  Statement get, insert, update, remove, list, key_hashes;
};

SessionRows::SessionRows(Store& store, std::unique_ptr<Statements> statements)
    : store_(store), statements_(std::move(statements)) {}
SessionRows::~SessionRows() = default;

Result<std::unique_ptr<SessionRows>> SessionRows::open(Store& store) {
  std::lock_guard lock(store.mutex_);
  auto s = std::make_unique<Statements>();
  const std::string select = kSelect;
  Database& database = store.main_;
  ATOLL_TRY_ASSIGN(s->get, database.prepare(select + "WHERE team=? AND key=?"));
  ATOLL_TRY_ASSIGN(
      s->insert,
      database.prepare("INSERT INTO sessions (team, key, version, ready, node, claim, lease_ns, "
                       "sandbox_id, options, created_ns, used_ns) "
                       "VALUES (?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING"));
  ATOLL_TRY_ASSIGN(
      s->update,
      database.prepare("UPDATE sessions SET version=?3, ready=?4, node=?5, claim=?6, lease_ns=?7, "
                       "sandbox_id=?8, options=?9, created_ns=?10, used_ns=?11 "
                       "WHERE team=?1 AND key=?2 AND version=?12"));
  ATOLL_TRY_ASSIGN(s->remove,
                   database.prepare("DELETE FROM sessions WHERE team=? AND key=? AND version=?"));
  ATOLL_TRY_ASSIGN(
      s->list, database.prepare(select + "WHERE ?1='' OR team=?1 ORDER BY created_ns, team, key"));
  ATOLL_TRY_ASSIGN(s->key_hashes,
                   database.prepare("SELECT hash, teams.name FROM api_keys JOIN teams ON "
                                    "teams.id=api_keys.team_id ORDER BY hash"));
  return std::unique_ptr<SessionRows>(new SessionRows(store, std::move(s)));
}

Result<std::optional<SessionRecord>> SessionRows::get(const std::string& team,
                                                      const std::string& key) {
  std::lock_guard lock(store_.mutex_);
  Use use(statements_->get);
  use->bind(1, team);
  use->bind(2, key);
  ATOLL_TRY_ASSIGN(const bool there, use->step());
  if (!there) return std::optional<SessionRecord>();
  return std::optional<SessionRecord>(read_session(use));
}

Result<std::optional<std::string>> SessionRows::put(const SessionRecord& record) {
  const std::string version = random_hex(8);
  std::lock_guard lock(store_.mutex_);
  Use use(record.version.empty() ? statements_->insert : statements_->update);
  bind_session(use, record, version);
  if (!record.version.empty()) use->bind(12, record.version);
  store_.written_ = true;
  ATOLL_TRY(use->run());
  if (store_.main_.changes() == 0) return std::optional<std::string>();
  return std::optional<std::string>(version);
}

Result<bool> SessionRows::remove(const std::string& team, const std::string& key,
                                 const std::string& version) {
  std::lock_guard lock(store_.mutex_);
  Use use(statements_->remove);
  use->bind(1, team);
  use->bind(2, key);
  use->bind(3, version);
  store_.written_ = true;
  ATOLL_TRY(use->run());
  return store_.main_.changes() > 0;
}

Result<std::vector<SessionRecord>> SessionRows::list(const std::string& team) {
  std::lock_guard lock(store_.mutex_);
  Use use(statements_->list);
  use->bind(1, team);
  std::vector<SessionRecord> records;
  for (;;) {
    ATOLL_TRY_ASSIGN(const bool there, use->step());
    if (!there) return records;
    records.push_back(read_session(use));
  }
}

Result<std::vector<KeyHash>> SessionRows::key_hashes() {
  std::lock_guard lock(store_.mutex_);
  Use use(statements_->key_hashes);
  std::vector<KeyHash> out;
  for (;;) {
    ATOLL_TRY_ASSIGN(const bool there, use->step());
    if (!there) return out;
    out.push_back({use->text(0), use->text(1)});
  }
}

}  // namespace atl::store
