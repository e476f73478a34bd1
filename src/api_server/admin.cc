// Teams, API keys, the node, and what only the administrator may do.
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "api_server/decode.h"
#include "api_server/encode.h"
#include "api_server/handlers.h"
#include "base/log.h"
#include "store/keys.h"

namespace atl::api {
namespace {

constexpr std::size_t kMaxKeysPerTeam = 1'000;
constexpr std::string_view kNodeId = "local";

bool is_uuid(std::string_view text) {
  if (text.size() != 36) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    const char c = text[i];
    const bool hex = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
    if (dash ? c != '-' : !hex) return false;
  }
  return true;
}

Result<void> check_key_id(std::string_view id) {
  if (!is_uuid(id)) return make_error(Errc::invalid_argument, "Invalid API key ID");
  return {};
}

Error no_such_key() { return make_error(Errc::not_found, "id not found"); }

// Value of a "Name: value" line of a file of /proc.
std::string proc_field(const char* file, std::string_view name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(name)) continue;
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || line.find_last_not_of(" \t", colon - 1) + 1 != name.size())
      continue;
    const std::size_t at = line.find_first_not_of(" \t", colon + 1);
    return at == std::string::npos ? std::string() : line.substr(at);
  }
  return {};
}

std::uint64_t memory_bytes(std::string_view name) {
  return std::strtoull(proc_field("/proc/meminfo", name).c_str(), nullptr, 10) * 1024;
}

json::object disk_json(const std::filesystem::path& home) {
  struct statvfs fs{};
  json::object disk;
  disk["mountPoint"] = "/";
  disk["device"] = "";
  disk["filesystemType"] = "";
  disk["usedBytes"] = 0;
  disk["totalBytes"] = 0;
  if (::statvfs(home.c_str(), &fs) == 0) {
    disk["usedBytes"] = std::uint64_t(fs.f_blocks - fs.f_bfree) * fs.f_frsize;
    disk["totalBytes"] = std::uint64_t(fs.f_blocks) * fs.f_frsize;
  }
  return disk;
}

json::object machine_json() {
  utsname names{};
  ::uname(&names);
  json::object out;
  out["cpuFamily"] = proc_field("/proc/cpuinfo", "cpu family");
  out["cpuModel"] = proc_field("/proc/cpuinfo", "model");
  out["cpuModelName"] = proc_field("/proc/cpuinfo", "model name");
  out["cpuArchitecture"] = std::string(names.machine);
  return out;
}

}  // namespace

void Handlers::audit(const Call& call, const std::string& team, const std::string& action,
                     const std::string& subject, const std::string& detail) {
  log::info("audit", {{"action", action}, {"subject", subject}, {"by", call.who.caller.key_id}});
  const auto written = store_.insert_audit({.at = now(),
                                            .team_id = team,
                                            .key_id = call.who.caller.key_id,
                                            .action = action,
                                            .subject = subject,
                                            .detail = detail,
                                            .peer = call.who.caller.peer});
  if (!written.ok())
    log::error("the audit log cannot be written", {{"error", written.error().message}});
}

Result<void> Handlers::check_team(const std::string& id) {
  ATOLL_TRY_ASSIGN(const auto teams, store_.list_teams());
  for (const store::TeamRecord& team : teams) {
    if (team.id == id) return {};
  }
  return make_error(Errc::not_found, "team '" + id + "' not found");
}

// A client that logs in wants a key to go on with: its own, or a new one if it came as
// administrator.
Result<Reply> Handlers::list_teams(Call& call) {
  ATOLL_TRY_ASSIGN(const auto teams, store_.list_teams());
  json::array out;
  for (const store::TeamRecord& team : teams) {
    if (!call.who.admin && team.id != call.who.caller.team_id) continue;
    std::string key = call.who.key;
    if (call.who.admin) {
      ATOLL_TRY_ASSIGN(const store::NewKey made, store::create_key(store_, team.id, "login"));
      audit(call, team.id, "key.create", made.record.id, "login");
      key = made.secret;
    }
    json::object entry;
    entry["teamID"] = team.id;
    entry["name"] = team.name;
    entry["apiKey"] = key;
    entry["isDefault"] = team.id == store_.default_team().id;
    out.emplace_back(std::move(entry));
  }
  return json_reply(200, out);
}

Result<Reply> Handlers::list_keys(const std::string& team) {
  ATOLL_TRY_ASSIGN(const auto keys, store_.list_keys(team));
  json::array out;
  for (const store::KeyRecord& key : keys) out.emplace_back(key_json(key));
  return json_reply(200, out);
}

