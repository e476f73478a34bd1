// Tasks: the coroutines that the engine runs on its own account, not on a request's.
//
// Each gets a strand of its own. Failures are logged with the task's name; after `close` nothing
// more starts.
#pragma once

#include <boost/asio/io_context.hpp>
#include <memory>
#include <string_view>

#include "net/task.h"

namespace atl::engine {

class Tasks {
 public:
  explicit Tasks(net::asio::io_context& io);
  ~Tasks();

  // False: closed, the task was not started. `name` is a literal.
  bool spawn(std::string_view name, net::Task<void> body);
  std::size_t running() const;
  void close();
  // Waits until none is left; false when that took longer than `limit`.
  net::Task<bool> drain(std::chrono::milliseconds limit);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace atl::engine
