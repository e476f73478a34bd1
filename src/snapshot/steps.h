#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "snapshot/snapshot.h"

namespace atl::snapshot {

// Times of steps that follow each other.
class Steps {
 public:
  void done(std::string name) {
    const auto now = std::chrono::steady_clock::now();
    times_.push_back(
        {std::move(name), std::chrono::duration_cast<std::chrono::microseconds>(now - begin_)});
    begin_ = now;
  }
  // What has passed since the last step belongs to none.
  void begin() { begin_ = std::chrono::steady_clock::now(); }
  std::vector<StepTime> take() { return std::move(times_); }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::vector<StepTime> times_;
};

}  // namespace atl::snapshot