Result<Reply> Handlers::create_key(const std::string& team, Call& call) {
  ATOLL_TRY_ASSIGN(const std::string name, decode_key_name(call.body));
  ATOLL_TRY_ASSIGN(const auto keys, store_.list_keys(team));
  if (keys.size() >= kMaxKeysPerTeam) {
    return make_error(Errc::failed_precondition,
                      "the team has 1000 API keys already; delete some of them first");
  }
  ATOLL_TRY_ASSIGN(const store::NewKey made, store::create_key(store_, team, name));
  audit(call, team, "key.create", made.record.id, name);
  json::object out = key_json(made.record);
  out["key"] = made.secret;
  return json_reply(201, out);
}

Result<Reply> Handlers::rename_key(Call& call) {
  ATOLL_TRY(check_key_id(call.params[0]));
  ATOLL_TRY_ASSIGN(const std::string name, decode_key_name(call.body));
  ATOLL_TRY_ASSIGN(const bool found,
                   store_.rename_key(call.who.caller.team_id, call.params[0], name));
  if (!found) return no_such_key();
  audit(call, call.who.caller.team_id, "key.rename", call.params[0], name);
  return Reply{200, {}, {}};
}

Result<Reply> Handlers::delete_key(const std::string& team, const std::string& id, Call& call) {
  ATOLL_TRY(check_key_id(id));
  ATOLL_TRY_ASSIGN(const bool found, store_.delete_key(team, id));
  if (!found) return no_such_key();
  audit(call, team, "key.delete", id, {});
  return no_content();
}

Result<Reply> Handlers::create_key_of(Call& call) {
  ATOLL_TRY(check_team(call.params[0]));
  return create_key(call.params[0], call);
}

Result<Reply> Handlers::delete_key_of(Call& call) {
  ATOLL_TRY(check_team(call.params[0]));
  return delete_key(call.params[0], call.params[1], call);
}

json::object Handlers::node_json(bool detail) {
  const engine::Statistics numbers = engine_.statistics();
  const long processors = ::sysconf(_SC_NPROCESSORS_ONLN);
  double load = 0;
  std::ifstream("/proc/loadavg") >> load;
  std::uint64_t cpus = 0;
  std::uint64_t memory = 0;
  for (const auto& team : engine_.running_counts()) {
    engine::ListQuery query;
    query.team_id = team.first;
    query.paused = false;
    for (const auto& item : engine_.list(query).items) {
      cpus += item.record.cpu_count;
      memory += std::uint64_t(item.record.memory_mb) << 20;
    }
  }
  json::object metrics;
  metrics["allocatedCPU"] = cpus;
  metrics["cpuPercent"] = std::uint32_t(100 * load / double(std::max(processors, 1L)));
  metrics["cpuCount"] = processors;
  metrics["allocatedMemoryBytes"] = memory;
  metrics["memoryUsedBytes"] = memory_bytes("MemTotal") - memory_bytes("MemAvailable");
  metrics["memoryTotalBytes"] = memory_bytes("MemTotal");
  metrics["disks"] = json::array{disk_json(engine_.options().home)};
  json::object out;
  out["id"] = kNodeId;
  out["serviceInstanceID"] = options_.instance_id;
  out["clusterID"] = kNodeId;
  out["status"] = engine_.accepting() ? "ready" : "draining";
  out["statusChangedAt"] = to_rfc3339(options_.started_at);
  out["sandboxCount"] = numbers.running;
  out["metrics"] = std::move(metrics);
  out["createSuccesses"] = numbers.created;
  out["createFails"] = numbers.create_failures;
  out["version"] = options_.version;
  out["commit"] = options_.commit;
  out["machineInfo"] = machine_json();
  if (detail) {
    out["cachedBuilds"] = json::array();
    out["sandboxes"] = json::array();
  } else {
    out["sandboxStartingCount"] = numbers.creating;
  }
  return out;
}

Result<Reply> Handlers::list_nodes() { return json_reply(200, json::array{node_json(false)}); }

Result<Reply> Handlers::show_node(Call& call) {
  if (call.params[0] != kNodeId)
    return make_error(Errc::not_found, "node '" + call.params[0] + "' not found");
  return json_reply(200, node_json(true));
}

net::Task<Result<Reply>> Handlers::kill_team(Call& call) {
  ATOLL_CO_TRY(check_team(call.params[0]));
  auto killing = engine_.kill_team(call.params[0]);
  const engine::KillCount count = co_await std::move(killing);
  json::object out;
  out["killedCount"] = count.killed;
  out["failedCount"] = count.failed;
  co_return json_reply(200, out);
}

Result<Reply> Handlers::running_counts() {
  json::object out;
  for (const auto& [team, count] : engine_.running_counts()) {
    if (count > 0) out[team] = count;
  }
  return json_reply(200, out);
}

}  // namespace atl::api
