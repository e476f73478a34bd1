// Store: the server's records in one SQLite file.
//
// Thread-safe; every call takes a mutex, runs one short transaction and returns (tens of
// microseconds: WAL without fsync per commit, and no checkpoint inside a request), so callers on
// the I/O threads may call it directly. The exception is `checkpoint()`, which waits for the disk:
// call it from a thread that may block.
//
// Several processes may open the same file (the command line adds keys while the server runs).
#pragma once

#include <atomic>
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
  // All, oldest first.
  Result<std::vector<TeamRecord>> list_teams();

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
  // Writes the columns that change during a life: state, times. not_found if there is no such row.
  Result<void> update_sandbox(const SandboxRecord& record);
  // All that are not killed, oldest first.
  Result<std::vector<SandboxRecord>> live_sandboxes();
  Result<std::optional<SandboxRecord>> find_sandbox(const SandboxId& id);
  // Forgets killed sandboxes that were created before `before`.
  Result<std::int64_t> purge_killed(Timestamp before);

  // ---- maintenance ----
  // Moves the write-ahead log into the main file. Blocks on the disk. False: nothing was written
  // since the last time.
  Result<bool> checkpoint();

 private:
  struct Statements;
  Store(Database main, Database maintenance);
  Result<void> migrate();
  Result<void> prepare();
  Result<void> load_default_team();

  std::mutex mutex_;  // guards all below up to the blank line
  Database main_;
  std::unique_ptr<Statements> statements_;
  std::unordered_map<std::string, Timestamp> touched_;

  std::mutex maintenance_mutex_;
  Database maintenance_;
  std::atomic<bool> written_ = false;
  TeamRecord default_team_;  // never changes after open()
};

}  // namespace atl::store
