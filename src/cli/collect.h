// Snapshots that belong to nobody any more, and their removal.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/result.h"
#include "cli/home.h"
#include "net/task.h"
#include "runtime/runtime.h"

namespace atl::cli {

struct Removed {
  std::vector<runtime::SnapshotId> snapshots;
  std::uint64_t bytes = 0;  // that they took
  std::size_t failed = 0;   // could not be removed; those in use do not count
};

// Removes what `unwanted` says yes to, and remains of snapshots in any case. One that lies below
// others goes after them; one that is in use stays.
net::Task<Result<Removed>> remove_snapshots(
    runtime::Runtime& runtime, std::function<bool(const runtime::ListedSnapshot&)> unwanted);

// Of a home whose server does not run (already_exists otherwise: a server does it itself): removes
// what its store does not know, what was deleted, and what was made for copies that are gone. This
// process has given up root when it returns. Preconditions: root, no threads yet.
Result<Removed> collect_without_server(const Home& home, ServerUser user);

}  // namespace atl::cli
