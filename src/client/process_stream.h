// ProcessStream: a process inside that is being followed: started here, or found by its number.
//
// The connection is the subscription only: when it goes away the process goes on, until its
// deadline if it has one. One coroutine reads.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "client/commands.h"

namespace atl::client {

struct TerminalSize {
  std::uint32_t columns = 80;
  std::uint32_t rows = 24;
};

struct StartOptions {
  std::optional<TerminalSize> terminal;  // then it has a terminal instead of three pipes
  bool stdin_pipe = false;               // for send_stdin
  std::string tag;
  std::string mark;  // put into its environment, see time_limit.h
};

struct ProcessEvent {
  enum class Kind : std::uint8_t { out, err, terminal, end } kind = Kind::end;
  std::string bytes;   // of the first three
  int exit_code = 0;   // of the end; 128 + n when signal n ended it
  std::string status;  // of the end, in the agent's words
};

class ProcessStream {
 public:
  // Answers when it runs. `command.timeout` is the agent's to keep; `command.input` is not looked
  // at. Errors as of run_command.
  static net::Task<Result<ProcessStream>> start(Inside inside, Command command,
                                                StartOptions options);
  // not_found: no such process, or it ended long ago.
  static net::Task<Result<ProcessStream>> connect(Inside inside, std::uint32_t pid);
  ProcessStream(ProcessStream&&) noexcept;
  ProcessStream& operator=(ProcessStream&&) noexcept;
  ~ProcessStream();

  std::uint32_t pid() const;
  // After the end there is nothing more to ask for. deadline_exceeded: the process had its time,
  // and was killed; unavailable: the connection broke.
  net::Task<Result<ProcessEvent>> next();
  // Ends a `next` that waits, which then fails. On the stream's executor.
  void close();

 private:
  struct Impl;
  explicit ProcessStream(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

net::Task<Result<void>> send_terminal(Inside inside, std::uint32_t pid, std::string bytes);
net::Task<Result<void>> resize_terminal(Inside inside, std::uint32_t pid, TerminalSize size);
net::Task<Result<void>> send_signal(Inside inside, std::uint32_t pid, int signal);

// From the agent's words for an end: "signal: killed" is 137.
int exit_code_of(bool exited, int exit_code, std::string_view status);

}  // namespace atl::client
