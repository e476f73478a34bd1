// Store: the server's records in one SQLite file.
//
// Thread-safe; every call takes a mutex, runs one short transaction and returns (tens of
// microseconds: WAL without fsync per commit, and no checkpoint inside a request), so callers on
// the I/O threads may call it directly. The exceptions are `checkpoint()` and `sync()`, which wait
// for the disk: call them from a thread that may block.
//
// Several processes may open the same file (the command line adds keys while the server runs).
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "store/records.h"
#include "store/sqlite.h"

namespace atl::store {

// A sample of one sandbox. Coarse ones are kept for long, the others for the last hours.
struct Sample {
  SandboxId id;
  bool coarse = false;
  MetricRecord metric;
};

// A line to be kept. Those of an agent carry its boot and its number there, so that a restart of
// the server goes on reading where it was.
struct LogLine {
  LogRecord record;
  std::string boot_id;  // empty: not from an agent
  std::int64_t agent_seq = 0;
};

// What is written when a sandbox has been made: its row, a line of its log, a line of the audit
// log.
struct Birth {
  enum class Row : std::uint8_t { insert, update };
  Row row = Row::update;
  LogRecord log;
  AuditRecord audit;
};

struct LogFilter {
  std::optional<Timestamp> from;  // inclusive
  std::optional<Timestamp> to;    // inclusive
  std::size_t limit = 1000;
  bool newest_first = false;
  LogLevel least = LogLevel::debug;
  std::string search;  // part of the message; empty: all
};

struct AuditFilter {
  std::string team_id;            // empty: all
  std::string subject;            // empty: all
  std::optional<Timestamp> from;  // inclusive
  std::size_t limit = 100;
};

class Store {
 public:
  // Opens or creates, and brings the schema up to date. failed_precondition: written by a newer
  // version.
  static Result<std::unique_ptr<Store>> open(const std::string& path);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // ---- teams ----
  // The team that exists from the beginning.
  const TeamRecord& default_team() const { return default_team_; }
  // already_exists: the name is taken.
  Result<TeamRecord> create_team(const std::string& name);
  Result<std::vector<TeamRecord>> list_teams();  // oldest first
  Result<std::optional<TeamRecord>> find_team(const std::string& id_or_name);

  // ---- API keys; keys.h makes and checks them ----
  Result<void> insert_key(const KeyRecord& key, const std::string& hash);
  Result<std::optional<KeyRecord>> key_by_hash(const std::string& hash);
  Result<std::vector<KeyRecord>> list_keys(const std::string& team_id);
  // False: this team has no such key.
  Result<bool> delete_key(const std::string& team_id, const std::string& key_id);
  // False: this team has no such key.
  Result<bool> rename_key(const std::string& team_id, const std::string& key_id,
                          const std::string& name);
  // Remembers the use, at most once a minute per key.
  Result<void> touch_key(const std::string& key_id, Timestamp at);

  // ---- sandboxes ----
  Result<void> insert_sandbox(const SandboxRecord& record);
  // Writes the columns that change during a life: state, times, boot, network, auto-pause.
  // not_found if there is no such row.
  Result<void> update_sandbox(const SandboxRecord& record);
  // The row and what is told about it, all or nothing.
  Result<void> record_birth(const SandboxRecord& record, const Birth& birth);
  // All that are not killed, oldest first.
  Result<std::vector<SandboxRecord>> live_sandboxes();
  Result<std::optional<SandboxRecord>> find_sandbox(const SandboxId& id);
  // Forgets killed sandboxes that ended before `before`, with their metrics and logs.
  Result<std::int64_t> purge_killed(Timestamp before);

  // ---- snapshots ----
  Result<void> insert_snapshot(const SnapshotRecord& record);
  // Writes what changes: state, base, sizes. All of them or none; not_found if a row is missing.
  Result<void> update_snapshots(const std::vector<SnapshotRecord>& records);
  Result<void> delete_snapshot(const std::string& id);   // fine if it is not there
  Result<std::vector<SnapshotRecord>> list_snapshots();  // all, oldest first

  // ---- settings of providers, per team ----
  Result<void> put_provider(const ProviderRecord& record);
  Result<std::optional<ProviderRecord>> find_provider(const std::string& team_id,
                                                      const std::string& provider);
  Result<std::vector<ProviderRecord>> list_providers(const std::string& team_id);
  // False: there were none. It is not the active one any more.
  Result<bool> delete_provider(const std::string& team_id, const std::string& provider);
  // Empty: none.
  Result<void> set_active_provider(const std::string& team_id, const std::string& provider);
  Result<std::string> active_provider(const std::string& team_id);

  // ---- metrics and logs of sandboxes ----
  Result<void> insert_metrics(const std::vector<Sample>& samples);
  // In time order; when there are more than `limit`, the newest.
  Result<std::vector<MetricRecord>> metrics(const SandboxId& id, Timestamp from, Timestamp to,
                                            std::size_t limit);
  // Removes samples that are not coarse before `fine_before`, and all before `all_before`, in small
  // steps.
  Result<std::int64_t> purge_metrics(Timestamp fine_before, Timestamp all_before);
  Result<void> append_logs(const SandboxId& id, const std::vector<LogLine>& lines);
  Result<std::vector<LogRecord>> logs(const SandboxId& id, const LogFilter& filter);
  // The number of the last line that came from the agent in this boot; 0: none.
  Result<std::int64_t> last_agent_seq(const SandboxId& id, const std::string& boot_id);
  // Keeps the newest `keep` lines.
  Result<void> trim_logs(const SandboxId& id, std::size_t keep);

  // ---- audit log ----
  Result<void> insert_audit(const AuditRecord& record);
  Result<std::vector<AuditRecord>> audit(const AuditFilter& filter);  // newest first
  Result<std::int64_t> purge_audit(Timestamp before);

  // ---- maintenance ----
  // Moves the write-ahead log into the main file. Blocks on the disk. False: nothing was written
  // since the last time.
  Result<bool> checkpoint();
  // All that was written before survives a power cut when this returns. Blocks on the disk.
  Result<void> sync();

 private:
  friend class SessionRows;
  struct Statements;
  Store(std::string path, Database main, Database maintenance);
  Result<void> prepare();
  Result<void> load_default_team();
  // These need mutex_.
  Result<void> write_insert(const SandboxRecord& record);
  Result<void> write_update(const SandboxRecord& record);
  Result<void> write_log(const SandboxId& id, const LogLine& line);
  Result<void> write_audit(const AuditRecord& record);
  // Needs mutex_. Nothing of `body` stays when it fails.
  Result<void> in_transaction(const std::function<Result<void>()>& body);

  std::mutex mutex_;  // guards all below up to the blank line
  const std::string path_;
  Database main_;
  std::unique_ptr<Statements> statements_;
  std::unordered_map<std::string, Timestamp> touched_;

  std::mutex maintenance_mutex_;
  Database maintenance_;
  std::atomic<bool> written_ = false;
  TeamRecord default_team_;  // never changes after open()
};

}  // namespace atl::store
