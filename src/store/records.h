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
  killed
};

std::string_view to_string(SandboxState state);
std::optional<SandboxState> parse_state(std::string_view text);

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
  // Of a paused sandbox: its processes are frozen (true), or only its disk is kept. Of one that is
  // pausing or resuming: which of the two.
  bool memory_kept = true;
  std::string start_command;  // of the template, run by the agent at every boot; may be empty
  std::string default_user = "user";
  std::string mask_request_host;

  std::uint32_t cpu_count = 2;
  std::uint32_t memory_mb = 512;
  std::uint32_t disk_mb = 5120;

  bool operator==(const SandboxRecord&) const = default;
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

}  // namespace atl::store
