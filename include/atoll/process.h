// Commands and terminals of a sandbox.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/export.h"
#include "atoll/result.h"

namespace atl::sdk {

class Core;
struct SandboxState;

struct CommandEvents {
  std::function<void(std::string_view)> on_stdout;
  std::function<void(std::string_view)> on_stderr;
};

struct CommandOptions {
  std::map<std::string, std::string> envs;
  std::string directory;             // empty: the user's home
  std::string user;                  // empty: the default one
  std::optional<std::string> input;  // all of its stdin
  // Then the command and all that it started is killed. Zero: no limit.
  std::chrono::milliseconds timeout{60'000};
  // Of each stream: what is longer keeps its beginning and its end.
  std::size_t keep = 1 << 20;
  CommandEvents events;
};

struct CommandResult {
  int exit_code = 0;  // 128 + n when signal n ended it; -1 when it timed out
  std::string out;
  std::string err;
  std::uint64_t omitted_out = 0;  // bytes that `out` is short of; it says where
  std::uint64_t omitted_err = 0;
  bool timed_out = false;
};

struct ProcessInfo {
  std::uint32_t pid = 0;
  std::string command;
  std::vector<std::string> arguments;
  std::string tag;
};

// A command that runs in the background, or a terminal. A handle: when the last copy goes away the
// process goes on, nobody listens any more.
class ATOLL_API Process {
 public:
  std::uint32_t pid() const;
  // Returns when it has ended. `out` and `err` hold what came since it was followed; of a terminal
  // all is in `out`. Events of an async call: see client.h.
  Result<CommandResult> wait();
  std::future<Result<CommandResult>> wait_async();
  // stdin, or keys of a terminal.
  Result<void> send(std::string bytes);
  Result<void> close_stdin();
  Result<void> kill();
  Result<void> resize(std::uint32_t columns, std::uint32_t rows);
  // Nobody listens any more; `wait` fails with canceled. No callback begins after it, and it waits
  // for one that runs, unless it is called by that one.
  void disconnect();

  struct State;
  explicit Process(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

// What `sandbox.commands()` gives. A command is a line for `bash -l -c`.
class ATOLL_API Commands {
 public:
  // A command that fails is no error: look at exit_code and timed_out.
  Result<CommandResult> run(std::string line, CommandOptions options = {});
  std::future<Result<CommandResult>> run_async(std::string line, CommandOptions options = {});
  // Runs on in the background, with a stdin; `timeout` zero unless said otherwise.
  // With an `input` it answers when that was sent.
  Result<Process> start(std::string line, CommandOptions options = background());
  std::future<Result<Process>> start_async(std::string line, CommandOptions options = background());
  // Follows one that runs.
  Result<Process> connect(std::uint32_t pid, CommandEvents events = {});
  Result<std::vector<ProcessInfo>> list();
  // False: there was none.
  Result<bool> kill(std::uint32_t pid);
  Result<void> send_stdin(std::uint32_t pid, std::string bytes);
  Result<void> close_stdin(std::uint32_t pid);

  static CommandOptions background() {
    CommandOptions options;
    options.timeout = std::chrono::milliseconds(0);
    return options;
  }
  explicit Commands(std::shared_ptr<SandboxState> sandbox) : sandbox_(std::move(sandbox)) {}

 private:
  std::shared_ptr<SandboxState> sandbox_;
};

struct PtyOptions {
  std::uint32_t columns = 80;
  std::uint32_t rows = 24;
  std::map<std::string, std::string> envs;
  std::string directory;
  std::string user;
  std::chrono::milliseconds timeout{0};  // zero: no limit
  std::function<void(std::string_view)> on_data;
};

// What `sandbox.pty()` gives: login shells with a terminal.
class ATOLL_API Pty {
 public:
  Result<Process> create(PtyOptions options = {});
  std::future<Result<Process>> create_async(PtyOptions options = {});
  Result<Process> connect(std::uint32_t pid, std::function<void(std::string_view)> on_data = {});

  explicit Pty(std::shared_ptr<SandboxState> sandbox) : sandbox_(std::move(sandbox)) {}

 private:
  std::shared_ptr<SandboxState> sandbox_;
};

}  // namespace atl::sdk
