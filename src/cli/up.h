// `atoll up` and `atoll down`: the server in the foreground or detached, and how to stop it.
#pragma once

#include <string>

#include "base/result.h"

namespace atl::cli {

struct ServeOptions {
  std::string home;
  std::string listen = "127.0.0.1:3000";
  bool detach = false;
  bool json_logs = false;
  unsigned max_sandboxes = 1000;
  unsigned threads = 2;
};

// Serves until SIGTERM or SIGINT. When healthy, prints the `export E2B_…` lines on stdout and
// closes stdout's pipe.
Result<int> serve(const ServeOptions& options);
// Starts `atoll serve` in the background with the same options and returns when it is healthy.
Result<int> up_detached(const ServeOptions& options, int argc, char** argv);
// Stops the server of a home: SIGTERM, then SIGKILL after a while. 0 also when none was running.
Result<int> down(const std::string& home);

// What HOME/state/server.json says about a server that holds the lock; not_found when none runs.
struct RunningServer {
  int pid = 0;
  std::string url;
};
Result<RunningServer> find_server(const std::string& home);

}  // namespace atl::cli
