// The verbs for copies of sandboxes: snapshot, snapshots, rm-snapshot, fork, rollback.
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

using std::chrono::seconds;

constexpr std::size_t kMaxPages = 1000;

void print_json(const json::value& value) { fmt::print("{}\n", json::serialize(value)); }

// Of a field that holds objects: "" and 0 when it is missing.
const json::value& field(const json::value& object, std::string_view name) {
  static const json::value kNone;
  const auto* o = object.if_object();
  const auto* found = o != nullptr ? o->if_contains(name) : nullptr;
  return found != nullptr ? *found : kNone;
}

std::string show_names(const json::value& row) {
  std::string out;
  if (const auto* names = field(row, "names").if_array()) {
    for (const json::value& name : *names) {
      if (!out.empty()) out += ',';
      if (name.is_string()) out += std::string(name.as_string());
    }
  }
  return printable(out);
}

std::string show_age(const std::string& instant, bool terminal) {
  const auto at = parse_rfc3339(instant);
  if (!terminal || !at) return instant;
  return show_duration(std::chrono::duration_cast<seconds>(now() - *at)) + " ago";
}

Result<json::array> all_snapshots(ApiClient& api, const SandboxOptions& options) {
  json::array out;
  std::string token;
  for (std::size_t page = 0; page < kMaxPages; ++page) {
    std::string target = "/snapshots?limit=100";
    if (!options.of_sandbox.empty()) target += "&sandboxID=" + percent_encode(options.of_sandbox);
    if (!options.name.empty()) target += "&name=" + percent_encode(options.name);
    if (!token.empty()) target += "&nextToken=" + percent_encode(token);
    ATOLL_TRY_ASSIGN(const ApiClient::Answer answer, api.call("GET", target));
    const auto* rows = answer.body.if_array();
    if (rows == nullptr) return make_error(Errc::data_loss, "the server's list is not a list");
    for (const json::value& row : *rows) out.push_back(row);
    token = answer.headers.get("X-Next-Token");
    if (token.empty()) break;
  }
  return out;
}

}  // namespace

Result<int> sandbox_snapshot(const SandboxOptions& options) {
  ATOLL_TRY(check_id(options.id));
  ATOLL_TRY_ASSIGN(Remote remote, find_remote(options.home));
  ApiClient api(std::move(remote));
  json::object body;
  if (!options.name.empty()) body["name"] = options.name;
  if (options.disk_only) body["memory"] = false;
  ATOLL_TRY_ASSIGN(const ApiClient::Answer answer,
                   api.call("POST", "/sandboxes/" + options.id + "/snapshots", std::move(body)));
  if (options.json) {
    print_json(answer.body);
    return 0;
  }
  fmt::print("{}\n", printable(text_of(answer.body, "snapshotID")));
  const json::value& paused = field(answer.body, "pausedMs");
  if (paused.is_number() && ::isatty(STDERR_FILENO))
    fmt::print(stderr, "the sandbox stood still for {:.1f} ms\n", paused.to_number<double>());
  return 0;
}

Result<int> sandbox_snapshots(const SandboxOptions& options) {
  if (!options.of_sandbox.empty()) {
    ATOLL_TRY(check_id(options.of_sandbox));
  }
  ATOLL_TRY_ASSIGN(Remote remote, find_remote(options.home));
  ApiClient api(std::move(remote));
  ATOLL_TRY_ASSIGN(const json::array rows, all_snapshots(api, options));
  if (options.json) {
    print_json(rows);
    return 0;
  }
  const bool terminal = ::isatty(STDOUT_FILENO);
  Table table({"ID", "NAMES", "SANDBOX", "CREATED", "MEMORY", "DISK"});
  for (const json::value& row : rows) {
    const json::value& memory = field(row, "memory");
    const bool has_memory = !memory.is_bool() || memory.as_bool();
    table.add({printable(text_of(row, "snapshotID")), show_names(row), text_of(row, "sandboxID"),
               show_age(text_of(row, "createdAt"), terminal),
               has_memory ? show_bytes(double(number_of(row, "memoryBytes"))) : "-",
               show_bytes(double(number_of(row, "diskBytes")))});
  }
  if (table.empty() && terminal) {
    fmt::print(stderr, "no snapshots\n");
  } else {
    table.print();
  }
  return 0;
}

Result<int> sandbox_remove_snapshot(const SandboxOptions& options) {
  ATOLL_TRY_ASSIGN(Remote remote, find_remote(options.home));
  ApiClient api(std::move(remote));
  int failures = 0;
  for (const std::string& id : options.ids) {
    auto done = api.call("DELETE", "/templates/" + percent_encode(id));
    if (done.ok()) continue;
    ++failures;
    fmt::print(stderr, "atoll: {}: {}\n", printable(id), done.error().message);
  }
  return failures > 0 ? 1 : 0;
}

Result<int> sandbox_fork(const SandboxOptions& options) {
  ATOLL_TRY(check_id(options.id));
  ATOLL_TRY_ASSIGN(const seconds timeout, duration_option(options.timeout, "--timeout"));
  ATOLL_TRY_ASSIGN(Remote remote, find_remote(options.home));
  ApiClient api(std::move(remote));
  json::object body{{"timeout", timeout.count()}, {"count", options.count}};
  ATOLL_TRY_ASSIGN(const ApiClient::Answer answer,
                   api.call("POST", "/sandboxes/" + options.id + "/fork", std::move(body)));
  const auto* forks = answer.body.if_array();
  if (forks == nullptr) return make_error(Errc::data_loss, "the server's answer is not a list");
  if (options.json) print_json(answer.body);
  int failures = 0;
  for (const json::value& fork : *forks) {
    const std::string id = text_of(field(fork, "sandbox"), "sandboxID");
    if (id.empty()) {
      ++failures;
      fmt::print(stderr, "atoll: a fork was not made: {}\n",
                 printable(text_of(field(fork, "error"), "message")));
    } else if (!options.json) {
      fmt::print("{}\n", printable(id));
    }
  }
  return failures > 0 ? 1 : 0;
}

Result<int> sandbox_rollback(const SandboxOptions& options) {
  ATOLL_TRY(check_id(options.id));
  ATOLL_TRY_ASSIGN(Remote remote, find_remote(options.home));
  ApiClient api(std::move(remote));
  json::object body{{"snapshotID", options.snapshot}};
  ATOLL_TRY_ASSIGN(const ApiClient::Answer answer,
                   api.call("POST", "/sandboxes/" + options.id + "/rollback", std::move(body)));
  if (options.json) print_json(answer.body);
  return 0;
}

}  // namespace atl::cli
