// Launch: one sandbox being made, from the request to the running agent. See plan.h for the whole
// picture.
//
// Ownership: everything made on the way belongs to the Launch until take(); dropping it undoes all
// of it, except that a kept disk and its id range stay. Single thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/jail/disk.h"
#include "runtime/jail/faults.h"
#include "runtime/jail/layers.h"
#include "runtime/jail/mark.h"
#include "runtime/jail/network.h"
#include "runtime/jail/plan.h"
#include "runtime/jail/programs.h"
#include "runtime/jail/ranges.h"
#include "runtime/jail/seccomp_policy.h"
#include "runtime/jail/snapshot_store.h"
#include "runtime/jail/worker.h"
#include "sys/cgroup.h"
#include "sys/datagram.h"
#include "sys/process.h"
#include "sys/rollback.h"

namespace atl::jail {

// What is known of the host where memory is written and read.
struct MemoryTools {
  std::string criu;  // the directory that tools/install-criu fills
  std::string home;
};

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
  MemoryTools tools;
  SnapshotStore snapshots;
  Layers layers;
  Programs programs;
};

inline constexpr const char* kImageName = "disk.img";
// Names the template that the disk lies over.
inline constexpr const char* kTemplateName = "template";
// Names the boot, for a sandbox that goes on from its memory.
inline constexpr const char* kBootIdName = "boot_id";

struct StartedSandbox {
  std::uint32_t slot = 0;
  sys::Child init;
  sys::UniqueFd control_dir;  // O_PATH of the directory that holds agent.sock
  // Mounts that the overlay no longer needs. Dropping one waits for an RCU grace period, so it is
  // left to a quiet moment.
  std::vector<sys::DetachedMount> layers;
  // Kept for others over the same snapshots.
  std::vector<std::shared_ptr<const SharedLayer>> shared;
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
  // Readable when the new process, or the worker, has something to say. Waiting for it is the
  // caller's, with a deadline.
  const sys::UniqueFd& channel() const { return worker_ ? worker_->channel() : channel_; }
  // true: the agent runs. false: more to come.
  Result<bool> advance();
  // A restore that can no longer be taken back: it must not be ended for being late.
  bool committed() const { return committed_ && worker_; }
  // For a warden that ends: such a restore goes on without it.
  void let_go();
  // Preconditions: advance() returned true.
  StartedSandbox take();

  const LaunchSpec& spec() const { return spec_; }
  const std::string& failed_step() const { return failed_step_; }
  // What a disk that is being made lies over.
  const std::vector<LayerRef>& chain() const { return chain_; }
  // The child that is at work, for whoever reaps; 0: none.
  pid_t child() const { return worker_ ? worker_->pid() : init_.pid(); }
  // Steps that were completed, the warden's first.
  const std::vector<std::pair<std::string, std::chrono::microseconds>>& times() const {
    return times_;
  }

 private:
  class Executor;
  Result<void> ask_process();
  Result<sys::Datagram> next_message();
  Result<void> check_socket();
  Result<void> finish();
  Result<void> mark();
  void end_process();
  // launch_revive.cc: a sandbox from memory.
  Result<void> open_memory();
  Result<void> start_restore();
  Result<bool> advance_restore();
  Result<void> run_step(const char* name, const std::function<Result<void>()>& work);
  Result<void> finish_restore(pid_t pid);
  void end_restore();

  LaunchHost& host_;
  LaunchSpec spec_;
  std::vector<Step> plan_;
  std::string failed_step_;
  std::vector<std::pair<std::string, std::chrono::microseconds>> times_;
  std::chrono::steady_clock::time_point handed_over_;
  bool reported_ = false;
  bool committed_ = false;

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
  std::vector<LayerRef> chain_;
  OpenLayers snapshot_layers_;
  std::optional<Worker> worker_;
  sys::UniqueFd memory_;  // the directory of the image
  std::map<std::string, std::string> memory_facts_;
  std::string programs_;  // that the sandbox runs, see programs.h
};

// What must be the same where memory is read as where it was written.
Result<std::map<std::string, std::string>> memory_facts(const LaunchHost& host,
                                                        const std::string& template_id);

}  // namespace atl::jail
