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
  // such disk, or that it is in use.
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
  virtual net::Task<Result<EgressSockets>> egress_sockets();
  // Starts what `warm` needs for sandboxes of this template and answers when it is ready, which
  // takes seconds the first time. Idempotent. Only for templates that the engine trusts as itself.
  virtual net::Task<Result<void>> prepare(std::string template_id);
  // Puts a process into a running sandbox that has the template's Python libraries loaded, from
  // which the agent forks kernels. Answers when it has connected to the agent; at once with
  // failed_precondition if the template was not prepared. A sandbox is whole without it.
  virtual net::Task<Result<void>> warm(SandboxId id);
  virtual void on_exit(std::function<void(ExitNotice)> handler);
  // The means to control sandboxes are gone for good; those that run go on running.
  virtual void on_lost(std::function<void()> handler);
};

}  // namespace atl::runtime
