#include "store/store.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/json.h"
#include "store/schema.h"
#include "store/statements.h"

namespace atl::store {
namespace {

constexpr const char* kSandboxColumns =
    "id, team_id, key_id, template_id, template_dir, build_id, alias, envd_version, boot_id, "
    "state, created_ns, "
    "started_ns, end_ns, timeout_s, metadata, envs, network, secure, allow_public_traffic, "
    "auto_pause, "
    "auto_pause_memory, auto_resume, allow_internet, cpu_count, memory_mb, disk_mb, memory_kept, "
    "start_command, default_user, mask_request_host, memory_tier, memory_reason, memory_bytes, "
    "snapshot_id, rollback_id, hostname";
constexpr const char* kKeyColumns =
    "id, team_id, name, prefix, value_length, mask_prefix, mask_suffix, created_ns, last_used_ns";

}  // namespace

std::string to_json(const StringMap& map) {
  json::object object;
  for (const auto& [key, value] : map) object[key] = value;
  return json::serialize(object);
}

Result<StringMap> map_from_json(const std::string& text) {
  ATOLL_TRY_ASSIGN(json::value value, parse_json(text));
  StringMap map;
  if (!value.is_object()) return make_error(Errc::data_loss, "a map in the store is not an object");
  for (const auto& item : value.get_object()) {
    if (!item.value().is_string())
      return make_error(Errc::data_loss, "a map in the store holds a non-string");
    map.emplace(std::string(item.key()), std::string(item.value().get_string()));
  }
  return map;
}

Store::Store(std::string path, Database main, Database maintenance)
    : path_(std::move(path)), main_(std::move(main)), maintenance_(std::move(maintenance)) {}
Store::~Store() = default;

Result<std::unique_ptr<Store>> Store::open(const std::string& path) {
  ATOLL_TRY_ASSIGN(Database main, Database::open(path));
  // Checkpoints are ours to time: an automatic one would fsync inside whichever request crosses the
  // limit.
  ATOLL_TRY(
      main.exec("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON; "
                "PRAGMA wal_autocheckpoint=0; PRAGMA trusted_schema=OFF;"));
  ATOLL_TRY_ASSIGN(Database maintenance, Database::open(path));
  std::unique_ptr<Store> store(new Store(path, std::move(main), std::move(maintenance)));
  ATOLL_TRY(migrate(store->main_));
  ATOLL_TRY(store->load_default_team());
  ATOLL_TRY(store->prepare());
  return store;
}

Result<void> Store::load_default_team() {
  ATOLL_TRY(main_.exec("BEGIN IMMEDIATE"));
  auto run = [this]() -> Result<void> {
    ATOLL_TRY_ASSIGN(Statement find,
                     main_.prepare("SELECT id, name, created_ns FROM teams WHERE name='default'"));
    ATOLL_TRY_ASSIGN(const bool there, find.step());
    if (there) {
      default_team_ = TeamRecord{find.text(0), find.text(1), from_ns(find.integer(2))};
      return {};
    }
    default_team_ = TeamRecord{random_uuid4(), "default", now()};
    ATOLL_TRY_ASSIGN(Statement insert,
                     main_.prepare("INSERT INTO teams (id, name, created_ns) VALUES (?, ?, ?)"));
    insert.bind(1, default_team_.id);
    insert.bind(2, default_team_.name);
    insert.bind(3, to_ns(default_team_.created_at));
    return insert.run();
  };
  if (auto done = run(); !done.ok()) {
    (void)main_.exec("ROLLBACK");  // the first error is the one to tell
    return std::move(done).error().with("default team");
  }
  return main_.exec("COMMIT");
}

Result<void> Store::prepare() {
  statements_ = std::make_unique<Statements>();
  Statements& s = *statements_;
  const std::string sandbox = kSandboxColumns;
  const std::string key = kKeyColumns;
  ATOLL_TRY_ASSIGN(s.insert_key,
                   main_.prepare("INSERT INTO api_keys (" + key +
                                 ", hash) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)"));
  ATOLL_TRY_ASSIGN(s.key_by_hash, main_.prepare("SELECT " + key + " FROM api_keys WHERE hash=?"));
  ATOLL_TRY_ASSIGN(
      s.list_keys,
      main_.prepare("SELECT " + key + " FROM api_keys WHERE team_id=? ORDER BY created_ns, id"));
  ATOLL_TRY_ASSIGN(s.delete_key, main_.prepare("DELETE FROM api_keys WHERE team_id=? AND id=?"));
  ATOLL_TRY_ASSIGN(s.touch_key, main_.prepare("UPDATE api_keys SET last_used_ns=?2 WHERE id=?1"));
  ATOLL_TRY_ASSIGN(
      s.insert_sandbox,
      main_.prepare(
          "INSERT INTO sandboxes (" + sandbox +
          ") VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"));
  ATOLL_TRY_ASSIGN(
      s.update_sandbox,
      main_.prepare("UPDATE sandboxes SET state=?2, started_ns=?3, end_ns=?4, "
                    "network=?5, allow_internet=?6, auto_pause=?7, memory_kept=?8, "
                    "boot_id=?9, memory_tier=?10, memory_reason=?11, memory_bytes=?12, "
                    "snapshot_id=?13, rollback_id=?14 "
                    "WHERE id=?1"));
  ATOLL_TRY_ASSIGN(s.live_sandboxes,
                   main_.prepare("SELECT " + sandbox +
                                 " FROM sandboxes WHERE state<>'killed' ORDER BY created_ns, id"));
  ATOLL_TRY_ASSIGN(s.find_sandbox,
                   main_.prepare("SELECT " + sandbox + " FROM sandboxes WHERE id=?"));
  const auto prepare_all =
      [this](std::initializer_list<std::pair<Statement*, const char*>> all) -> Result<void> {
    for (const auto& [statement, sql] : all) {
      ATOLL_TRY_ASSIGN(*statement, main_.prepare(sql));
    }
    return {};
  };
  return prepare_all({
      {&s.begin, "BEGIN IMMEDIATE"},
      {&s.commit, "COMMIT"},
      {&s.rollback, "ROLLBACK"},
      {&s.insert_team, "INSERT INTO teams (id, name, created_ns) VALUES (?, ?, ?)"},
      {&s.list_teams, "SELECT id, name, created_ns FROM teams ORDER BY created_ns, id"},
      {&s.find_team, "SELECT id, name, created_ns FROM teams WHERE id=?1 OR name=?1"},
      {&s.rename_key, "UPDATE api_keys SET name=?3 WHERE team_id=?1 AND id=?2"},
      {&s.purge_killed,
       "DELETE FROM sandboxes WHERE id IN (SELECT id FROM sandboxes WHERE state='killed' AND "
       "max(created_ns, end_ns)<? ORDER BY id LIMIT 20)"},
      {&s.insert_metric,
       "INSERT INTO metrics (sandbox_id, at_ns, coarse, cpu_count, cpu_pct, mem_used, mem_total, "
       "mem_cache, disk_used, disk_total) VALUES (?,?,?,?,?,?,?,?,?,?)"},
      {&s.metrics,
       "SELECT at_ns, cpu_count, cpu_pct, mem_used, mem_total, mem_cache, disk_used, disk_total "
       "FROM metrics WHERE sandbox_id=? AND at_ns>=? AND at_ns<=? ORDER BY at_ns DESC LIMIT ?"},
      {&s.purge_metrics,
       "DELETE FROM metrics WHERE id IN (SELECT id FROM metrics WHERE coarse=? AND at_ns<? "
       "LIMIT 500)"},
      {&s.forget_metrics,
       "DELETE FROM metrics WHERE sandbox_id IN (SELECT id FROM sandboxes WHERE state='killed' "
       "AND max(created_ns, end_ns)<? ORDER BY id LIMIT 20)"},
      {&s.insert_log,
       "INSERT INTO logs (sandbox_id, at_ns, level, message, fields, boot_id, agent_seq) "
       "VALUES (?,?,?,?,?,?,?)"},
      {&s.logs_forward,
       "SELECT at_ns, level, message, fields FROM logs WHERE sandbox_id=?1 AND at_ns>=?2 AND "
       "at_ns<=?3 AND level>=?4 AND (?5='' OR instr(message, ?5)>0) ORDER BY at_ns, id LIMIT ?6"},
      {&s.logs_backward,
       "SELECT at_ns, level, message, fields FROM logs WHERE sandbox_id=?1 AND at_ns>=?2 AND "
       "at_ns<=?3 AND level>=?4 AND (?5='' OR instr(message, ?5)>0) ORDER BY at_ns DESC, id DESC "
       "LIMIT ?6"},
      {&s.last_agent_seq, "SELECT max(agent_seq) FROM logs WHERE sandbox_id=? AND boot_id=?"},
      {&s.trim_logs,
       "DELETE FROM logs WHERE sandbox_id=?1 AND id<=(SELECT id FROM logs WHERE sandbox_id=?1 "
       "ORDER BY id DESC LIMIT 1 OFFSET ?2)"},
      {&s.forget_logs,
       "DELETE FROM logs WHERE sandbox_id IN (SELECT id FROM sandboxes WHERE state='killed' AND "
       "max(created_ns, end_ns)<? ORDER BY id LIMIT 20)"},
      {&s.insert_audit,
       "INSERT INTO audit (at_ns, team_id, key_id, action, subject, detail, peer) "
       "VALUES (?,?,?,?,?,?,?)"},
      {&s.audit,
       "SELECT at_ns, team_id, key_id, action, subject, detail, peer FROM audit WHERE "
       "(?1='' OR team_id=?1) AND (?2='' OR subject=?2) AND at_ns>=?3 ORDER BY at_ns DESC, id DESC "
       "LIMIT ?4"},
      {&s.purge_audit, "DELETE FROM audit WHERE at_ns<?"},
      {&s.insert_snapshot,
       "INSERT INTO snapshots (id, team_id, template_id, alias, tag, build_id, state, internal, "
       "memory, sandbox_id, base, created_ns, memory_bytes, disk_bytes, template_dir, "
       "template_build, envd_version, boot_id, start_command, default_user, envs, agent_seq, "
       "cpu_count, memory_mb, disk_mb) "
       "VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"},
      {&s.update_snapshot,
       "UPDATE snapshots SET state=?2, base=?3, memory_bytes=?4, disk_bytes=?5 WHERE id=?1"},
      {&s.delete_snapshot, "DELETE FROM snapshots WHERE id=?"},
      {&s.list_snapshots,
       "SELECT id, team_id, template_id, alias, tag, build_id, state, internal, memory, "
       "sandbox_id, base, created_ns, memory_bytes, disk_bytes, template_dir, template_build, "
       "envd_version, boot_id, start_command, default_user, envs, agent_seq, cpu_count, memory_mb, "
       "disk_mb FROM snapshots ORDER BY created_ns, id"},
      {&s.put_provider,
       "INSERT INTO providers (team_id, provider, config, secrets, updated_ns) "
       "VALUES (?1,?2,?3,?4,?5) ON CONFLICT (team_id, provider) DO UPDATE SET "
       "config=excluded.config, secrets=excluded.secrets, updated_ns=excluded.updated_ns"},
      {&s.find_provider,
       "SELECT team_id, provider, config, secrets, updated_ns FROM providers WHERE team_id=? AND "
       "provider=?"},
      {&s.list_providers,
       "SELECT team_id, provider, config, secrets, updated_ns FROM providers WHERE team_id=? "
       "ORDER BY provider"},
      {&s.delete_provider, "DELETE FROM providers WHERE team_id=? AND provider=?"},
      {&s.set_active_provider,
       "INSERT INTO active_providers (team_id, provider) VALUES (?1,?2) ON CONFLICT (team_id) DO "
       "UPDATE SET provider=excluded.provider"},
      {&s.active_provider, "SELECT provider FROM active_providers WHERE team_id=?"},
      {&s.clear_active_provider,
       "DELETE FROM active_providers WHERE team_id=?1 AND (?2='' OR provider=?2)"},
  });
}

Result<void> Store::in_transaction(const std::function<Result<void>()>& body) {
  const auto run = [](Statement& statement) {
    Use use(statement);
    return use->run();
  };
  written_ = true;
  ATOLL_TRY(run(statements_->begin));
  auto done = body();
  if (done.ok()) done = run(statements_->commit);
  if (!done.ok()) (void)run(statements_->rollback);  // the first error is the one to tell
  return done;
}

// SQLite keeps its locks on the other two files, so that this one may be opened and closed.
Result<void> Store::sync() {
  const std::size_t slash = path_.rfind('/');
  const std::string dir = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
  for (const std::string& path : {path_ + "-wal", dir}) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return errno_error("open " + path);
    const int failed = ::fdatasync(fd);
    const int error = errno;
    ::close(fd);
    if (failed != 0) return errno_error("sync " + path, error);
  }
  return {};
}

Result<bool> Store::checkpoint() {
  std::lock_guard lock(maintenance_mutex_);
  if (!written_.exchange(false)) return false;
  // PASSIVE never waits for readers or writers; what it cannot move yet, the next call moves.
  ATOLL_TRY(maintenance_.exec("PRAGMA wal_checkpoint(PASSIVE)"));
  return true;
}

}  // namespace atl::store
