// The supervisor: `atoll up` itself, which starts `atoll serve` and starts it again when it dies.
//
// Theory of operation. The supervisor is root and does nothing but this: it takes the lock of the
// home, opens the listening sockets, starts a server with copies of them, and waits. It reads
// nothing that a client or a sandbox wrote. The server starts the warden and becomes the user
// atoll. When either of those two dies, the server is gone (it ends itself when it loses its
// warden), the sandboxes go on, and the next server adopts them; meanwhile connections wait in the
// queues of the sockets, which never close.
//
// SIGINT is passed on as SIGINT (stop, kill the sandboxes), SIGTERM and SIGHUP as SIGTERM (stop,
// leave them); after that the end of the server is the end of the supervisor. When the supervisor
// itself dies, the server gets SIGTERM. A server that fails before it was ever healthy is not
// started again: its options are wrong, and it has said how. Later failures are repeated for ever,
// with growing pauses while servers die young.
//
// Orphans of a dead warden (the first processes of sandboxes) become children of the supervisor,
// which reaps them.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "cli/up.h"

namespace atl::cli {

// Numbers of the descriptors that a server inherits; ServeOptions::supervised lists which of the
// last three there are ("tls", "metrics", "executor"), and "announce" for the first server of a
// supervisor.
inline constexpr int kLockFd = 3;
inline constexpr int kReadyFd = 4;  // the server writes one byte when it is healthy
inline constexpr int kMainFd = 5;
inline constexpr int kTlsFd = 6;
inline constexpr int kMetricsFd = 7;
inline constexpr int kExecutorFd = 8;

bool has_word(std::string_view list, std::string_view word);

// How long to wait before the next server.
class Backoff {
 public:
  // `healthy`: how long the one that died had been healthy; nullopt: it never was.
  std::chrono::milliseconds after(std::optional<std::chrono::milliseconds> healthy);

 private:
  unsigned young_ = 0;  // servers in a row that died young
};

// Runs until the server is stopped. Preconditions: one thread. `argv` is this process's own: the
// servers get the same options.
Result<int> supervise(const ServeOptions& options, int argc, char** argv);

}  // namespace atl::cli
