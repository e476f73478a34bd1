#include "api_server/encode.h"

#include "engine/snapshot_table.h"

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

// Where its memory is.
std::string_view tier_name(const store::SandboxRecord& record) {
  if (state_name(record.state) == "running") return "running";
  switch (record.memory_tier) {
    case store::MemoryTier::frozen:
      return "frozen";
    case store::MemoryTier::dumped:
      return "dumped";
    case store::MemoryTier::none:
      break;
  }
  return record.memory_kept ? "frozen" : "disk";
}

json::array to_array(const std::vector<std::string>& texts) {
  json::array out;
  for (const std::string& text : texts) out.emplace_back(text);
  return out;
}

// As stored, but for the password of the egress proxy, which is never told again.
json::object network_json(const std::string& stored) {
  auto network = parse_json(stored);
  if (!network.ok() || !network->is_object()) return {};
  json::object out = std::move(network->get_object());
  if (json::value* proxy = out.if_contains("egressProxy"); proxy != nullptr && proxy->is_object())
    proxy->get_object().erase("password");
  return out;
}

json::object string_map_json(const store::StringMap& map) {
  json::object out;
  for (const auto& [key, value] : map) out[key] = value;
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
  out["metadata"] = string_map_json(record.metadata);
  out["volumeMounts"] = json::array();
  out["memoryTier"] = tier_name(record);
  if (!record.memory_reason.empty()) out["memoryReason"] = record.memory_reason;
  return out;
}

json::object detail_json(const engine::SandboxInfo& info, std::string_view domain) {
  const store::SandboxRecord& record = info.record;
  json::object out = listed_json(info);
  if (info.access_token) out["envdAccessToken"] = *info.access_token;
  out["allowInternetAccess"] =
      record.allow_internet ? json::value(*record.allow_internet) : json::value(nullptr);
  out["domain"] = text_or_null(domain);
  out["network"] = network_json(record.network);
  json::object lifecycle;
  lifecycle["autoResume"] = record.auto_resume;
  lifecycle["onTimeout"] = record.auto_pause ? "pause" : "kill";
  out["lifecycle"] = std::move(lifecycle);
  return out;
}

json::object snapshot_json(const store::SnapshotRecord& record,
                           const std::vector<std::string>& names) {
  json::object out;
  out["snapshotID"] = engine::public_id(record);
  out["names"] = to_array(names);
  out["templateID"] = record.template_id;
  out["sandboxID"] = record.sandbox_id;
  out["createdAt"] = to_rfc3339(record.created_at);
  out["memory"] = record.memory;
  out["memoryBytes"] = record.memory_bytes;
  out["diskBytes"] = record.disk_bytes;
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

json::object metric_json(const store::MetricRecord& sample) {
  json::object out;
  out["timestamp"] = to_rfc3339(sample.at);
  out["timestampUnix"] = to_ns(sample.at) / 1'000'000'000;
  out["cpuCount"] = sample.cpu_count;
  out["cpuUsedPct"] = sample.cpu_used_pct;
  out["memUsed"] = sample.mem_used;
  out["memTotal"] = sample.mem_total;
  out["memCache"] = sample.mem_cache;
  out["diskUsed"] = sample.disk_used;
  out["diskTotal"] = sample.disk_total;
  return out;
}

json::object log_entry_json(const store::LogRecord& entry) {
  json::object out;
  out["timestamp"] = to_rfc3339(entry.at);
  out["level"] = store::to_string(entry.level);
  out["message"] = entry.message;
  out["fields"] = string_map_json(entry.fields);
  return out;
}

json::object log_line_json(const store::LogRecord& entry) {
  json::object line = string_map_json(entry.fields);
  line["level"] = store::to_string(entry.level);
  if (!line.contains("logger")) line["logger"] = "sandbox";
  line["message"] = entry.message;
  json::object out;
  out["timestamp"] = to_rfc3339(entry.at);
  out["line"] = json::serialize(line);
  return out;
}

json::object key_json(const store::KeyRecord& key) {
  json::object mask;
  mask["prefix"] = key.prefix;
  mask["valueLength"] = key.value_length;
  mask["maskedValuePrefix"] = key.mask_prefix;
  mask["maskedValueSuffix"] = key.mask_suffix;
  json::object out;
  out["id"] = key.id;
  out["name"] = key.name;
  out["mask"] = std::move(mask);
  out["createdAt"] = to_rfc3339(key.created_at);
  out["createdBy"] = nullptr;
  out["lastUsed"] = key.last_used ? json::value(to_rfc3339(*key.last_used)) : json::value(nullptr);
  return out;
}

}  // namespace atl::api
