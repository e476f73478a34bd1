// Locks: one lock per name, for coroutines. Whoever waits gets it in the order of coming.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "net/task.h"

namespace atl::session {

class Locks {
  struct State;

 public:
  // Holds the lock until it is destroyed; may outlive the `Locks`.
  class Guard {
   public:
    Guard() = default;
    Guard(Guard&& other) noexcept;
    Guard& operator=(Guard&& other) noexcept;
    ~Guard() { release(); }
    void release();

   private:
    friend class Locks;
    Guard(std::shared_ptr<State> state, std::string name)
        : state_(std::move(state)), name_(std::move(name)) {}
    std::shared_ptr<State> state_;
    std::string name_;
  };

  Locks();
  ~Locks();
  // deadline_exceeded: not within `limit`; resource_exhausted: too many wait. Call on a strand.
  net::Task<Result<Guard>> lock(std::string name, std::chrono::milliseconds limit);
  // Names that are locked now.
  std::size_t size() const;

 private:
  const std::shared_ptr<State> state_;
};

}  // namespace atl::session
