#include "cli/workspace.h"

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

constexpr std::size_t kMaxPages = 100'000;

void print_json(const json::value& value) { fmt::print("{}\n", json::serialize(value)); }

std::string base_of(const WorkspaceOptions& options) {
  return "/workspaces/" + percent_encode(options.name);
}

std::string show_time(const json::value& row, const char* name, bool terminal) {
  const std::string instant = text_of(row, name);
  const auto at = parse_rfc3339(instant);
  if (!terminal || !at) return instant;
  return show_duration(std::chrono::duration_cast<std::chrono::seconds>(now() - *at)) + " ago";
}

std::string show_size(const json::value& row, const char* name, bool terminal) {
  const auto bytes = number_of(row, name);
  return terminal ? show_bytes(double(bytes)) : std::to_string(bytes);
}

// All pages of a list.
Result<json::array> all_rows(ApiClient& api, const std::string& target) {
  json::array out;
  std::string token;
  for (std::size_t page = 0; page < kMaxPages; ++page) {
    std::string next = target;
    if (!token.empty()) next += "&nextToken=" + percent_encode(token);
    ATOLL_TRY_ASSIGN(const ApiClient::Answer answer, api.call("GET", next));
    const auto* rows = answer.body.if_array();
    if (rows == nullptr) return make_error(Errc::data_loss, "the server's list is not a list");
    for (const json::value& row : *rows) out.push_back(row);
    token = answer.headers.get("X-Next-Token");
    if (token.empty()) break;
  }
  return out;
}

void print_workspaces(const json::array& rows, bool terminal) {
  Table table({"NAME", "FILES", "SIZE", "LIMIT", "CREATED"});
  for (const json::value& row : rows) {
    // One that is busy comes without its figures.
    if (const auto* fields = row.if_object(); fields != nullptr && !fields->contains("files")) {
      table.add({printable(text_of(row, "name")), "-", "-", "-", "-"});
      continue;
    }
    table.add({printable(text_of(row, "name")), std::to_string(number_of(row, "files")),
               show_size(row, "bytes", terminal), show_size(row, "maxBytes", terminal),
               show_time(row, "createdAt", terminal)});
  }
  if (table.empty() && terminal) {
    fmt::print(stderr, "no workspaces\n");
  } else {
    table.print();
  }
}

void print_files(const json::array& rows, bool terminal) {
  Table table({"PATH", "SIZE", "MODIFIED", "VERSION"});
  for (const json::value& row : rows) {
    table.add({printable(text_of(row, "path")), show_size(row, "size", terminal),
               show_time(row, "modifiedAt", terminal), printable(text_of(row, "version"))});
  }
  if (table.empty() && terminal) {
    fmt::print(stderr, "no files\n");
  } else {
    table.print();
  }
}

// The answer of a save or load.
int print_copied(const WorkspaceOptions& options, const json::value& answer) {
  if (options.json) {
    print_json(answer);
    return 0;
  }
  const auto* object = answer.if_object();
  const auto* files = object != nullptr ? object->if_contains("files") : nullptr;
  const auto* skipped = object != nullptr ? object->if_contains("skipped") : nullptr;
  if (files != nullptr && files->is_array())
    print_files(files->as_array(), ::isatty(STDOUT_FILENO) != 0);
  if (skipped != nullptr && skipped->is_array()) {
    for (const json::value& row : skipped->as_array()) {
      fmt::print(stderr, "atoll: left out: {}: {}\n", printable(text_of(row, "path")),
                 printable(text_of(row, "reason")));
    }
  }
  return 0;
}

}  // namespace

std::string file_target(const WorkspaceOptions& options, const std::string& path) {
  std::string out = base_of(options) + "/files?path=" + percent_encode(path);
  if (!options.version.empty()) out += "&version=" + percent_encode(options.version);
  return out;
}

Result<int> workspace_list(const WorkspaceOptions& options) {
  ATOLL_TRY_ASSIGN(Remote remote, find_remote(options.home));
  ApiClient api(std::move(remote));
  const std::string target = options.name.empty()
                                 ? "/workspaces?limit=100"
                                 : base_of(options) + "/entries?limit=1000&prefix=" +
                                       percent_encode(options.path.empty() ? "/" : options.path);
  ATOLL_TRY_ASSIGN(const json::array rows, all_rows(api, target));
  if (options.json) {
    print_json(rows);
    return 0;
  }
  const bool terminal = ::isatty(STDOUT_FILENO) != 0;
  options.name.empty() ? print_workspaces(rows, terminal) : print_files(rows, terminal);
  return 0;
}

