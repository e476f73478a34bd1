// What can be asked of the engine, and what it answers: plain values. The API, the proxy and the
// command line build these; only the engine acts on them.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "store/records.h"
#include "templates/reference.h"

namespace atl::engine {

using store::StringMap;

// Who asks. A sandbox of another team does not exist for the caller.
struct Caller {
  std::string team_id;
  std::string key_id;  // for the audit log
  std::string peer;    // address of the client, for the audit log; may be empty
};

// A refusal that a client may simply repeat after a moment: resource_exhausted because the server
// is busy now, not because a limit is reached that only the client can get below. The API adds
// Retry-After to those.
Error transient_refusal(std::string message);
bool is_transient(const Error& error);
inline constexpr std::chrono::seconds kRetryAfter{1};

struct CreateCommand {
  Caller caller;
  std::string template_reference = "base";
  std::chrono::seconds timeout{15};
  std::optional<std::uint32_t> memory_mb;  // instead of the template's; not of a snapshot
  StringMap metadata;
  StringMap envs;
  bool secure = false;
  bool auto_pause = false;
  bool auto_pause_memory = true;
  bool auto_resume = false;
  std::optional<bool> allow_internet;
  bool allow_public_traffic = true;
  std::string mask_request_host;
  std::string network = "{}";  // JSON object, echoed by info
};

// Replaces the egress part of the network settings (PUT network): what is absent is cleared, except
// `allow_internet`, which only changes when it is given.
struct NetworkUpdate {
  std::string egress = "{}";  // JSON object: allowOut, denyOut, rules, egressProxy; checked
  std::optional<bool> allow_internet;
};

// What a resume brings back.
enum class Revive : std::uint8_t {
  as_paused,  // memory if it was kept, else a cold boot
  cold,       // a cold boot from the disk, even if memory was kept
};

struct ResumeCommand {
  Caller caller;
  SandboxId id;
  std::chrono::seconds timeout{300};
  std::optional<bool> auto_pause;  // replaces the stored flag
  Revive revive = Revive::as_paused;
};

// What a client of the proxy showed, for waking a sandbox up.
struct WakeRequest {
  SandboxId id;
  bool agent_port = false;
  std::string access_token;   // X-Access-Token, may be empty
  std::string traffic_token;  // e2b-traffic-access-token, may be empty
  std::string peer;           // address of the client, for the audit log
};

struct SandboxInfo {
  store::SandboxRecord record;
  std::optional<std::string> access_token;   // secured sandboxes
  std::optional<std::string> traffic_token;  // private ones
};

enum class Order { newest_first, oldest_first };

// A place in the order of a list.
struct Cursor {
  Timestamp started_at{};
  std::string id;
};

struct ListQuery {
  std::string team_id;
  bool running = true;
  bool paused = true;
  StringMap metadata;  // all must match
  std::optional<std::string> template_id;
  std::optional<Timestamp> started_after;  // inclusive, compared in microseconds
  Order order = Order::newest_first;
  std::optional<Cursor> after;
  std::size_t limit = 0;  // 0: everything
};

struct SnapshotCommand {
  Caller caller;
  SandboxId id;
  std::string name;    // `[team/]alias[:tag]`; empty: none
  bool memory = true;  // false: only the disk; sandboxes made from it boot
};

struct SnapshotInfo {
  store::SnapshotRecord record;
  std::vector<std::string> names;                         // "team/alias:tag"; empty: it has none
  std::optional<std::chrono::microseconds> source_pause;  // how long the sandbox stood still
};

struct SnapshotQuery {
  std::string team_id;
  std::optional<std::string> sandbox_id;  // of which it was made
  std::optional<templates::Reference> name;
  std::optional<Cursor> after;  // by creation, newest first
  std::size_t limit = 0;        // 0: everything
};

struct SnapshotPage {
  std::vector<store::SnapshotRecord> items;
  bool more = false;
};

struct ForkCommand {
  Caller caller;
  SandboxId id;
  std::chrono::seconds timeout{15};
  std::int64_t count = 1;
};
inline constexpr std::uint32_t kMinMemoryMb = 64;
inline constexpr std::int64_t kMaxForks = 100;

struct Connected {
  SandboxInfo info;
  bool resumed = false;  // it was paused: 201 instead of 200
};

struct LogQuery {
  std::optional<Timestamp> from;  // inclusive
  std::optional<Timestamp> to;    // inclusive
  std::size_t limit = 1000;
  bool newest_first = false;
  store::LogLevel least = store::LogLevel::debug;
  std::string search;  // substring of the message; empty: all
};

struct KillCount {
  std::size_t killed = 0;
  std::size_t failed = 0;
};

struct ListPage {
  std::vector<SandboxInfo> items;
  bool more = false;
  std::size_t total_running = 0;  // after filters, before paging
};

}  // namespace atl::engine
