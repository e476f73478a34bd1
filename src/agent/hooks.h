// Programs of the sandbox's owner that run after a restore: everything executable in one directory,
// in order of name, as root, one after the other.
//
// What is not root's alone to change is not run. A hook that fails, or takes too long and is ended
// with all it started, harms nothing: it is said in the sandbox's log.
#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <string>
#include <vector>

#include "agent/log_ring.h"
#include "agent/reaper.h"

namespace atl::agent {

struct Hooks {
  std::string directory;
  std::vector<std::string> env;  // NAME=value
  std::chrono::milliseconds each{5'000};
  std::chrono::milliseconds all{20'000};  // the server waits 30 s for the answer to /wake
};

// Completes when all have ended. A directory that is not there has none.
net::Task<void> run_hooks(net::asio::io_context& io, Reaper& reaper, LogRing& logs, Hooks hooks);

}  // namespace atl::agent
