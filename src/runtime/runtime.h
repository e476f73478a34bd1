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
};

// What a sandbox uses now, as the kernel counts it.
struct Usage {
  std::uint64_t memory_bytes = 0;
  std::uint64_t memory_peak_bytes = 0;
  std::chrono::microseconds cpu{0};
  std::uint64_t pids = 0;
  std::uint64_t oom_kills = 0;
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

  // Ready when this returns: the agent inside is listening. On failure nothing is left behind.
  virtual net::Task<Result<Created>> create(SandboxSpec spec) = 0;
  // Kills every process, removes everything the sandbox owned. Idempotent: not_found if there is no
  // such sandbox.
  virtual net::Task<Result<void>> destroy(SandboxId id) = 0;
  virtual net::Task<Result<void>> freeze(SandboxId id) = 0;
  virtual net::Task<Result<void>> thaw(SandboxId id) = 0;
  // Ids of all sandboxes that exist in this runtime's home, running or left over.
  virtual net::Task<Result<std::vector<SandboxId>>> list() = 0;
  // A connection to the agent, made without trusting anything inside the sandbox. Everything it
  // says is untrusted input.
  virtual net::Task<Result<std::unique_ptr<net::Stream>>> connect_agent(SandboxId id) = 0;

  // Optional parts; a runtime that lacks one answers `unimplemented` or never calls.
  virtual net::Task<Result<Usage>> usage(SandboxId id);
  // Ends every process inside and keeps the rest (disk, name) until destroy.
  virtual net::Task<Result<void>> kill(SandboxId id);
  virtual void on_exit(std::function<void(ExitNotice)> handler);
  // The means to control sandboxes are gone for good; those that run go on running.
  virtual void on_lost(std::function<void()> handler);
};

}  // namespace atl::runtime
