// What can be asked of the engine, and what it answers: plain values. The API, the proxy and the
// command line build these; only the engine acts on them.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "store/records.h"

namespace atl::engine {

using store::StringMap;

// Who asks. A sandbox of another team does not exist for the caller.
struct Caller {
  std::string team_id;
  std::string key_id;  // for the audit log
};

struct CreateCommand {
  Caller caller;
  std::string template_reference = "base";
  std::chrono::seconds timeout{15};
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

struct ListPage {
  std::vector<SandboxInfo> items;
  bool more = false;
  std::size_t total_running = 0;  // after filters, before paging
};

}  // namespace atl::engine
