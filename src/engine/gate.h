// Gate: how many may be inside at once, and a bounded line before it, first come first served.
//
// Thread-safe. A pass may outlive the gate.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "net/task.h"

namespace atl::engine {

class Gate {
  struct State;

 public:
  // The right to be inside, until it is destroyed.
  class Pass {
   public:
    Pass() = default;
    Pass(Pass&& other) noexcept = default;
    Pass& operator=(Pass&& other) noexcept;
    ~Pass() { leave(); }

   private:
    friend class Gate;
    explicit Pass(std::shared_ptr<State> state) : state_(std::move(state)) {}
    void leave();
    std::shared_ptr<State> state_;
  };

  // `places` inside, `line` waiting.
  Gate(std::size_t places, std::size_t line);

  // Waits in line for at most `limit`. resource_exhausted, marked as transient (commands.h): the
  // line is too long, or the turn did not come. unavailable: closed.
  net::Task<Result<Pass>> enter(std::chrono::milliseconds limit);
  // For work that can wait: in only when nobody is in line and half of the places are free.
  std::optional<Pass> enter_if_idle();
  // Nobody comes in any more; those in line are sent away.
  void close();
  std::size_t waiting() const;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace atl::engine
