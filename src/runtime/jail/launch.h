// Launch: one sandbox being made, from the request to the running agent. See plan.h for the whole
// picture.
//
// Ownership: everything made on the way belongs to the Launch until take(); dropping it undoes all
// of it, except that a kept disk and its id range stay. Single thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/jail/disk.h"
#include "runtime/jail/faults.h"
#include "runtime/jail/mark.h"
#include "runtime/jail/network.h"
#include "runtime/jail/plan.h"
#include "runtime/jail/ranges.h"
#include "runtime/jail/seccomp_policy.h"
#include "sys/cgroup.h"
#include "sys/datagram.h"
#include "sys/process.h"
#include "sys/rollback.h"

namespace atl::jail {

// What all launches of a warden share. Outlives them.
struct LaunchHost {
  sys::UniqueFd templates;
  sys::UniqueFd sandboxes;  // HOME/sandboxes/INSTANCE
  Disks disks;
  Ranges ranges;
  sys::CgroupTree cgroups;
  HostFacts facts;
  SeccompPrograms filters;
  Faults faults;
  std::unique_ptr<Network> network;  // null: sandboxes have none
};

inline constexpr const char* kImageName = "disk.img";

struct StartedSandbox {
  std::uint32_t slot = 0;
  sys::Child init;
  sys::UniqueFd control_dir;  // O_PATH of the directory that holds agent.sock
  // Mounts that the overlay no longer needs. Dropping one waits for an RCU grace period, so it is
  // left to a quiet moment.
  std::vector<sys::DetachedMount> layers;
};

class Launch {
 public:
  Launch(LaunchHost& host, LaunchSpec spec);
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;
  ~Launch();

  // Runs every step of the warden up to the hand-over of the root. After an error only
  // failed_step() and times() make sense.
  Result<void> begin();
  // Readable when the new process has something to say. Waiting for it is the caller's, with a
  // deadline.
  const sys::UniqueFd& channel() const { return channel_; }
  // true: the agent runs. false: more to come.
  Result<bool> advance();
  // Preconditions: advance() returned true.
  StartedSandbox take();

  const LaunchSpec& spec() const { return spec_; }
  const std::string& failed_step() const { return failed_step_; }
  // Steps that were completed, the warden's first.
  const std::vector<std::pair<std::string, std::chrono::microseconds>>& times() const {
    return times_;
  }

 private:
  class Executor;
  Result<sys::Datagram> next_message();
  Result<void> check_socket();
  Result<void> finish();
  void end_process();

  LaunchHost& host_;
  LaunchSpec spec_;
  std::vector<Step> plan_;
  std::string failed_step_;
  std::vector<std::pair<std::string, std::chrono::microseconds>> times_;
  std::chrono::steady_clock::time_point handed_over_;
  bool reported_ = false;

  // Undone in reverse: the process first, its range last.
  sys::Rollback rollback_;
  std::uint32_t slot_ = 0;
  sys::UniqueFd directory_;
  sys::UniqueFd template_root_;
  Disk disk_;
  sys::DetachedMount control_;
  sys::UniqueFd control_dir_;
  std::optional<sys::Cgroup> cgroup_;
  sys::Child init_;
  sys::UniqueFd channel_;
  sys::UniqueFd user_namespace_;
  sys::DetachedMount lower_;
  sys::DetachedMount root_;
};

}  // namespace atl::jail
