#include "api_server/encode.h"

namespace atl::api {
namespace {

json::value text_or_null(std::string_view text) {
  if (text.empty()) return nullptr;
  return json::value(text);
}

// Pausing counts as paused, resuming as running.
std::string_view state_name(store::SandboxState state) {
  const bool paused = state == store::SandboxState::paused || state == store::SandboxState::pausing;
  return paused ? "paused" : "running";
}

json::array to_array(const std::vector<std::string>& texts) {
  json::array out;
  for (const std::string& text : texts) out.emplace_back(text);
  return out;
}

}  // namespace

json::object sandbox_json(const engine::SandboxInfo& info, std::string_view domain) {
  const store::SandboxRecord& record = info.record;
  json::object out;
  out["templateID"] = record.template_id;
  out["sandboxID"] = record.id.str();
  out["clientID"] = kClientId;
  out["envdVersion"] = record.envd_version;
  if (!record.alias.empty()) out["alias"] = record.alias;
  if (info.access_token) out["envdAccessToken"] = *info.access_token;
  out["trafficAccessToken"] =
      info.traffic_token ? json::value(*info.traffic_token) : json::value(nullptr);
  out["domain"] = text_or_null(domain);
  return out;
}

json::object listed_json(const engine::SandboxInfo& info) {
  const store::SandboxRecord& record = info.record;
  json::object metadata;
  for (const auto& [key, value] : record.metadata) metadata[key] = value;
  json::object out;
  out["templateID"] = record.template_id;
  out["sandboxID"] = record.id.str();
  out["clientID"] = kClientId;
  if (!record.alias.empty()) out["alias"] = record.alias;
  out["startedAt"] = to_rfc3339(record.started_at);
  out["endAt"] = to_rfc3339(record.end_at);
  out["cpuCount"] = record.cpu_count;
  out["memoryMB"] = record.memory_mb;
  out["diskSizeMB"] = record.disk_mb;
  out["state"] = state_name(record.state);
  out["envdVersion"] = record.envd_version;
  out["metadata"] = std::move(metadata);
  out["volumeMounts"] = json::array();
  return out;
}

json::object detail_json(const engine::SandboxInfo& info, std::string_view domain) {
  const store::SandboxRecord& record = info.record;
  json::object out = listed_json(info);
  if (info.access_token) out["envdAccessToken"] = *info.access_token;
  out["allowInternetAccess"] =
      record.allow_internet ? json::value(*record.allow_internet) : json::value(nullptr);
  out["domain"] = text_or_null(domain);
  auto network = parse_json(record.network);
  out["network"] =
      network.ok() && network->is_object() ? std::move(*network) : json::value(json::object());
  json::object lifecycle;
  lifecycle["autoResume"] = record.auto_resume;
  lifecycle["onTimeout"] = record.auto_pause ? "pause" : "kill";
  out["lifecycle"] = std::move(lifecycle);
  return out;
}

json::object template_json(const templates::Template& t) {
  json::object out;
  out["templateID"] = t.id;
  out["buildID"] = t.build_id;
  out["cpuCount"] = t.cpu_count;
  out["memoryMB"] = t.memory_mb;
  out["diskSizeMB"] = t.disk_mb;
  out["public"] = true;
  out["aliases"] = to_array(t.names);
  out["names"] = to_array(t.names);
  out["createdAt"] = to_rfc3339(t.created_at);
  out["updatedAt"] = to_rfc3339(t.created_at);
  out["createdBy"] = nullptr;
  out["lastSpawnedAt"] = nullptr;
  out["spawnCount"] = 0;
  out["buildCount"] = 1;
  out["envdVersion"] = t.envd_version;
  out["buildStatus"] = "ready";
  return out;
}

}  // namespace atl::api
