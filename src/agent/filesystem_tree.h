// Work on whole trees: listing to a depth and recursive removal. Both run in slices and can be
// cancelled between them.
#pragma once

#include <cstdint>
#include <string>

#include "agent/filesystem.pb.h"
#include "agent/users.h"
#include "net/task.h"

namespace atl::agent {

// A listing longer than this is refused: its answer would not fit into memory.
inline constexpr std::size_t kMaxListedEntries = 250'000;

// Pre-order, each directory in byte order, links listed but not entered, the root left out
// (wire/sandbox-agent.md §8.2). `path` may be a link to a directory; the paths of the entries are
// written below `path` as given.
net::Task<Result<void>> list_tree(std::string path, std::uint32_t depth, const UserDb& users,
                                  filesystem::ListDirResponse& out);

// Removes what is there, links themselves and not their targets. Nothing there is success. Goes on
// after a failure and returns the first one, with `sys_errno`.
net::Task<Result<void>> remove_tree(std::string path);

}  // namespace atl::agent
