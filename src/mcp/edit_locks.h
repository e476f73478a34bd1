// EditLocks: one change of a file at a time. An edit reads, changes and writes; two at once would
// lose one of them. Between calls of this server only: what programs inside write, they write.
//
// May be used on any thread.
#pragma once

#include <memory>
#include <string>

#include "net/task.h"

namespace atl::mcp {

class EditLocks {
 private:
  struct State;
  struct Turn;

 public:
  class Held {
   public:
    Held(Held&&) noexcept = default;
    Held& operator=(Held&&) = delete;
    ~Held();

   private:
    friend EditLocks;
    Held(std::shared_ptr<State> state, std::shared_ptr<Turn> turn)
        : state_(std::move(state)), turn_(std::move(turn)) {}
    std::shared_ptr<State> state_;
    std::shared_ptr<Turn> turn_;
  };

  EditLocks();
  // Waits until nobody else has `name`, in order.
  net::Task<Held> take(std::string name);

 private:
  std::shared_ptr<State> state_;
};

}  // namespace atl::mcp
