#include "store/store.h"

#include <iterator>

#include "base/json.h"

namespace atl::store {
namespace {

// One entry per schema version, in order. Old entries never change: files in the field have run
// them.
constexpr const char* kMigrations[] = {
    // 1
    R"sql(
CREATE TABLE teams (
  id TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  created_ns INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE api_keys (
  id TEXT PRIMARY KEY,
  team_id TEXT NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
  name TEXT NOT NULL,
  hash TEXT NOT NULL UNIQUE,
  prefix TEXT NOT NULL,
  value_length INTEGER NOT NULL,
  mask_prefix TEXT NOT NULL,
  mask_suffix TEXT NOT NULL,
  created_ns INTEGER NOT NULL,
  last_used_ns INTEGER
) STRICT, WITHOUT ROWID;
CREATE TABLE sandboxes (
  id TEXT PRIMARY KEY,
  team_id TEXT NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
  key_id TEXT NOT NULL,
  template_id TEXT NOT NULL,
  template_dir TEXT NOT NULL,
  build_id TEXT NOT NULL,
  alias TEXT NOT NULL,
  envd_version TEXT NOT NULL,
  boot_id TEXT NOT NULL,
  state TEXT NOT NULL,
  created_ns INTEGER NOT NULL,
  started_ns INTEGER NOT NULL,
  end_ns INTEGER NOT NULL,
  timeout_s INTEGER NOT NULL,
  metadata TEXT NOT NULL,
  envs TEXT NOT NULL,
  network TEXT NOT NULL,
  secure INTEGER NOT NULL,
  allow_public_traffic INTEGER NOT NULL,
  auto_pause INTEGER NOT NULL,
  auto_pause_memory INTEGER NOT NULL,
  auto_resume INTEGER NOT NULL,
  allow_internet INTEGER,
  cpu_count INTEGER NOT NULL,
  memory_mb INTEGER NOT NULL,
  disk_mb INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX sandboxes_by_state ON sandboxes (state, created_ns);
)sql",
};
constexpr int kSchemaVersion = int(std::size(kMigrations));

constexpr const char* kSandboxColumns =
    "id, team_id, key_id, template_id, template_dir, build_id, alias, envd_version, boot_id, "
    "state, created_ns, "
    "started_ns, end_ns, timeout_s, metadata, envs, network, secure, allow_public_traffic, "
    "auto_pause, "
    "auto_pause_memory, auto_resume, allow_internet, cpu_count, memory_mb, disk_mb";
constexpr const char* kKeyColumns =
    "id, team_id, name, prefix, value_length, mask_prefix, mask_suffix, created_ns, last_used_ns";

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
  return r;
}

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

}  // namespace

struct Store::Statements {
  Statement insert_key, key_by_hash, list_keys, delete_key, touch_key;
  Statement insert_sandbox, update_sandbox, live_sandboxes, find_sandbox, purge_killed;
};

Store::Store(Database main, Database maintenance)
    : main_(std::move(main)), maintenance_(std::move(maintenance)) {}
Store::~Store() = default;

Result<std::unique_ptr<Store>> Store::open(const std::string& path) {
  ATOLL_TRY_ASSIGN(Database main, Database::open(path));
  // Checkpoints are ours to time: an automatic one would fsync inside whichever request crosses the
  // limit.
  ATOLL_TRY(
      main.exec("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON; "
                "PRAGMA wal_autocheckpoint=0; PRAGMA trusted_schema=OFF;"));
  ATOLL_TRY_ASSIGN(Database maintenance, Database::open(path));
  std::unique_ptr<Store> store(new Store(std::move(main), std::move(maintenance)));
  ATOLL_TRY(store->migrate());
  ATOLL_TRY(store->load_default_team());
  ATOLL_TRY(store->prepare());
  return store;
}

Result<void> Store::migrate() {
  // IMMEDIATE: two processes that open a new file at the same moment run the migrations one after
  // the other.
  ATOLL_TRY(main_.exec("BEGIN IMMEDIATE"));
  auto run = [this]() -> Result<void> {
    int version = 0;
    {
      ATOLL_TRY_ASSIGN(Statement read, main_.prepare("PRAGMA user_version"));
      ATOLL_TRY(read.step());
      version = int(read.integer(0));
    }
    if (version > kSchemaVersion) {
      return make_error(Errc::failed_precondition,
                        "the state file has schema version " + std::to_string(version) +
                            ", this program knows up to " + std::to_string(kSchemaVersion) +
                            ": use the newer program");
    }
    for (; version < kSchemaVersion; ++version) {
      ATOLL_TRY(main_.exec(kMigrations[version]));
      ATOLL_TRY(main_.exec("PRAGMA user_version=" + std::to_string(version + 1)));
    }
    return {};
  };
  if (auto done = run(); !done.ok()) {
    (void)main_.exec("ROLLBACK");  // the first error is the one to tell
    return std::move(done).error().with("migrate the state file");
  }
  return main_.exec("COMMIT");
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
  ATOLL_TRY_ASSIGN(s.insert_sandbox,
                   main_.prepare("INSERT INTO sandboxes (" + sandbox +
                                 ") VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"));
  ATOLL_TRY_ASSIGN(s.update_sandbox,
                   main_.prepare("UPDATE sandboxes SET state=?2, started_ns=?3, end_ns=?4, "
                                 "network=?5, allow_internet=?6, auto_pause=?7 WHERE id=?1"));
  ATOLL_TRY_ASSIGN(s.live_sandboxes,
                   main_.prepare("SELECT " + sandbox +
                                 " FROM sandboxes WHERE state<>'killed' ORDER BY created_ns, id"));
  ATOLL_TRY_ASSIGN(s.find_sandbox,
                   main_.prepare("SELECT " + sandbox + " FROM sandboxes WHERE id=?"));
  ATOLL_TRY_ASSIGN(s.purge_killed,
                   main_.prepare("DELETE FROM sandboxes WHERE state='killed' AND created_ns<?"));
  return {};
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

Result<void> Store::insert_sandbox(const SandboxRecord& record) {
  std::lock_guard lock(mutex_);
  Use use(statements_->insert_sandbox);
  bind_sandbox(use, record);
  written_ = true;
  return use->run();
}

Result<void> Store::update_sandbox(const SandboxRecord& record) {
  std::lock_guard lock(mutex_);
  Use use(statements_->update_sandbox);
  use->bind(1, record.id.str());
  use->bind(2, to_string(record.state));
  use->bind(3, to_ns(record.started_at));
  use->bind(4, to_ns(record.end_at));
  use->bind(5, record.network);
  if (record.allow_internet) use->bind(6, std::int64_t(*record.allow_internet));
  use->bind(7, std::int64_t(record.auto_pause));
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

Result<std::int64_t> Store::purge_killed(Timestamp before) {
  std::lock_guard lock(mutex_);
  Use use(statements_->purge_killed);
  use->bind(1, to_ns(before));
  written_ = true;
  ATOLL_TRY(use->run());
  return main_.changes();
}

Result<bool> Store::checkpoint() {
  std::lock_guard lock(maintenance_mutex_);
  if (!written_.exchange(false)) return false;
  // PASSIVE never waits for readers or writers; what it cannot move yet, the next call moves.
  ATOLL_TRY(maintenance_.exec("PRAGMA wal_checkpoint(PASSIVE)"));
  return true;
}

}  // namespace atl::store
