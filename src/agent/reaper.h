// Reaper: waits for every child of the agent, those it started and, as PID 1, the orphans of the
// sandbox.
//
// SIGCHLD is blocked and read from a signalfd, so nothing runs in signal context. A pid stays the
// kernel's until it is waited for, and only the reaper waits: while a callback has not run, its pid
// means that process and can be signalled safely.
#pragma once

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <unordered_map>

#include "net/task.h"

namespace atl::agent {

class Reaper {
 public:
  using Callback = std::function<void(int wait_status)>;

  explicit Reaper(net::asio::io_context& io);
  ~Reaper();

  // Blocks SIGCHLD in this thread and begins to reap.
  Result<void> start();
  // Calls `done` once when `pid` has ended. Call it in the same turn of the loop in which the child
  // was made.
  void watch(pid_t pid, Callback done);
  // Whether somebody waits for its end.
  bool watches(pid_t pid) const;
  // Reaps whatever has ended, now.
  void poll();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace atl::agent
