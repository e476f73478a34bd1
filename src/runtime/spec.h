// What a sandbox is made of, as plain values: the only language between the engine and a runtime.
//
// Nothing here is a path on the host. A runtime finds templates and sandboxes by id below its home,
// so that whoever fills in a spec cannot point it elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"

namespace atl::runtime {

struct Limits {
  std::uint64_t memory_bytes = 512ull << 20;
  std::uint32_t cpu_millis = 2000;  // 1000 = one CPU
  std::uint32_t pids = 1024;
  std::uint64_t disk_bytes = 5ull << 30;
  bool operator==(const Limits&) const = default;
};

struct SandboxSpec {
  SandboxId id;
  std::string template_id;  // directory name below templates/
  std::string hostname = "e2b";
  std::string boot_id;  // uuid shown as /proc/sys/kernel/random/boot_id
  Limits limits;
};

// How long each step of a launch took, in order; the breakdown is a metric.
struct StepTime {
  std::string step;
  std::chrono::microseconds took;
};

}  // namespace atl::runtime
