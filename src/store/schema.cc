#include "store/schema.h"

#include <iterator>

namespace atl::store {
namespace {

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
    // 2
    R"sql(
ALTER TABLE sandboxes ADD COLUMN memory_kept INTEGER NOT NULL DEFAULT 1;
ALTER TABLE sandboxes ADD COLUMN start_command TEXT NOT NULL DEFAULT '';
ALTER TABLE sandboxes ADD COLUMN default_user TEXT NOT NULL DEFAULT 'user';
ALTER TABLE sandboxes ADD COLUMN mask_request_host TEXT NOT NULL DEFAULT '';
CREATE TABLE metrics (
  id INTEGER PRIMARY KEY,
  sandbox_id TEXT NOT NULL,
  at_ns INTEGER NOT NULL,
  coarse INTEGER NOT NULL,
  cpu_count INTEGER NOT NULL,
  cpu_pct REAL NOT NULL,
  mem_used INTEGER NOT NULL,
  mem_total INTEGER NOT NULL,
  mem_cache INTEGER NOT NULL,
  disk_used INTEGER NOT NULL,
  disk_total INTEGER NOT NULL
) STRICT;
CREATE INDEX metrics_by_sandbox ON metrics (sandbox_id, at_ns);
CREATE INDEX metrics_by_age ON metrics (coarse, at_ns);
CREATE TABLE logs (
  id INTEGER PRIMARY KEY,
  sandbox_id TEXT NOT NULL,
  at_ns INTEGER NOT NULL,
  level INTEGER NOT NULL,
  message TEXT NOT NULL,
  fields TEXT NOT NULL,
  boot_id TEXT,
  agent_seq INTEGER
) STRICT;
CREATE INDEX logs_by_sandbox ON logs (sandbox_id, at_ns, id);
CREATE TABLE audit (
  id INTEGER PRIMARY KEY,
  at_ns INTEGER NOT NULL,
  team_id TEXT NOT NULL,
  key_id TEXT NOT NULL,
  action TEXT NOT NULL,
  subject TEXT NOT NULL,
  detail TEXT NOT NULL,
  peer TEXT NOT NULL
) STRICT;
CREATE INDEX audit_by_age ON audit (at_ns);
)sql",
    // 3
    R"sql(
ALTER TABLE sandboxes ADD COLUMN memory_tier TEXT NOT NULL DEFAULT 'none';
ALTER TABLE sandboxes ADD COLUMN memory_reason TEXT NOT NULL DEFAULT '';
ALTER TABLE sandboxes ADD COLUMN memory_bytes INTEGER NOT NULL DEFAULT 0;
)sql",
    // 4
    R"sql(
ALTER TABLE sandboxes ADD COLUMN snapshot_id TEXT NOT NULL DEFAULT '';
ALTER TABLE sandboxes ADD COLUMN rollback_id TEXT NOT NULL DEFAULT '';
CREATE TABLE snapshots (
  id TEXT PRIMARY KEY,
  team_id TEXT NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
  template_id TEXT NOT NULL,
  alias TEXT NOT NULL,
  tag TEXT NOT NULL,
  build_id TEXT NOT NULL,
  state TEXT NOT NULL,
  internal INTEGER NOT NULL,
  memory INTEGER NOT NULL,
  sandbox_id TEXT NOT NULL,
  base TEXT NOT NULL,
  created_ns INTEGER NOT NULL,
  memory_bytes INTEGER NOT NULL,
  disk_bytes INTEGER NOT NULL,
  template_dir TEXT NOT NULL,
  template_build TEXT NOT NULL,
  envd_version TEXT NOT NULL,
  boot_id TEXT NOT NULL,
  start_command TEXT NOT NULL,
  default_user TEXT NOT NULL,
  envs TEXT NOT NULL,
  agent_seq INTEGER NOT NULL,
  cpu_count INTEGER NOT NULL,
  memory_mb INTEGER NOT NULL,
  disk_mb INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
)sql",
    // 5
    R"sql(
ALTER TABLE sandboxes ADD COLUMN hostname TEXT NOT NULL DEFAULT 'e2b';
)sql",
    // 6
    R"sql(
CREATE TABLE sessions (
  team TEXT NOT NULL,
  key TEXT NOT NULL,
  version TEXT NOT NULL,
  ready INTEGER NOT NULL,
  node TEXT NOT NULL,
  claim TEXT NOT NULL,
  lease_ns INTEGER NOT NULL,
  sandbox_id TEXT NOT NULL,
  options TEXT NOT NULL,
  created_ns INTEGER NOT NULL,
  used_ns INTEGER NOT NULL,
  PRIMARY KEY (team, key)
) STRICT, WITHOUT ROWID;
)sql",
    // 7
    R"sql(
CREATE TABLE providers (
  team_id TEXT NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
  provider TEXT NOT NULL,
  config TEXT NOT NULL,
  secrets TEXT NOT NULL,
  updated_ns INTEGER NOT NULL,
  PRIMARY KEY (team_id, provider)
) STRICT, WITHOUT ROWID;
CREATE TABLE active_providers (
  team_id TEXT PRIMARY KEY REFERENCES teams (id) ON DELETE CASCADE,
  provider TEXT NOT NULL
) STRICT, WITHOUT ROWID;
)sql",
};
constexpr int kSchemaVersion = int(std::size(kMigrations));

Result<void> run(Database& database) {
  int version = 0;
  {
    ATOLL_TRY_ASSIGN(Statement read, database.prepare("PRAGMA user_version"));
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
    ATOLL_TRY(database.exec(kMigrations[version]));
    ATOLL_TRY(database.exec("PRAGMA user_version=" + std::to_string(version + 1)));
  }
  return {};
}

}  // namespace

std::span<const char* const> migrations() { return kMigrations; }

Result<void> migrate(Database& database) {
  // IMMEDIATE: two processes that open a new file at the same moment run the migrations one after
  // the other.
  ATOLL_TRY(database.exec("BEGIN IMMEDIATE"));
  if (auto done = run(database); !done.ok()) {
    (void)database.exec("ROLLBACK");  // the first error is the one to tell
    return std::move(done).error().with("migrate the state file");
  }
  return database.exec("COMMIT");
}

}  // namespace atl::store
