#include "cli/gc.h"

#include <fmt/format.h>
#include <unistd.h>

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
  KillCount paused;
  if (!options.paused_older_than.empty()) {
    // Behind the root part: from here on this process is not root.
    SandboxOptions which;
    which.home = options.home;
    which.state = "paused";
    which.older_than = options.paused_older_than;
    ATOLL_TRY_ASSIGN(paused, kill_matching(which));
  }
  if (options.json) {
    json::object o{{"dead_runs", runs}, {"paused", paused.killed}, {"failed", paused.failed}};
    fmt::print("{}\n", json::serialize(o));
  } else {
    fmt::print("removed {} dead run{}", runs, runs == 1 ? "" : "s");
    if (!options.paused_older_than.empty()) fmt::print(", {} paused", paused.killed);
    if (paused.failed > 0) fmt::print(", {} could not be removed", paused.failed);
    fmt::print("\n");
  }
  return paused.failed > 0 ? 1 : 0;
}

}  // namespace atl::cli
