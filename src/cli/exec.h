// `atoll sandbox exec` and `connect`: a process inside a sandbox with this process's stdin, stdout
// and stderr, or with a live terminal.
//
// The process lives inside: when the connection breaks (the server is being replaced) it is found
// again by its number; what it printed in between is not. With a terminal, keys go inside as they
// are, Ctrl-C too; without one, SIGINT and SIGTERM end the process inside, the second time with
// SIGKILL.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace atl::cli {

struct ExecOptions {
  std::string home;
  std::string id;
  std::vector<std::string> command;
  bool terminal = false;
  std::string user;
  std::string directory;
  std::vector<std::string> envs;  // KEY=VALUE
};

// The exit status of the process, 128 + n when signal n ended it.
Result<int> sandbox_exec(const ExecOptions& options);
// A login shell with a terminal.
Result<int> sandbox_connect(ExecOptions options);

}  // namespace atl::cli
