#include "cli/sandbox.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <set>
#include <thread>

#include "base/encoding.h"
#include "base/ids.h"
#include "cli/remote.h"
#include "cli/table.h"
#include "store/timestamp.h"

namespace atl::cli {
namespace {

using std::chrono::seconds;

constexpr std::size_t kPage = 100;
constexpr std::size_t kMaxPages = 1000;

void print_json(const json::value& value) { fmt::print("{}\n", json::serialize(value)); }

seconds since(const std::string& instant) {
  const auto at = parse_rfc3339(instant);
  return at ? std::chrono::duration_cast<seconds>(now() - *at) : seconds(0);
}

// All sandboxes that fit --state and --older-than.
Result<json::array> list_all(ApiClient& api, const SandboxOptions& options) {
  seconds least_age{0};
  if (!options.older_than.empty()) {
    ATOLL_TRY_ASSIGN(least_age, duration_option(options.older_than, "--older-than"));
  }
  if (!options.state.empty() && options.state != "running" && options.state != "paused")
    return make_error(Errc::invalid_argument, "--state is running or paused");
  json::array out;
  std::string token;
  for (std::size_t page = 0; page < kMaxPages; ++page) {
    std::string target = "/v2/sandboxes?limit=" + std::to_string(kPage);
    if (!options.state.empty()) target += "&state=" + options.state;
    if (!token.empty()) target += "&nextToken=" + percent_encode(token);
    ATOLL_TRY_ASSIGN(const ApiClient::Answer answer, api.call("GET", target));
    const auto* rows = answer.body.if_array();
    if (rows == nullptr) return make_error(Errc::data_loss, "the server's list is not a list");
    for (const json::value& row : *rows) {
      if (since(text_of(row, "startedAt")) >= least_age) out.push_back(row);
    }
    token = answer.headers.get("X-Next-Token");
    if (token.empty()) break;
  }
  return out;
}

std::string show_metadata(const json::value& row) {
  const auto* o = row.if_object();
  const auto* metadata = o != nullptr ? o->if_contains("metadata") : nullptr;
  std::string out;
  if (metadata == nullptr || !metadata->is_object()) return out;
  for (const auto& [key, value] : metadata->as_object()) {
    if (!out.empty()) out += ',';
    out += std::string(key) + "=" + (value.is_string() ? std::string(value.as_string()) : "");
  }
  return printable(out);
}

std::string show_template(const json::value& row) {
  const std::string alias = text_of(row, "alias");
  return printable(alias.empty() ? text_of(row, "templateID") : alias);
}

// Runs `each` for every id; goes on after failures and reports them.
template <class Each>
Result<int> for_each_id(const SandboxOptions& options, Each each) {
  ATOLL_TRY_ASSIGN(Remote remote, find_remote(options.home));
  ApiClient api(std::move(remote));
  int failures = 0;
  for (const std::string& id : options.ids) {
    Result<void> done = check_id(id);
    if (done.ok()) done = each(api, id);
    if (done.ok()) continue;
    ++failures;
    fmt::print(stderr, "atoll: {}: {}\n", printable(id), done.error().message);
  }
  return failures > 0 ? 1 : 0;
}

Result<json::array> log_entries(ApiClient& api, const std::string& id, std::int64_t from_ms,
                                bool forward, std::size_t limit) {
  std::string target = fmt::format("/v2/sandboxes/{}/logs?limit={}&direction={}", id, limit,
                                   forward ? "forward" : "backward");
  if (forward) target += "&cursor=" + std::to_string(from_ms);
  ATOLL_TRY_ASSIGN(ApiClient::Answer answer, api.call("GET", target));
  const auto* o = answer.body.if_object();
  const auto* logs = o != nullptr ? o->if_contains("logs") : nullptr;
  if (logs == nullptr || !logs->is_array())
    return make_error(Errc::data_loss, "the server's answer holds no log");
  return logs->as_array();
}

void print_log(const json::value& entry, bool json) {
  if (json) return print_json(entry);
  std::string fields;
  if (const auto* f = entry.as_object().if_contains("fields"); f != nullptr && f->is_object()) {
    for (const auto& [key, value] : f->as_object()) {
      if (value.is_string())
        fields += " " + std::string(key) + "=" + std::string(value.as_string());
    }
  }
  fmt::print("{} {:5} {}{}\n", text_of(entry, "timestamp"), text_of(entry, "level"),
             printable(text_of(entry, "message")), printable(fields));
}

}  // namespace

Result<seconds> duration_option(const std::string& text, const char* option) {
  const auto duration = parse_duration(text);
  if (!duration) {
    return make_error(Errc::invalid_argument, fmt::format("{}: '{}' is not a duration (90s, 15m, "
                                                          "2h, 7d)",
                                                          option, text));
  }
  return *duration;
}

Result<void> check_id(const std::string& id) {
  if (SandboxId::parse(id)) return {};
  return make_error(Errc::invalid_argument, "not the id of a sandbox: '" + printable(id) +
                                                "' (`atoll sandbox ls` shows them)");
}

Result<std::pair<std::string, std::string>> split_pair(const std::string& text) {
  const std::size_t eq = text.find('=');
  if (eq == 0 || eq == std::string::npos)
    return make_error(Errc::invalid_argument, "not KEY=VALUE: " + text);
  return std::pair(text.substr(0, eq), text.substr(eq + 1));
}

Result<int> sandbox_create(const SandboxOptions& options) {
  ATOLL_TRY_ASSIGN(const seconds timeout, duration_option(options.timeout, "--timeout"));
  json::object body;
  body["templateID"] = options.template_name;
  body["timeout"] = timeout.count();
  json::object metadata;
  for (const std::string& pair : options.metadata) {
    ATOLL_TRY_ASSIGN(const auto parts, split_pair(pair));
    metadata[parts.first] = parts.second;
  }
  json::object envs;
  for (const std::string& pair : options.envs) {
    ATOLL_TRY_ASSIGN(const auto parts, split_pair(pair));
    envs[parts.first] = parts.second;
  }
  if (!metadata.empty()) body["metadata"] = std::move(metadata);
  if (!envs.empty()) body["envVars"] = std::move(envs);
  body["autoPause"] = options.auto_pause;
  if (options.auto_resume) body["autoResume"] = json::object{{"enabled", true}};
  if (options.no_internet) body["allow_internet_access"] = false;
  json::object network;
  if (!options.allow_out.empty()) network["allowOut"] = json::value_from(options.allow_out);
  if (!options.deny_out.empty()) network["denyOut"] = json::value_from(options.deny_out);
  if (!network.empty()) body["network"] = std::move(network);
  ATOLL_TRY_ASSIGN(Remote remote, find_remote(options.home));
  ApiClient api(std::move(remote));
  ATOLL_TRY_ASSIGN(const ApiClient::Answer answer,
                   api.call("POST", "/v2/sandboxes", std::move(body)));
  if (options.json) {
    print_json(answer.body);
  } else {
    fmt::print("{}\n", text_of(answer.body, "sandboxID"));
  }
  return 0;
}

Result<int> sandbox_list(const SandboxOptions& options) {
  ATOLL_TRY_ASSIGN(Remote remote, find_remote(options.home));
  ApiClient api(std::move(remote));
  ATOLL_TRY_ASSIGN(const json::array rows, list_all(api, options));
  if (options.json) {
    print_json(rows);
    return 0;
  }
  const bool terminal = ::isatty(STDOUT_FILENO);
  Table table({"ID", "STATE", "TEMPLATE", "STARTED", "ENDS", "CPU", "MEMORY", "METADATA"});
  for (const json::value& row : rows) {
    const std::string started = text_of(row, "startedAt");
    const std::string ends = text_of(row, "endAt");
    const bool runs = text_of(row, "state") == "running";
    table.add({text_of(row, "sandboxID"), text_of(row, "state"), show_template(row),
               terminal ? show_duration(since(started)) + " ago" : started,
               !terminal ? ends
               : runs    ? "in " + show_duration(-since(ends))
                         : "-",
               std::to_string(number_of(row, "cpuCount")),
               std::to_string(number_of(row, "memoryMB")) + " MB", show_metadata(row)});
  }
  if (table.empty() && terminal) {
    fmt::print(stderr, "no sandboxes\n");
  } else {
    table.print();
  }
  return 0;
}

Result<int> sandbox_info(const SandboxOptions& options) {
  return for_each_id(options, [&](ApiClient& api, const std::string& id) -> Result<void> {
    ATOLL_TRY_ASSIGN(ApiClient::Answer answer, api.call("GET", "/sandboxes/" + id));
    auto* o = answer.body.if_object();
    if (o == nullptr) return make_error(Errc::data_loss, "the server's answer is not an object");
    if (options.json) {
      print_json(answer.body);
      return {};
    }
    o->erase("envdAccessToken");  // a secret; --json has it
    for (const auto& [key, value] : *o) {
      const std::string shown =
          value.is_string() ? std::string(value.as_string()) : json::serialize(value);
      fmt::print("{:20} {}\n", std::string_view(key.data(), key.size()), printable(shown));
    }
    return {};
  });
}

Result<int> sandbox_logs(const SandboxOptions& options) {
  if (options.ids.size() != 1) return make_error(Errc::invalid_argument, "which sandbox?");
  return for_each_id(options, [&](ApiClient& api, const std::string& id) -> Result<void> {
    const std::size_t limit = std::min<std::size_t>(options.lines, 1000);
    ATOLL_TRY_ASSIGN(json::array entries, log_entries(api, id, 0, false, limit));
    std::int64_t last_ms = 0;
    std::set<std::string> shown;  // of the last millisecond: the cursor is inclusive
    const auto show = [&](const json::value& entry) {
      if (!entry.is_object()) return;
      const auto at = parse_rfc3339(text_of(entry, "timestamp"));
      const std::int64_t ms = at ? to_ns(*at) / 1'000'000 : last_ms;
      const std::string text = json::serialize(entry);
      if (ms == last_ms && shown.contains(text)) return;
      if (ms != last_ms) shown.clear();
      last_ms = ms;
      shown.insert(text);
      print_log(entry, options.json);
    };
    for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) show(*entry);
    while (options.follow) {
      std::fflush(stdout);
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      auto news = log_entries(api, id, last_ms, true, 1000);
      if (!news.ok()) {
        if (news.error().code == Errc::not_found) return {};   // it is gone, and so is its log
        if (news.error().code == Errc::unavailable) continue;  // the server is being replaced
        return std::move(news).error();
      }
      for (const json::value& entry : *news) show(entry);
    }
    return {};
  });
}

