#include "workspace/workspaces.h"

#include <fmt/format.h>

#include <algorithm>

#include "mcp/cut.h"
#include "mcp/schema.h"
#include "mcp/tools/paths.h"
#include "mcp/tools/tool.h"

namespace atl::mcp {
namespace {

// What must be there before anything is copied.
std::optional<ToolError> refuse(Bench& bench) {
  if (bench.setting().caller.team_id.empty()) {
    return ToolError{"authentication_required",
                     "a workspace belongs to somebody: connect with an API key"};
  }
  if (bench.workspaces() == nullptr)
    return ToolError{"workspace_unavailable", "this server keeps no workspaces"};
  return std::nullopt;
}

ToolError workspace_error(const Error& error, std::string_view path) {
  switch (error.code) {
    case Errc::not_found:
      if (is_lost_sandbox(error)) return to_tool_error(error);
      return {"not_found", fmt::format("there is no {} in the workspace ({})", shown(path),
                                       to_utf8(error.message))};
    case Errc::invalid_argument:
    case Errc::out_of_range:
      return {"invalid_path", to_utf8(error.message)};
    default:
      return to_tool_error(error);
  }
}

Outcome copied(Bench& bench, const std::vector<workspace::File>& files, std::string_view verb,
               std::string_view to) {
  Outcome outcome;
  std::uint64_t size = 0;
  json::array list;
  for (const workspace::File& file : files) {
    size += file.size;
    if (list.size() < 1000)
      list.push_back(
          json::object{{"path", file.path}, {"size", file.size}, {"version", file.version}});
  }
  outcome.texts.push_back(files.size() == 1
                              ? fmt::format("{} to {} ({})", verb, shown(to), readable_size(size))
                              : fmt::format("{} {} files to {} ({})", verb, files.size(), shown(to),
                                            readable_size(size)));
  outcome.fields["workspace"] = bench.workspace_name();
  outcome.fields["path"] = to;
  outcome.fields["size"] = size;
  outcome.fields["files"] = std::move(list);
  return outcome;
}

struct Copy {
  std::optional<Result<std::vector<workspace::File>>> files;
};

net::Task<void> keep(net::Task<Result<std::vector<workspace::File>>> copying, Copy& into) {
  into.files.emplace(co_await std::move(copying));
}

// As workspaces keep paths: one '/' before each name, none at the end.
std::string tidy(std::string_view path) {
  std::string out;
  while (!path.empty()) {
    const std::string_view name = path.substr(0, path.find('/'));
    path.remove_prefix(std::min(path.size(), name.size() + 1));
    if (!name.empty()) out.append("/").append(name);
  }
  return out;
}

// Where the files of a folder will be written. A link below the target may lead any of them
// outside, although the target itself is inside.
std::vector<std::string> targets_of(const std::vector<workspace::File>& files,
                                    std::string_view folder, const std::string& to) {
  const std::string above = tidy(folder) + "/";
  std::vector<std::string> out;
  for (const workspace::File& file : files) {
    if (file.path.starts_with(above)) out.push_back(to + "/" + file.path.substr(above.size()));
  }
  return out;
}

}  // namespace

net::Task<Outcome> save_to_workspace(Bench& bench, const json::object& arguments) {
  if (auto refused = refuse(bench)) co_return std::move(*refused);
  auto finding = find(bench, text_argument(arguments, "sandbox_path"));
  auto found = co_await std::move(finding);
  if (!found.ok()) co_return std::move(found).error();
  std::string to(text_argument(arguments, "workspace_path"));
  if (to.empty()) to = fmt::format("/{}", file_name(found->path));
  if (!to.starts_with('/')) to.insert(0, 1, '/');
  auto entering = bench.inside();
  auto inside = co_await std::move(entering);
  if (!inside.ok()) co_return std::move(inside).error();
  Copy copy;
  auto running = bench.stop().run(
      keep(bench.workspaces()->save(bench.setting().caller.team_id, bench.workspace_name(), *inside,
                                    found->path, to),
           copy));
  if (co_await std::move(running) != Stop::Ended::finished || !copy.files)
    co_return stopped_error();
  if (!copy.files->ok()) co_return workspace_error(copy.files->error(), to);
  const auto& files = **copy.files;
  if (files.size() == 1) to = files.front().path;
  co_return copied(bench, files, "saved", to);
}

net::Task<Outcome> load_from_workspace(Bench& bench, const json::object& arguments) {
  if (auto refused = refuse(bench)) co_return std::move(*refused);
  std::string from(text_argument(arguments, "workspace_path"));
  if (!from.starts_with('/')) from.insert(0, 1, '/');
  std::string to(text_argument(arguments, "sandbox_path"));
  if (to.empty()) to = file_name(from);
  if (to.empty()) to = kHome;
  auto resolving = resolve(bench, to);
  auto resolved = co_await std::move(resolving);
  if (!resolved.ok()) co_return std::move(resolved).error();
  auto entering = bench.inside();
  auto inside = co_await std::move(entering);
  if (!inside.ok()) co_return std::move(inside).error();
  Copy there;
  auto listing = bench.stop().run(
      keep(bench.workspaces()->list(bench.setting().caller.team_id, bench.workspace_name(), from),
           there));
  if (co_await std::move(listing) != Stop::Ended::finished || !there.files)
    co_return stopped_error();
  if (!there.files->ok()) co_return workspace_error(there.files->error(), from);
  auto checking = refuse_outside(bench, targets_of(**there.files, from, *resolved));
  if (auto refused = co_await std::move(checking)) co_return std::move(*refused);
  Copy copy;
  auto running = bench.stop().run(
      keep(bench.workspaces()->load(bench.setting().caller.team_id, bench.workspace_name(), from,
                                    *inside, *resolved),
           copy));
  if (co_await std::move(running) != Stop::Ended::finished || !copy.files)
    co_return stopped_error();
  if (!copy.files->ok()) co_return workspace_error(copy.files->error(), from);
  co_return copied(bench, **copy.files, "loaded", *resolved);
}

}  // namespace atl::mcp
