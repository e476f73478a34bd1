// Long work on the agent's one thread is cut into slices, so that other requests go on: check
// `due()` after every small step and await `yield()` when it says so.
#pragma once

#include <chrono>

#include "net/task.h"

namespace atl::agent {

class Slice {
 public:
  // True when this slice has run for its time. Looks at the clock every few steps only.
  bool due() { return ++steps_ % 32 == 0 && due_now(); }
  // The same with a look at the clock every time, for steps that are long themselves.
  bool due_now() const { return std::chrono::steady_clock::now() - began_ >= kTime; }
  // Goes to the end of the executor's queue.
  net::Task<void> yield();

 private:
  static constexpr std::chrono::milliseconds kTime{2};
  unsigned steps_ = 0;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

}  // namespace atl::agent