Result<int> sandbox_metrics(const SandboxOptions& options) {
  return for_each_id(options, [&](ApiClient& api, const std::string& id) -> Result<void> {
    ATOLL_TRY_ASSIGN(const ApiClient::Answer answer,
                     api.call("GET", "/sandboxes/" + id + "/metrics"));
    const auto* rows = answer.body.if_array();
    if (rows == nullptr) return make_error(Errc::data_loss, "the server's answer is not a list");
    if (options.json) {
      print_json(answer.body);
      return {};
    }
    Table table({"TIME", "CPU %", "CPUS", "MEMORY", "OF", "CACHE", "DISK", "OF"});
    const std::size_t first = rows->size() > options.lines ? rows->size() - options.lines : 0;
    for (std::size_t i = first; i < rows->size(); ++i) {
      const json::value& row = (*rows)[i];
      const auto* cpu = row.is_object() ? row.as_object().if_contains("cpuUsedPct") : nullptr;
      const double used = cpu != nullptr && cpu->is_number() ? cpu->to_number<double>() : 0;
      const auto bytes = [&row](const char* name) {
        return show_bytes(double(number_of(row, name)));
      };
      table.add({text_of(row, "timestamp"), fmt::format("{:.1f}", used),
                 std::to_string(number_of(row, "cpuCount")), bytes("memUsed"), bytes("memTotal"),
                 bytes("memCache"), bytes("diskUsed"), bytes("diskTotal")});
    }
    if (table.empty()) {
      fmt::print(stderr, "no samples yet; one comes every 5 s\n");
    } else {
      table.print();
    }
    return {};
  });
}

