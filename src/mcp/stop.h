// Stop: ends a tool call from outside: its client cancelled it or went away.
//
// A call belongs to one strand. `request` may come from any thread; `run` and the rest are on the
// strand. Only what runs inside `run` is cancelled, at the suspension point it is in: what must not
// be left half-done (a sandbox that is being made) is awaited outside of it.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "net/task.h"

namespace atl::mcp {

class Stop {
 public:
  explicit Stop(net::asio::any_io_executor strand);
  void request();
  bool requested() const;

  enum class Ended { finished, stopped, timed_out };
  // Until the work is done, the call is stopped or the time is over; when this returns nothing of
  // the work is under way any more. The work leaves its result where its maker awaits it.
  net::Task<Ended> run(net::Task<void> work,
                       std::optional<std::chrono::milliseconds> limit = std::nullopt);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace atl::mcp
