// The new process of a launch, from clone to exec: carries out the steps of `Actor::init`. See
// plan.h for the whole picture.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/jail/faults.h"
#include "runtime/jail/plan.h"
#include "runtime/jail/seccomp_policy.h"
#include "sys/fd.h"
#include "sys/mounts.h"

namespace atl::jail {

inline constexpr std::size_t kMaxInitSteps = 48;

// What the new process tells the warden over its end of the socket pair, once. The pair is
// close-on-exec: a good report followed by the end of the stream means that the agent runs.
struct InitReport {
  enum : std::uint32_t { good = 0, bad = 1, die = 2 };  // die: tests, the warden is to end itself
  std::uint32_t failed = good;
  std::int32_t code = 0;  // Errc
  std::int32_t sys_errno = 0;
  std::uint32_t step_count = 0;  // steps of init that were completed, in the order of the plan
  char step[wire::kStepNameSize] = {};
  char message[wire::kMessageSize] = {};
  std::uint32_t micros[kMaxInitSteps] = {};
};
static_assert(std::has_unique_object_representations_v<InitReport>);

struct InitInput {
  const std::vector<Step>& plan;
  const SeccompPrograms& filters;
  const Faults& faults;
  sys::UniqueFd channel;
  std::vector<sys::UniqueFd> cgroup_entrances;
  sys::DetachedMount control;
  Ipv4 address;  // of this sandbox
};

// Preconditions: called in the child of clone_process. Does not return: becomes the agent or exits.
[[noreturn]] void run_init(InitInput input);

}  // namespace atl::jail
