// TimeLimit: the end of a command that takes too long, with everything that it started.
//
// Theory of operation. An agent that is told a deadline kills the one process at it; its children
// live on. So the limit is kept here: when it is over, a shell inside looks for what belongs to the
// command, stops it until nothing new comes, and kills it. To the command belong its process, those
// whose environment has its mark (children inherit it, whatever group or session they choose), and
// the descendants of both (sudo clears the environment). The shell runs as the command's user, who
// can read those environments when not even root can; what it may not kill root is sent after.
// Then the stream is closed if it does not end by itself: a process that was not found (it cleared
// its environment and lost its parent) may hold the command's stdout. The agent is told a deadline
// too, somewhat later, in case nobody is here any more by then.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "client/process_stream.h"

namespace atl::client {

struct Marked {
  std::string user;  // that it runs as; empty: the default one
  std::string mark;
  std::uint32_t pid = 0;
};

// Returns when nothing of it is left. unavailable: that could not be done.
net::Task<Result<void>> kill_all_of(Inside inside, Marked command);

// What the agent is told when a limit is kept here.
std::chrono::milliseconds agent_deadline(std::chrono::milliseconds limit);

// On the executor of the coroutine that uses it. `stream` outlives it.
class TimeLimit {
 public:
  TimeLimit(const net::asio::any_io_executor& executor, Inside inside, Marked command,
            std::chrono::milliseconds limit, ProcessStream& stream);
  ~TimeLimit();
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;

  // To be awaited when the stream has ended. True: the command was out of time, and nothing of it
  // is left.
  net::Task<Result<bool>> finish();

 private:
  struct State;
  static net::Task<void> watch(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace atl::client
