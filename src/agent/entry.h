// EntryInfo of a path, as the filesystem service shows it (wire/sandbox-agent.md §8.1).
#pragma once

#include <sys/stat.h>

#include <string>
#include <string_view>

#include "agent/filesystem.pb.h"
#include "agent/users.h"
#include "base/result.h"

namespace atl::agent {

// Fills `out` from lstat, the target of a link, and the xattrs. `path` is echoed as given. Uses the
// names in `users` as they are: refresh them once per request. Errors: `sys_errno` of lstat, code
// not_found for ENOENT, else internal; message "lstat <path>: <text>".
Result<void> read_entry(const std::string& path, const UserDb& users, filesystem::EntryInfo& out);

// "-rw-r--r--", "drwxr-xr-x", "Lrwxrwxrwx", "dtrwxrwxrwx", "Dcrw-rw-rw-": a letter per type bit,
// then the nine.
std::string permission_text(mode_t mode);

// The same text with U+FFFD for every byte that is no UTF-8: names on disk are bytes, names in
// messages are text.
std::string to_valid_utf8(std::string_view bytes);

}  // namespace atl::agent
