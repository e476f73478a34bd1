// Completion: something that happens once, and any number of coroutines that wait for it.
//
// `set` and `is_set` may be called from any thread. A waiter must run on a strand (or in an
// io_context with one thread): its timer is touched by a handler posted to the same executor. The
// object must outlive its waiters (hold it by shared_ptr).
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

#include "net/task.h"

namespace atl::engine {

class Completion {
 public:
  void set();
  bool is_set() const;
  // False: it did not happen within `limit`.
  net::Task<bool> wait(std::chrono::milliseconds limit);

 private:
  mutable std::mutex mutex_;
  bool set_ = false;
  std::vector<std::shared_ptr<net::asio::steady_timer>> waiters_;
};

}  // namespace atl::engine
