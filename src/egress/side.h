// Side: a coroutine that runs beside its owner on the owner's strand. The owner awaits `finished()`
// before anything goes away that it uses; to hurry it, break the streams that it waits for.
#pragma once

#include <memory>

#include "net/task.h"

namespace atl::egress {

class Side {
 public:
  Side(const net::asio::any_io_executor& strand, net::Task<void> body);
  bool done() const;
  net::Task<void> finished();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace atl::egress
