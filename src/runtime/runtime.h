// Runtime: makes, signals, freezes and destroys sandboxes. Jail is the first; nothing outside
// src/runtime/jail assumes it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "net/stream.h"
#include "net/task.h"
#include "runtime/spec.h"

namespace atl::runtime {

struct Created {
  std::vector<StepTime> steps;
  Ipv4 address;  // of the sandbox, as the egress proxy sees it; 0 = it has no network
};

// A sandbox that exists in the runtime's home.
enum class Condition : std::uint8_t {
  running,
  frozen,
  dead,      // its processes ended (or it was killed); its disk is kept
  dumped,    // its memory and its disk are in files; no process, no mount, no cgroup
  leftover,  // remains of a launch or a removal that was cut off: only good for destroy
};
struct Listed {
  SandboxId id;
  Condition condition = Condition::leftover;
  Ipv4 address;
};

// Listening sockets of the router that all sandboxes' traffic passes; the peer's address tells the
// sandbox. Descriptors are owned by the caller; -1: this runtime has none.
struct EgressSockets {
  int dns_udp = -1;
  int dns_tcp = -1;
  int proxy = -1;  // redirected TCP; SO_ORIGINAL_DST tells where it was going
};

// What a sandbox uses now, as the kernel counts it.
struct Usage {
  std::uint64_t memory_bytes = 0;
  std::uint64_t memory_peak_bytes = 0;
  std::uint64_t memory_cache_bytes = 0;
  std::chrono::microseconds cpu{0};
  std::uint64_t pids = 0;
  std::uint64_t oom_kills = 0;
  std::uint64_t disk_bytes = 0;  // used of the disk
  std::uint64_t disk_total_bytes = 0;
};

// Whether memory can be written to files and brought back here.
struct MemorySupport {
  bool durable = false;
  std::string reason;   // why not, for people
  std::string version;  // of CRIU
};

// What a dump or a snapshot wrote. `steps` are in order; "after_source" of a snapshot: how long it
// took from when its source was thawed again.
struct Written {
  std::uint64_t memory_bytes = 0;
  std::uint64_t disk_bytes = 0;  // of a snapshot: what its copy of the disk occupies
  std::vector<StepTime> steps;
};

struct ListedSnapshot {
  SnapshotId id;
  bool whole = false;  // false: remains of one that was cut off, only good for remove_snapshot
  std::vector<SnapshotId> layers;  // that it lies over, the nearest first
  std::uint64_t memory_bytes = 0;
  std::uint64_t disk_bytes = 0;
};

// The first process of a sandbox ended without being asked to. The sandbox stays, dead, until it is
// destroyed.
struct ExitNotice {
  SandboxId id;
  bool signaled = false;
  int status = 0;  // exit code, or the number of the signal
};

class Runtime {
 public:
  virtual ~Runtime() = default;

  // Ready when this returns: the agent inside is listening. On failure nothing is left behind; with
  // Disk::kept the disk stays as it was, and not_found or failed_precondition say that there is no
  // such disk, or that it is in use. With memory: every process goes on where it was; not_found if
  // there is no such memory, data_loss if it is damaged, failed_precondition if it was written by
  // another kernel, CPU or version than it can be read by. Memory that was kept is still there
  // after an error, and gone after a success.
  virtual net::Task<Result<Created>> create(SandboxSpec spec) = 0;
  // Kills every process, removes everything the sandbox owned. Idempotent: not_found if there is no
  // such sandbox.
  virtual net::Task<Result<void>> destroy(SandboxId id) = 0;
  // Answers when every process inside is really frozen. Both are idempotent.
  virtual net::Task<Result<void>> freeze(SandboxId id) = 0;
  virtual net::Task<Result<void>> thaw(SandboxId id) = 0;
  // All sandboxes that exist in this runtime's home, running or left over.
  virtual net::Task<Result<std::vector<Listed>>> list() = 0;
  // A connection to the agent, made without trusting anything inside the sandbox. Everything it
  // says is untrusted input.
  virtual net::Task<Result<std::unique_ptr<net::Stream>>> connect_agent(SandboxId id) = 0;

  // Optional parts; a runtime that lacks one answers `unimplemented` or never calls.
  virtual net::Task<Result<Usage>> usage(SandboxId id);
  // Ends every process inside, thawing it if need be, and keeps the disk until destroy or a create
  // with Disk::kept. Answers when the last process is gone and the disk is consistent.
  virtual net::Task<Result<void>> kill(SandboxId id);
  // Replaces the policy. In force for new connections when this returns.
  virtual net::Task<Result<void>> set_network(SandboxId id, NetworkPolicy policy);
  // Another limit of memory for a running sandbox. In force when this returns; failed_precondition
  // if it holds more than that already, or does not run.
  virtual net::Task<Result<void>> set_memory(SandboxId id, std::uint64_t bytes);
  virtual net::Task<Result<EgressSockets>> egress_sockets();
  // Starts what `warm` needs for sandboxes of this template and answers when it is ready, which
  // takes seconds the first time. Idempotent. Only for templates that the engine trusts as itself.
  virtual net::Task<Result<void>> prepare(std::string template_id);
  // Puts a process into a running sandbox that has the template's Python libraries loaded, from
  // which the agent forks kernels. Answers when it has connected to the agent; at once with
  // failed_precondition if the template was not prepared. A sandbox is whole without it.
  virtual net::Task<Result<void>> warm(SandboxId id);

  // ---- memory in files ----
  virtual net::Task<Result<MemorySupport>> memory_support();
  // Of a frozen sandbox: writes its memory to files, ends its processes, puts its disk at rest.
  // Answers when all of that would survive a reboot. Errors leave it frozen, whole, as it was:
  // failed_precondition: this tree cannot be dumped (the message says why, for people);
  // resource_exhausted: no space; aborted: cancel_dump came first.
  // The agent must have been told to let go of its connections first (POST /suspend).
  virtual net::Task<Result<Written>> dump(SandboxId id);
  // Ends a dump under way without harm; answers when it has ended, one way or the other. Fine if
  // there is none.
  virtual net::Task<Result<void>> cancel_dump(SandboxId id);
  // Of a frozen sandbox: its memory and a copy of its disk under a new id. It may be thawed before
  // the answer, as soon as it need not stand still; the snapshot is whole then. Errors as of dump.
  virtual net::Task<Result<Written>> snapshot(SandboxId id, SnapshotId snapshot);
  // The same without memory: sandboxes made from it boot over its disk (Memory::none). Any tree can
  // be had that way.
  virtual net::Task<Result<Written>> snapshot_disk(SandboxId id, SnapshotId snapshot);
  // failed_precondition: a sandbox or another snapshot lies over it. not_found.
  virtual net::Task<Result<void>> remove_snapshot(SnapshotId snapshot);
  virtual net::Task<Result<std::vector<ListedSnapshot>>> list_snapshots();

  virtual void on_exit(std::function<void(ExitNotice)> handler);
  // The means to control sandboxes are gone for good; those that run go on running.
  virtual void on_lost(std::function<void()> handler);
};

}  // namespace atl::runtime
