// The rows of the store as plain values.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "store/timestamp.h"

namespace atl::store {

// Where a sandbox is in its life. Which change is legal is the engine's business
// (engine/state_machine.h).
enum class SandboxState : std::uint8_t {
  creating,
  running,
  pausing,
  paused,
  resuming,
  killing,
  killed,
  snapshotting,  // runs, but stands still for a moment
};

std::string_view to_string(SandboxState state);
std::optional<SandboxState> parse_state(std::string_view text);

// Where the memory of a paused sandbox is.
enum class MemoryTier : std::uint8_t {
  none,    // it runs, or only its disk is kept
  frozen,  // in RAM: its processes stand still
  dumped,  // in files
};
std::string_view to_string(MemoryTier tier);
std::optional<MemoryTier> parse_memory_tier(std::string_view text);

using StringMap = std::map<std::string, std::string>;

struct SandboxRecord {
  SandboxId id;
  std::string team_id;
  std::string key_id;        // the API key that created it
  std::string template_id;   // as the API shows it
  std::string template_dir;  // as the runtime knows it
  std::string build_id;
  std::string alias;
  std::string envd_version;
  std::string boot_id;
  SandboxState state = SandboxState::creating;

  Timestamp created_at{};
  Timestamp started_at{};           // start of the current run; zero until it runs
  Timestamp end_at{};               // when it will be killed (or paused)
  std::chrono::seconds timeout{0};  // as given at creation

  StringMap metadata;
  StringMap envs;
  std::string network = "{}";  // JSON object, as given

  bool secure = false;               // the agent asks for its token
  bool allow_public_traffic = true;  // false: ports need the traffic token
  bool auto_pause = false;
  bool auto_pause_memory = true;
  bool auto_resume = false;
  std::optional<bool> allow_internet;
  // Of a paused sandbox: its memory is kept (true), or only its disk. Of one that is pausing or
  // resuming: which of the two.
  bool memory_kept = true;
  MemoryTier memory_tier = MemoryTier::none;
  std::string memory_reason;       // why its memory is not in files, for people; may be empty
  std::uint64_t memory_bytes = 0;  // what its memory takes in files; 0 unless dumped
  // The snapshots that its disk may lie over: the one it was made from or rolled back to, and the
  // one that a rollback under way (or cut off) puts in its place. Empty: none.
  std::string snapshot_id;
  std::string rollback_id;
  std::string start_command;  // of the template, run by the agent at every boot; may be empty
  std::string default_user = "user";
  std::string hostname = "e2b";  // inside
  std::string mask_request_host;

  std::uint32_t cpu_count = 2;
  std::uint32_t memory_mb = 512;
  std::uint32_t disk_mb = 5120;

  bool operator==(const SandboxRecord&) const = default;
};

enum class SnapshotState : std::uint8_t {
  making,
  ready,
  doomed,  // deleted or replaced; removed as soon as nothing lies over it
};
std::string_view to_string(SnapshotState state);
std::optional<SnapshotState> parse_snapshot_state(std::string_view text);

// A snapshot: what sandboxes can be made from besides templates. Clients call it `alias:tag`, or
// `template_id:tag` when it has no name.
struct SnapshotRecord {
  std::string id;  // as the runtime knows it
  std::string team_id;
  std::string template_id;  // as the API shows it; all that have one name share it
  std::string alias;        // empty: it has no name
  std::string tag = "default";
  std::string build_id;
  SnapshotState state = SnapshotState::making;
  bool internal = false;   // made for forks: nobody lists it, it goes with the last of them
  bool memory = true;      // false: only the disk
  std::string sandbox_id;  // of which it was made
  std::string base;        // the snapshot that it lies over; empty: the template
  Timestamp created_at{};
  std::uint64_t memory_bytes = 0;
  std::uint64_t disk_bytes = 0;

  // What a sandbox made from it gets of the one it was made of.
  std::string template_dir;
  std::string template_build;
  std::string envd_version;
  std::string boot_id;
  std::string start_command;
  std::string default_user = "user";
  StringMap envs;
  std::int64_t agent_seq = 0;  // the last line of the agent's log that is known
  std::uint32_t cpu_count = 2;
  std::uint32_t memory_mb = 512;
  std::uint32_t disk_mb = 5120;

  bool operator==(const SnapshotRecord&) const = default;
};

enum class LogLevel : std::uint8_t { debug, info, warn, error };
std::string_view to_string(LogLevel level);
std::optional<LogLevel> parse_log_level(std::string_view text);

// One line of a sandbox's log.
struct LogRecord {
  Timestamp at{};
  LogLevel level = LogLevel::info;
  std::string message;
  StringMap fields;
};

// One sample of what a sandbox uses.
struct MetricRecord {
  Timestamp at{};
  std::uint32_t cpu_count = 0;
  double cpu_used_pct = 0;  // of all its CPUs
  std::uint64_t mem_used = 0, mem_total = 0, mem_cache = 0, disk_used = 0, disk_total = 0;
};

// Who did what, for the audit log.
struct AuditRecord {
  Timestamp at{};
  std::string team_id;
  std::string key_id;   // or "admin", "timer", "traffic", "cli"
  std::string action;   // "sandbox.create", "key.delete", ...
  std::string subject;  // an id
  std::string detail;
  std::string peer;  // address of the client, if there was one
};

struct TeamRecord {
  std::string id;
  std::string name;
  Timestamp created_at{};
};

// An API key without its secret part.
struct KeyRecord {
  std::string id;
  std::string team_id;
  std::string name;
  std::string prefix;  // "e2b_"
  int value_length = 0;
  std::string mask_prefix;
  std::string mask_suffix;
  Timestamp created_at{};
  std::optional<Timestamp> last_used;
};

// Settings of a provider: where else code can be run.
struct ProviderRecord {
  std::string team_id;
  std::string provider;
  std::string config = "{}";  // JSON object, without the secrets
  StringMap secrets;          // by field, each sealed (secret_box.h)
  Timestamp updated_at{};

  bool operator==(const ProviderRecord&) const = default;
};

}  // namespace atl::store
