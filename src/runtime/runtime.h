// Runtime: makes, signals, freezes and destroys sandboxes. Jail is the first; nothing outside src/runtime/jail assumes it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "net/stream.h"
#include "net/task.h"
#include "runtime/spec.h"

namespace atoll::runtime {

struct Created {
  std::vector<StepTime> steps;
};

class Runtime {
 public:
  virtual ~Runtime() = default;

  // Ready when this returns: the agent inside is listening. On failure nothing is left behind.
  virtual net::Task<Result<Created>> create(SandboxSpec spec) = 0;
  // Kills every process, removes everything the sandbox owned. Idempotent: not_found if there is no such sandbox.
  virtual net::Task<Result<void>> destroy(SandboxId id) = 0;
  virtual net::Task<Result<void>> freeze(SandboxId id) = 0;
  virtual net::Task<Result<void>> thaw(SandboxId id) = 0;
  // Ids of all sandboxes that exist in this runtime's home, running or left over.
  virtual net::Task<Result<std::vector<SandboxId>>> list() = 0;
  // A connection to the agent, made without trusting anything inside the sandbox. Everything it says is untrusted input.
  virtual net::Task<Result<std::unique_ptr<net::Stream>>> connect_agent(SandboxId id) = 0;
};

}  // namespace atoll::runtime
