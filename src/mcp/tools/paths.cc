#include "mcp/tools/paths.h"

#include <fmt/format.h>

#include "mcp/cut.h"

namespace atl::mcp {
namespace {

constexpr std::chrono::seconds kResolveTime{10};
constexpr std::size_t kMaxResolved = 16 << 20;  // bytes of many paths, given and real

ToolError outside(std::string_view path) {
  return {"invalid_path", fmt::format("{} is outside of {}; the file tools work only below it. Use "
                                      "bash_exec for the rest of the sandbox.",
                                      shown(path), kHome)};
}

ToolError unresolved(std::string_view path, const client::Finished& done) {
  return {"invalid_path", fmt::format("{} cannot be resolved: {}", shown(path),
                                      cut_middle(to_utf8(done.err.text()), 500, ""))};
}

ToolError took_too_long(std::string_view path) {
  return {"timeout", fmt::format("{} was not resolved within {} s; the sandbox is very busy",
                                 shown(path), kResolveTime.count())};
}

client::Command realpath_command() {
  client::Command command;
  command.program = "realpath";
  command.arguments = {"-m", "-z", "--"};
  command.directory = "/";
  command.user = "root";  // as the agent, which will use it
  command.timeout = kResolveTime;
  command.keep = 64 << 10;
  return command;
}

net::Task<void> keep_stat(client::Inside inside, std::string path,
                          std::optional<Result<client::Entry>>& into) {
  auto asking = client::stat_file(std::move(inside), std::move(path));
  into.emplace(co_await std::move(asking));
}

}  // namespace

Got<std::string> absolute_path(std::string_view path) {
  if (path.find('\0') != std::string_view::npos)
    return ToolError{"invalid_path", "a path cannot have a NUL character"};
  if (path == "~") return std::string(kHome);
  if (path.starts_with("~/")) path.remove_prefix(2);
  if (path.starts_with('/')) return std::string(path);
  return fmt::format("{}/{}", kHome, path);
}

bool is_within_home(std::string_view resolved) {
  if (!resolved.starts_with(kHome)) return false;
  return resolved.size() == kHome.size() || resolved[kHome.size()] == '/';
}

std::string_view file_name(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  return path.substr(path.rfind('/') + 1);
}

std::string shown(std::string_view path) {
  for (const char c : path) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      return json::serialize(json::value(path));
  }
  return std::string(path);
}

net::Task<Got<std::string>> resolve(Bench& bench, std::string_view path) {
  auto absolute = absolute_path(path);
  if (!absolute.ok()) co_return std::move(absolute).error();
  client::Command command = realpath_command();
  command.arguments.push_back(*absolute);
  auto running = bench.run(std::move(command));
  auto done = co_await std::move(running);
  if (!done.ok()) co_return std::move(done).error();
  if (done->timed_out) co_return took_too_long(path);
  std::string resolved = done->out.text();
  if (done->exit_code != 0 || resolved.size() < 2 || resolved.back() != '\0') {
    co_return unresolved(path, *done);
  }
  resolved.pop_back();
  if (!is_within_home(resolved)) co_return outside(path);
  co_return resolved;
}

net::Task<std::optional<ToolError>> refuse_outside(Bench& bench, std::vector<std::string> paths) {
  if (paths.empty()) co_return std::nullopt;
  client::Command command = realpath_command();
  std::string all;
  for (const std::string& path : paths) all += path + '\0';
  if (all.size() > kMaxResolved) {
    co_return ToolError{"too_large", fmt::format("the names of {} files are too much at once; take "
                                                 "a smaller folder",
                                                 paths.size())};
  }
  // They do not fit into one list of arguments.
  command.arguments.insert(command.arguments.begin(), {"-0", "-r", command.program});
  command.program = "xargs";
  command.input = std::move(all);
  command.keep = 2 * kMaxResolved;
  auto running = bench.run(std::move(command));
  auto done = co_await std::move(running);
  if (!done.ok()) co_return std::move(done).error();
  if (done->timed_out) co_return took_too_long(paths.front());
  std::string_view rest = done->out.head;
  for (const std::string& path : paths) {
    const std::size_t end = rest.find('\0');
    if (end == std::string_view::npos) co_return unresolved(path, *done);
    if (!is_within_home(rest.substr(0, end))) co_return outside(path);
    rest.remove_prefix(end + 1);
  }
  co_return std::nullopt;
}

net::Task<Got<Found>> find(Bench& bench, std::string_view path) {
  auto resolving = resolve(bench, path);
  auto resolved = co_await std::move(resolving);
  if (!resolved.ok()) co_return std::move(resolved).error();
  auto entering = bench.inside();
  auto inside = co_await std::move(entering);
  if (!inside.ok()) co_return std::move(inside).error();
  std::optional<Result<client::Entry>> entry;
  auto asking = bench.stop().run(keep_stat(*inside, *resolved, entry));
  if (co_await std::move(asking) != Stop::Ended::finished || !entry) co_return stopped_error();
  if (!entry->ok()) {
    if (entry->error().code != Errc::not_found || is_lost_sandbox(entry->error())) {
      ToolError error = to_tool_error(entry->error());
      // The path is all that was asked with: it is too long, or has bytes that are no text.
      if (error.code == "invalid_argument") error.code = "invalid_path";
      co_return error;
    }
    co_return ToolError{"not_found",
                        fmt::format("there is no {}; list_files and glob_files show what is there",
                                    shown(*resolved))};
  }
  co_return Found{std::move(*resolved), std::move(**entry)};
}

}  // namespace atl::mcp
