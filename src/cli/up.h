// `atoll up`, `atoll serve` and `atoll down`: a server, alone or under its supervisor, and how to
// stop it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace atl::cli {

inline constexpr std::string_view kMetricsAddress = "127.0.0.1:9464";

// RAGFlow's executor_manager API (src/executor), as it is written on the command line.
struct ExecutorOptions {
  std::string listen;  // empty: it is not served
  std::string key;     // empty: nobody is asked for one
  std::string time = "10s";
  std::string memory = "256m";
  unsigned pool = 4;
  std::string rate = "off";
  std::string template_name = "code-interpreter-v1";
  bool static_check = false;
  bool offline = false;
};

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

  // Paused sandboxes: seconds in which they are only frozen before their memory goes to files, and
  // how much RAM all that are frozen may hold (0: no limit).
  unsigned keep_frozen = 0;
  std::uint64_t max_frozen_memory = 0;

  ExecutorOptions executor;
  // Where workspaces are: "dir:/PATH", "s3://BUCKET/PREFIX?endpoint=…"; empty: in the home.
  std::string blobs;

  bool with_stdin = false;  // ends, with its sandboxes, when its stdin does
  // Sessions that several servers share: where (redis://…; empty: they are this server's own), and
  // where the others reach this one (empty: as --listen says).
  std::string store;
  std::string advertise;

  bool standby = false;  // while another process serves the home, wait for its end (standby.h)

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
