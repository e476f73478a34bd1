// What workers do to write the memory of sandboxes: the bodies of worker.h. They run in the
// worker's process and end with it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/jail/launch.h"
#include "runtime/jail/worker.h"
#include "sys/fd.h"

namespace atl::jail {

struct DumpInput {
  MemoryTools tools;
  std::string id;
  std::string template_id;
  pid_t init = 0;
  std::uint32_t slot = 0;
  std::string freezer;
  std::uint64_t memory_limit = 0;  // 0: none
  sys::UniqueFd directory;         // the sandbox's
  sys::UniqueFd lock;
  sys::UniqueFd template_root;  // none if it is not known
  std::map<std::string, std::string> facts;

  // What the worker needs of the warden's descriptors.
  std::vector<int> descriptors() const;
};

// Steps "dump.write", "dump.sync", "dump.publish"; leaves the tree as it is.
Result<WorkerResult> run_dump(WorkerChannel& channel, DumpInput& input);
struct SnapshotInput {
  DumpInput source;
  bool memory = true;
  std::string instance;
  runtime::SnapshotId snapshot;
};
// Steps "snapshot.begin", "snapshot.write", "snapshot.disk", "snapshot.flush", "snapshot.publish".
// Leaves nothing after an error.
Result<WorkerResult> run_snapshot(WorkerChannel& channel, SnapshotInput& input);
// Step "kill.seal": the disk, and the names of its files, are on the host's disk.
Result<WorkerResult> run_seal(WorkerChannel& channel, const sys::UniqueFd& directory,
                              const sys::UniqueFd& parent);
// Dumps and restores a tree of its own, with its files in `directory` for a while. The result's
// text is CRIU's version.
Result<WorkerResult> run_probe(WorkerChannel& channel, const MemoryTools& tools,
                               const sys::UniqueFd& directory);

}  // namespace atl::jail