Result<int> workspace_versions(const WorkspaceOptions& options) {
  ATOLL_TRY_ASSIGN(Remote remote, find_remote(options.home));
  ApiClient api(std::move(remote));
  ATOLL_TRY_ASSIGN(const json::array found,
                   all_rows(api, base_of(options) + "/entries?versions=true&limit=1000&prefix=" +
                                     percent_encode(options.path)));
  // A folder of the same name may be there too.
  const std::string path = options.path.starts_with('/') ? options.path : "/" + options.path;
  json::array rows;
  for (const json::value& row : found) {
    if (text_of(row, "path") == path) rows.push_back(row);
  }
  if (rows.empty()) return make_error(Errc::not_found, "there is no file " + path);
  if (options.json) {
    print_json(rows);
  } else {
    print_files(rows, ::isatty(STDOUT_FILENO) != 0);
  }
  return 0;
}

Result<int> workspace_remove(const WorkspaceOptions& options) {
  if (options.all != options.path.empty()) {
    return make_error(Errc::invalid_argument,
                      "a path, or --all for the workspace with all that is in it");
  }
  ATOLL_TRY_ASSIGN(Remote remote, find_remote(options.home));
  ApiClient api(std::move(remote));
  std::string target = options.all ? base_of(options) : file_target(options, options.path);
  if (options.recursive && !options.all) target += "&recursive=true";
  ATOLL_TRY(api.call("DELETE", target));
  return 0;
}

Result<int> workspace_restore(const WorkspaceOptions& options) {
  ATOLL_TRY_ASSIGN(Remote remote, find_remote(options.home));
  ApiClient api(std::move(remote));
  json::object body{{"path", options.path}, {"version", options.version}};
  ATOLL_TRY_ASSIGN(const ApiClient::Answer answer,
                   api.call("POST", base_of(options) + "/restore", std::move(body)));
  if (options.json) {
    print_json(answer.body);
  } else {
    print_files({answer.body}, ::isatty(STDOUT_FILENO) != 0);
  }
  return 0;
}

Result<int> workspace_save(const WorkspaceOptions& options) {
  ATOLL_TRY(check_id(options.sandbox));
  ATOLL_TRY_ASSIGN(Remote remote, find_remote(options.home));
  ApiClient api(std::move(remote));
  json::object body{{"sandboxID", options.sandbox}, {"sandboxPath", options.sandbox_path}};
  if (!options.path.empty()) body["workspacePath"] = options.path;
  if (::isatty(STDERR_FILENO))
    fmt::print(stderr, "saving {}...\n", printable(options.sandbox_path));
  ATOLL_TRY_ASSIGN(const ApiClient::Answer answer,
                   api.call("POST", base_of(options) + "/save", std::move(body)));
  return print_copied(options, answer.body);
}

Result<int> workspace_load(const WorkspaceOptions& options) {
  ATOLL_TRY(check_id(options.sandbox));
  ATOLL_TRY_ASSIGN(Remote remote, find_remote(options.home));
  ApiClient api(std::move(remote));
  json::object body{{"sandboxID", options.sandbox}, {"workspacePath", options.path}};
  if (!options.sandbox_path.empty()) body["sandboxPath"] = options.sandbox_path;
  if (!options.version.empty()) body["version"] = options.version;
  if (::isatty(STDERR_FILENO)) fmt::print(stderr, "loading {}...\n", printable(options.path));
  ATOLL_TRY_ASSIGN(const ApiClient::Answer answer,
                   api.call("POST", base_of(options) + "/load", std::move(body)));
  return print_copied(options, answer.body);
}

Result<int> workspace_quota(const WorkspaceOptions& options) {
  ATOLL_TRY_ASSIGN(Remote remote, find_remote(options.home));
  ApiClient api(std::move(remote));
  json::object body;
  if (options.max_bytes) body["maxBytes"] = *options.max_bytes;
  if (options.max_files) body["maxFiles"] = *options.max_files;
  if (options.keep_versions) body["keepVersions"] = *options.keep_versions;
  Result<ApiClient::Answer> asked = body.empty()
                                        ? api.call("GET", base_of(options))
                                        : api.call("PUT", base_of(options), std::move(body));
  ATOLL_TRY_ASSIGN(const ApiClient::Answer answer, std::move(asked));
  if (options.json) {
    print_json(answer.body);
    return 0;
  }
  const bool terminal = ::isatty(STDOUT_FILENO) != 0;
  Table table({"", "USED", "LIMIT"});
  table.add({"bytes", show_size(answer.body, "bytes", terminal),
             show_size(answer.body, "maxBytes", terminal)});
  table.add({"files", std::to_string(number_of(answer.body, "files")),
             std::to_string(number_of(answer.body, "maxFiles"))});
  table.add({"versions of a file", "-", std::to_string(number_of(answer.body, "keepVersions"))});
  table.print();
  return 0;
}

}  // namespace atl::cli
