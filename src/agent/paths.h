// How a path in a request becomes a path in the sandbox, and how missing parents are made
// (wire/sandbox-agent.md §6.3, §6.4).
//
// The agent runs inside the sandbox, so a path can only mean a sandbox path; nothing here confines
// it. What callers rely on is the exact text: absolute paths come back as they were given.
#pragma once

#include <string>
#include <string_view>

#include "agent/users.h"
#include "base/result.h"

namespace atl::agent {

// Empty -> `default_workdir` if there is one, else home; `~`, `~/x` -> home; relative -> below
// home, cleaned; absolute -> unchanged. Errors: invalid_argument for `~name`, a NUL byte, text that
// is not UTF-8, more than PATH_MAX bytes.
Result<std::string> resolve_path(std::string_view path, const User& user,
                                 std::string_view default_workdir);

// Makes every missing component of `path` (itself included) with mode 0755, owned by the user;
// existing directories keep their owner. Errors: internal; "path is a file: <component>" when a
// component is not a directory. `sys_errno` tells ENOSPC.
Result<void> ensure_dirs(std::string_view path, const User& user);

// Lexical: no `.`, `..`, doubled or trailing slashes. "" -> ".".
std::string clean_path(std::string_view path);
// What stands before the last slash, cleaned; "/" for the root and "." if there is none.
std::string parent_path(std::string_view path);
// The last component, trailing slashes ignored: "/a/b/" -> "b", "/" -> "/", "" -> ".".
std::string_view base_name(std::string_view path);
// `directory` + "/" + `name`, without doubling a slash that is already there.
std::string join_path(std::string_view directory, std::string_view name);

// "no such file or directory": the wording for errno that clients of the protocol know.
std::string os_error_text(int err);
// "<operation> <path>: <text>" with `code`.
Error os_error(Errc code, std::string_view operation, std::string_view path, int err);

}  // namespace atl::agent
