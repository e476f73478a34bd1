// `atoll up`, `atoll serve` and `atoll down`: a server, alone or under its supervisor, and how to
// stop it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace atl::cli {

inline constexpr std::string_view kMetricsAddress = "127.0.0.1:9464";

struct ServeOptions {
  std::string home;
  std::string listen = "127.0.0.1:3000";
  bool detach = false;
  bool json_logs = false;
  std::string log_level = "info";
  std::string version = "dev";

  // TLS. Loopback and a high port unless told otherwise: what other machines can reach is a
  // decision, not a default.
  std::string domain;    // empty: no TLS
  std::string tls_cert;  // PEM files; empty: what `atoll cert` made
  std::string tls_key;
  std::string tls_listen = "127.0.0.1:3443";
  // Empty: kMetricsAddress if it is free and --listen has a port of its own. "off": none.
  std::string metrics_listen;
  std::vector<std::string> resolvers;  // "1.1.1.1:53"; empty: those of /etc/resolv.conf

  unsigned max_sandboxes = 1000;
  unsigned max_per_team = 0;
  unsigned max_per_key = 0;
  unsigned max_creates = 8;
  unsigned max_connections_per_sandbox = 0;

  // Sandboxes made ahead, per template in use; 0: none.
  unsigned pool_ready = 4;
  unsigned pool_skeletons = 4;
  bool no_zygotes = false;  // kernels are started cold

  // What a supervisor handed over, as words (supervisor.h); empty: a server of its own.
  std::string supervised;
};

// Level and form of the log, as the options say; invalid_argument: no such level.
Result<void> configure_log(const ServeOptions& options);

// Serves until SIGINT (sandboxes are killed) or SIGTERM (they go on). When healthy, prints the
// `export E2B_…` lines on stdout and closes stdout's pipe.
Result<int> serve(const ServeOptions& options);
// Starts `atoll up` in the background with the same options and returns when it is healthy.
Result<int> up_detached(const ServeOptions& options, int argc, char** argv);

enum class Sandboxes { kill, keep };
// Stops the server of a home, with force after a while. 0 also when none was running.
Result<int> down(const std::string& home, Sandboxes sandboxes);

// What HOME/state/server.json says about a server that holds the lock; not_found when none runs.
struct RunningServer {
  int pid = 0;         // of the server
  int supervisor = 0;  // 0: none
  std::string url;
  std::string metrics_url;  // empty: none
};
Result<RunningServer> find_server(const std::string& home);

}  // namespace atl::cli
