// Paths of the file tools: confined to the home by real resolution.
//
// A path is resolved inside the sandbox, by `realpath -m` with the rights of the agent that will
// use the result: links, `..` and missing tails as the kernel would walk them. What comes out is
// compared whole names at a time, and only it is used afterwards.
//
// This keeps a model from wandering off; it is no boundary of security. Whoever may call a tool may
// call bash_exec, and a process inside could swap a link between resolution and use: it would
// reach what it can reach anyway, the sandbox's own files. The boundary is the sandbox.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/files.h"
#include "mcp/tools/bench.h"

namespace atl::mcp {

inline constexpr std::string_view kHome = "/home/user";

// Absolute, not resolved: relative ones are below the home. invalid_path: a NUL.
Got<std::string> absolute_path(std::string_view path);
// The home itself or below it; `resolved` is absolute without links and dots. /home/user2 is not.
bool is_within_home(std::string_view resolved);
// The last name; "/" has none.
std::string_view file_name(std::string_view path);
// A name for people on one line: quoted when it has control characters.
std::string shown(std::string_view path);

// The real path, whether or not it exists. invalid_path: outside of the home.
net::Task<Got<std::string>> resolve(Bench& bench, std::string_view path);
// The same of many absolute paths at once; nothing if all of them stay inside.
net::Task<std::optional<ToolError>> refuse_outside(Bench& bench, std::vector<std::string> paths);

struct Found {
  std::string path;  // resolved
  client::Entry entry;
};
// The same of one that must exist. not_found.
net::Task<Got<Found>> find(Bench& bench, std::string_view path);

}  // namespace atl::mcp
