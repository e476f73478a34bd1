// SideTask: a coroutine that runs beside its owner on the owner's strand.
//
// Everything here is called on that strand. The owner must await `stop()` (or see `wait` return
// true) before the objects go away that the task refers to. A task is stopped by cancelling
// whatever asynchronous operation it is in.
#pragma once

#include <chrono>
#include <memory>

#include "net/task.h"

namespace atl::engine {

class SideTask {
 public:
  // Runs at once, until it first has to wait.
  SideTask(const net::asio::any_io_executor& strand, net::Task<void> body);
  SideTask(const SideTask&) = delete;
  SideTask& operator=(const SideTask&) = delete;
  ~SideTask();

  bool done() const;
  // False: still running after `limit`.
  net::Task<bool> wait(std::chrono::milliseconds limit);
  // Cancels it and waits for its end.
  net::Task<void> stop();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace atl::engine