Result<int> sandbox_pause(const SandboxOptions& options) {
  return for_each_id(options, [&](ApiClient& api, const std::string& id) -> Result<void> {
    json::object body{{"memory", !options.disk_only}};
    ATOLL_TRY(api.call("POST", "/sandboxes/" + id + "/pause", std::move(body)));
    return {};
  });
}

Result<int> sandbox_resume(const SandboxOptions& options) {
  ATOLL_TRY_ASSIGN(const seconds timeout, duration_option(options.timeout, "--timeout"));
  return for_each_id(options, [&](ApiClient& api, const std::string& id) -> Result<void> {
    json::object body{{"timeout", timeout.count()}};
    ATOLL_TRY(api.call("POST", "/sandboxes/" + id + "/connect", std::move(body)));
    return {};
  });
}

Result<int> sandbox_kill(const SandboxOptions& options) {
  return for_each_id(options, [](ApiClient& api, const std::string& id) -> Result<void> {
    ATOLL_TRY(api.call("DELETE", "/sandboxes/" + id));
    return {};
  });
}

Result<KillCount> kill_matching(const SandboxOptions& options) {
  ATOLL_TRY_ASSIGN(Remote remote, find_remote(options.home));
  ApiClient api(std::move(remote));
  ATOLL_TRY_ASSIGN(const json::array rows, list_all(api, options));
  KillCount count;
  for (const json::value& row : rows) {
    const std::string id = text_of(row, "sandboxID");
    ATOLL_TRY(check_id(id));
    auto done = api.call("DELETE", "/sandboxes/" + id);
    if (done.ok() || done.error().code == Errc::not_found) {
      ++count.killed;
    } else {
      ++count.failed;
      fmt::print(stderr, "atoll: {}: {}\n", id, done.error().message);
    }
  }
  return count;
}

Result<int> sandbox_kill_all(const SandboxOptions& options) {
  ATOLL_TRY_ASSIGN(const KillCount count, kill_matching(options));
  if (options.json) {
    print_json(json::object{{"killed", count.killed}, {"failed", count.failed}});
  } else {
    fmt::print("killed {}{}\n", count.killed,
               count.failed > 0 ? fmt::format(", {} could not be killed", count.failed) : "");
  }
  return count.failed > 0 ? 1 : 0;
}

}  // namespace atl::cli
