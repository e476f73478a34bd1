// What the worker of a sandbox from memory does: carries out the steps of `Actor::worker`. See
// plan.h for the whole picture.
#pragma once

#include <string>
#include <vector>

#include "base/ipv4.h"
#include "runtime/jail/memory_worker.h"
#include "runtime/jail/plan.h"
#include "runtime/jail/worker.h"
#include "snapshot/snapshot.h"
#include "sys/fd.h"
#include "sys/mounts.h"

namespace atl::jail {

struct RestoreInput {
  const std::vector<Step>& plan;
  MemoryTools tools;
  snapshot::Facts facts;
  std::string programs;     // below the stage: what has agent and runners; empty: the stage itself
  sys::UniqueFd memory;     // the directory of the image
  sys::UniqueFd directory;  // the sandbox's, if the image is its own; with
  sys::UniqueFd lock;       // the lock of it, see memory_files.h
  sys::DetachedMount root;
  sys::DetachedMount control;
  std::vector<sys::UniqueFd> cgroup_entrances;
  sys::UniqueFd template_root;
  uid_t first_id = 0;
  Ipv4 address;

  // What the worker needs of the warden's descriptors.
  std::vector<int> descriptors() const;
};

// The result's pid is that of the first process.
Result<WorkerResult> run_restore(WorkerChannel& channel, RestoreInput& input);

}  // namespace atl::jail
