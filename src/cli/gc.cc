#include "cli/gc.h"

#include <fmt/format.h>
#include <unistd.h>

#include "cli/collect.h"
#include "cli/home.h"
#include "cli/instance.h"
#include "cli/remote.h"
#include "cli/sandbox.h"

namespace atl::cli {

Result<int> gc(const GcOptions& options) {
  if (::geteuid() != 0)
    return make_error(Errc::permission_denied, "removing sandboxes of dead runs needs root");
  ATOLL_TRY_ASSIGN(const ServerUser user, find_server_user());
  ATOLL_TRY_ASSIGN(const Home home, Home::open(options.home, user));
  ATOLL_TRY_ASSIGN(const std::size_t runs, sweep_dead_runs(home, user));
  auto collected = collect_without_server(home, user);
  if (!collected.ok() && collected.error().code != Errc::already_exists)
    return std::move(collected).error();
  // A server that runs removes them itself, as soon as nothing lies over them.
  const Removed removed = collected.ok() ? *collected : Removed{};
  KillCount paused;
  if (!options.paused_older_than.empty()) {
    SandboxOptions which;
    which.home = options.home;
    which.state = "paused";
    which.older_than = options.paused_older_than;
    ATOLL_TRY_ASSIGN(paused, kill_matching(which));
  }
  const std::size_t failed = paused.failed + removed.failed;
  if (options.json) {
    json::object o{{"dead_runs", runs},
                   {"snapshots", removed.snapshots.size()},
                   {"snapshot_bytes", removed.bytes},
                   {"paused", paused.killed},
                   {"failed", failed}};
    fmt::print("{}\n", json::serialize(o));
  } else {
    fmt::print("removed {} dead run{}, {} snapshot{} ({} MB)", runs, runs == 1 ? "" : "s",
               removed.snapshots.size(), removed.snapshots.size() == 1 ? "" : "s",
               removed.bytes >> 20);
    if (!options.paused_older_than.empty()) fmt::print(", {} paused", paused.killed);
    if (failed > 0) fmt::print(", {} could not be removed", failed);
    fmt::print("\n");
  }
  return failed > 0 ? 1 : 0;
}

}  // namespace atl::cli
