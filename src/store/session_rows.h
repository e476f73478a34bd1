// Rows of sessions in the store: which sandbox a key means. A row is only ever written by somebody
// who knows its version, so that of several who want to change it one succeeds.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "store/timestamp.h"

namespace atl::store {

class Store;

struct SessionRecord {
  std::string team;     // its name
  std::string key;      // unique in the team
  std::string version;  // random, another one after every write; empty: there is no row yet
  bool ready = false;   // false: somebody has claimed the key and makes its sandbox
  std::string node;     // the server that has the sandbox, or makes it
  std::string claim;    // random; the sandbox carries it in its metadata
  // Of a claim, how long it still counts. Written: from now on. Read: what is left of that.
  std::chrono::milliseconds lease{0};
  std::string sandbox_id;      // empty: none yet
  std::string options = "{}";  // JSON
  Timestamp created_at{};
  Timestamp used_at{};

  bool operator==(const SessionRecord&) const = default;
};

// An API key as other servers may know it.
struct KeyHash {
  std::string hash;
  std::string team;  // its name
};

// Thread-safe, as the store is, which outlives it.
class SessionRows {
 public:
  static Result<std::unique_ptr<SessionRows>> open(Store& store);
  ~SessionRows();
  SessionRows(const SessionRows&) = delete;
  SessionRows& operator=(const SessionRows&) = delete;

  Result<std::optional<SessionRecord>> get(const std::string& team, const std::string& key);
  // Writes if what is there has the record's version. The version it has now; nullopt: another one
  // was there.
  Result<std::optional<std::string>> put(const SessionRecord& record);
  // False: what is there has another version, or nothing is there.
  Result<bool> remove(const std::string& team, const std::string& key, const std::string& version);
  // Oldest first. `team` empty: all.
  Result<std::vector<SessionRecord>> list(const std::string& team);

  // Of all keys, for servers that share their sessions.
  Result<std::vector<KeyHash>> key_hashes();

 private:
  struct Statements;
  SessionRows(Store& store, std::unique_ptr<Statements> statements);
  Store& store_;
  const std::unique_ptr<Statements> statements_;  // guarded by the store's mutex
};

}  // namespace atl::store
