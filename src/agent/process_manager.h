// ProcessManager: the table of processes that were started through the agent.
//
// A process is in the live table until it was reaped; then it can still be followed until its
// output ends, and for kRetention after that its end can be asked for. A new process with the same
// pid or tag replaces what an old one left.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "agent/log_ring.h"
#include "agent/process.h"
#include "agent/reaper.h"
#include "agent/spawn.h"
#include "agent/users.h"

namespace atl::agent {

inline constexpr std::chrono::seconds kRetention{30};
inline constexpr std::size_t kMaxRetained = 10'000;

using Selector = std::variant<std::uint32_t, std::string>;  // a pid or a tag

struct ProcessSpec {
  ::process::ProcessConfig config;  // as asked for; List shows it
  User user;
  std::string cwd;               // resolved
  std::vector<std::string> env;  // NAME=value
  std::optional<WindowSize> pty;
  std::optional<std::string> tag;
  bool stdin_pipe = true;
  std::optional<std::chrono::steady_clock::time_point> kill_at;
};

// What is left of a finished process.
struct Retained {
  pid_t pid = 0;
  std::optional<std::string> tag;
  EndStatus end;
  std::chrono::steady_clock::time_point until;
};

class ProcessManager {
 public:
  // All outlive the manager. `logs` is told of beginnings and ends; null: nobody is.
  ProcessManager(net::asio::io_context& io, Reaper& reaper, LogRing* logs = nullptr);

  struct Started {
    std::shared_ptr<Process> process;
    std::unique_ptr<Subscription> subscription;  // sees everything from the first byte
  };
  // Errors: invalid_argument (text as in wire/sandbox-agent.md §7.1), resource_exhausted.
  Result<Started> start(ProcessSpec spec);

  std::vector<std::shared_ptr<Process>> list() const;
  // A running process. Errors: not_found "process with pid 7 not found".
  Result<std::shared_ptr<Process>> find(const Selector& selector) const;
  // Also one that is only still writing, or that has just ended.
  using Followed = std::variant<std::unique_ptr<Subscription>, Retained>;
  struct Attached {
    pid_t pid;
    Followed followed;
  };
  Result<Attached> attach(const Selector& selector);

 private:
  Result<void> make_pipes(const ProcessSpec& spec, SpawnSpec& child, Process::Pipes& ours,
                          std::vector<Fd>& theirs) const;
  void forget_old(pid_t pid, const std::optional<std::string>& tag);
  void log_start(const Process& process, const std::string& user) const;
  void on_finished(Process& process);
  void purge();

  net::asio::io_context& io_;
  Reaper& reaper_;
  LogRing* logs_;
  std::map<pid_t, std::shared_ptr<Process>> processes_;  // running, or reaped with open output
  std::vector<Retained> retained_;                       // oldest first
  net::asio::steady_timer purge_timer_;
};

}  // namespace atl::agent
