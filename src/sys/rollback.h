// Rollback: undoes, in reverse order, what a half-done operation has made; commit() keeps it.
#pragma once

#include <functional>
#include <utility>
#include <vector>

namespace atl::sys {

class Rollback {
 public:
  Rollback() = default;
  Rollback(const Rollback&) = delete;
  Rollback& operator=(const Rollback&) = delete;
  ~Rollback() { undo(); }

  // `undo` must not throw; it reports its own failures.
  void add(std::function<void()> undo) { steps_.push_back(std::move(undo)); }
  void commit() { steps_.clear(); }
  void undo() {
    while (!steps_.empty()) {
      std::function<void()> step = std::move(steps_.back());
      steps_.pop_back();
      step();
    }
  }

 private:
  std::vector<std::function<void()>> steps_;
};

}  // namespace atl::sys
