// Answers of the control plane as JSON: the objects `Sandbox`, `ListedSandbox`, `SandboxDetail`,
// `Template` and so on of E2B's API.
#pragma once

#include <string_view>

#include "base/json.h"
#include "engine/commands.h"
#include "templates/manifest.h"

namespace atl::api {

// Deprecated, but clients still require it.
inline constexpr std::string_view kClientId = "6532622b";

// An empty domain is told as null.
json::object sandbox_json(const engine::SandboxInfo& info, std::string_view domain);
json::object listed_json(const engine::SandboxInfo& info);
json::object detail_json(const engine::SandboxInfo& info, std::string_view domain);
// SnapshotInfo, and what this server knows beyond E2B's fields.
json::object snapshot_json(const store::SnapshotRecord& record,
                           const std::vector<std::string>& names);
json::object template_json(const templates::Template& t);
json::object metric_json(const store::MetricRecord& sample);
// SandboxLogEntry, and the older {timestamp, line} with the same in one line of JSON.
json::object log_entry_json(const store::LogRecord& entry);
json::object log_line_json(const store::LogRecord& entry);
// TeamAPIKey.
json::object key_json(const store::KeyRecord& key);

}  // namespace atl::api
