// How the end of a process is told to clients (wire/sandbox-agent.md §7.1).
#pragma once

#include <optional>
#include <string>

namespace atl::agent {

struct EndStatus {
  int exit_code = 0;  // -1 if a signal ended it
  bool exited = false;
  std::string status;                // "exit status 3", "signal: killed"
  std::optional<std::string> error;  // the same text unless it exited with 0

  bool operator==(const EndStatus&) const = default;
};

// From the status word of waitpid(2).
EndStatus end_status(int wait_status);
// The names that clients of the protocol know: "killed", "segmentation fault"; "signal 40" for the
// rest.
std::string signal_name(int signal);

}  // namespace atl::agent
