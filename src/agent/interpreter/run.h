// Run: one execution, between the kernel that writes its output and the client that reads it.
//
// The context drives it, the request takes batches of whole lines from it. A client that does not
// read makes it congested, and the kernel is not read any more. After the client went away
// (`abandon`) or a limit was passed, output is dropped and the context interrupts the kernel. A run
// that was under way when the sandbox was suspended (`outlive_client`) goes on without its client.
#pragma once

#include <string>
#include <string_view>

#include "agent/interpreter/event.h"
#include "agent/interpreter/lines.h"

namespace atl::agent::interpreter {

struct RunLimits {
  std::size_t bytes = 64 << 20;
  std::size_t results = 10'000;
};

class Run {
 public:
  // `request` is the line for the runner.
  explicit Run(std::string request, RunLimits limits = {});

  std::string take_request() { return std::move(request_); }

  // ---- the kernel's side ----
  // `notice`, if any, is told on stderr before all other output.
  void started(std::int64_t execution_count, std::string_view notice);
  void relay(LineType type, std::string_view line);
  void text(Output output, std::string_view utf8);
  void oversized();
  // The last line. `lost`: the kernel had to be replaced after a limit was passed.
  enum class State { kept, lost };
  void end(State state = State::kept);
  // An error of the agent's own, and the last line. Nothing if the run has ended.
  void fail(std::string_view name, std::string_view value);
  bool is_started() const { return started_; }
  bool ended() const { return ended_; }
  bool over_limit() const { return !limit_.empty(); }
  // Somebody has to interrupt it.
  bool unwanted() const { return abandoned_ || over_limit(); }
  bool congested() const;
  Event& room() { return room_; }

  // ---- the client's side ----
  struct Batch {
    std::string lines;
    bool last = false;
  };
  // Empty: there was nothing for `patience`.
  net::Task<Batch> next(Clock::duration patience);
  void abandon();
  // From now on the end of its client is no reason to interrupt it.
  void outlive_client() { outlives_ = true; }
  bool abandoned() const { return abandoned_; }

 private:
  void add(std::string_view lines);
  bool drops() const { return ended_ || unheard_ || unwanted(); }

  std::string request_;
  RunLimits limits_;
  std::string out_;
  Clock::time_point held_until_{};
  std::size_t bytes_ = 0;
  std::size_t results_ = 0;
  std::string limit_;  // which one was passed, for people
  bool started_ = false;
  bool ended_ = false;
  bool abandoned_ = false;
  bool outlives_ = false;
  bool unheard_ = false;  // it outlived its client
  Event changed_;
  Event room_;
};

}  // namespace atl::agent::interpreter
