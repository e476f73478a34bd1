#include "cli/session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "base/encoding.h"
#include "cli/remote.h"
#include "cli/sandbox.h"
#include "cli/table.h"
#include "store/timestamp.h"

namespace atl::cli {
namespace {

void print_json(const json::value& value) { fmt::print("{}\n", json::serialize(value)); }

std::string target_of(const std::string& key) { return "/sessions/" + percent_encode(key); }

// Runs `each` for every key; goes on after failures and reports them.
template <class Each>
Result<int> for_each_key(const SessionOptions& options, Each each) {
  ATOLL_TRY_ASSIGN(Remote remote, find_remote(options.home));
  ApiClient api(std::move(remote));
  int failures = 0;
  for (const std::string& key : options.keys) {
    const Result<void> done = each(api, key);
    if (done.ok()) continue;
    ++failures;
    fmt::print(stderr, "atoll: {}: {}\n", printable(key), done.error().message);
  }
  return failures > 0 ? 1 : 0;
}

Result<void> add_pairs(const std::vector<std::string>& pairs, const char* field,
                       json::object& body) {
  json::object map;
  for (const std::string& pair : pairs) {
    ATOLL_TRY_ASSIGN(const auto parts, split_pair(pair));
    map[parts.first] = parts.second;
  }
  if (!map.empty()) body[field] = std::move(map);
  return {};
}

Result<json::object> body_of(const SessionOptions& options) {
  json::object body;
  if (!options.template_name.empty()) body["templateID"] = options.template_name;
  if (!options.workspace.empty()) body["workspace"] = options.workspace;
  if (options.no_internet) body["allow_internet_access"] = false;
  const std::tuple<const std::string&, const char*, const char*> durations[] = {
      {options.timeout, "--timeout", "timeout"},
      {options.pause_after, "--pause-after", "pauseAfter"},
      {options.ttl, "--ttl", "ttl"}};
  for (const auto& [text, option, field] : durations) {
    if (text.empty()) continue;
    ATOLL_TRY_ASSIGN(const auto duration, duration_option(text, option));
    body[field] = duration.count();
  }
  ATOLL_TRY(add_pairs(options.metadata, "metadata", body));
  ATOLL_TRY(add_pairs(options.envs, "envVars", body));
  return body;
}

// From now to an instant of an answer; "-" when there is none.
std::string until(const std::string& instant, bool terminal) {
  if (!terminal) return instant;
  const auto at = parse_rfc3339(instant);
  if (!at) return "-";
  return show_duration(std::chrono::duration_cast<std::chrono::seconds>(*at - now()));
}

}  // namespace

Result<int> session_get(const SessionOptions& options) {
  ATOLL_TRY_ASSIGN(const json::object body, body_of(options));
  return for_each_key(options, [&](ApiClient& api, const std::string& key) -> Result<void> {
    ATOLL_TRY_ASSIGN(const ApiClient::Answer answer, api.call("PUT", target_of(key), body));
    if (options.json) {
      print_json(answer.body);
    } else {
      fmt::print("{}\t{}\n", text_of(answer.body, "sandboxID"), text_of(answer.body, "came"));
    }
    return {};
  });
}

Result<int> session_list(const SessionOptions& options) {
  ATOLL_TRY_ASSIGN(Remote remote, find_remote(options.home));
  ApiClient api(std::move(remote));
  ATOLL_TRY_ASSIGN(const ApiClient::Answer answer, api.call("GET", "/sessions"));
  const auto* rows = answer.body.if_array();
  if (rows == nullptr) return make_error(Errc::data_loss, "the server's list is not a list");
  if (options.json) {
    print_json(answer.body);
    return 0;
  }
  const bool terminal = ::isatty(STDOUT_FILENO);
  Table table({"KEY", "STATE", "SANDBOX", "USED", "FORGOTTEN", "WORKSPACE", "NODE"});
  for (const json::value& row : *rows) {
    const std::string used = text_of(row, "usedAt");
    std::string ago = until(used, terminal);
    if (terminal && ago.starts_with('-')) ago = ago.substr(1) + " ago";
    table.add({printable(text_of(row, "key")), text_of(row, "state"), text_of(row, "sandboxID"),
               ago, (terminal ? "in " : "") + until(text_of(row, "expiresAt"), terminal),
               printable(text_of(row, "workspace")), text_of(row, "node")});
  }
  if (table.empty() && terminal) {
    fmt::print(stderr, "no sessions\n");
  } else {
    table.print();
  }
  return 0;
}

Result<int> session_info(const SessionOptions& options) {
  return for_each_key(options, [&](ApiClient& api, const std::string& key) -> Result<void> {
    ATOLL_TRY_ASSIGN(const ApiClient::Answer answer, api.call("GET", target_of(key)));
    if (options.json) {
      print_json(answer.body);
      return {};
    }
    const auto* o = answer.body.if_object();
    if (o == nullptr) return make_error(Errc::data_loss, "the server's answer is not an object");
    for (const auto& [name, value] : *o) {
      const std::string shown =
          value.is_string() ? std::string(value.as_string()) : json::serialize(value);
      fmt::print("{:12} {}\n", std::string_view(name.data(), name.size()), printable(shown));
    }
    return {};
  });
}

Result<int> session_pause(const SessionOptions& options) {
  return for_each_key(options, [&](ApiClient& api, const std::string& key) -> Result<void> {
    ATOLL_TRY_ASSIGN(const ApiClient::Answer answer, api.call("POST", target_of(key) + "/pause"));
    if (options.json) print_json(answer.body);
    return {};
  });
}

Result<int> session_remove(const SessionOptions& options) {
  return for_each_key(options, [](ApiClient& api, const std::string& key) -> Result<void> {
    ATOLL_TRY(api.call("DELETE", target_of(key)));
    return {};
  });
}

}  // namespace atl::cli
