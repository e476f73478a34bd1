// Commands inside a sandbox: started, followed, ended, by the agent's process service.
//
// Every call makes a connection of its own, so any number may be under way. All that a sandbox
// answers is untrusted: bounded and checked.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/inside.h"

namespace atl::client {

struct Command {
  std::string program;  // looked up in PATH inside
  std::vector<std::string> arguments;
  std::map<std::string, std::string> envs;
  std::string directory;             // empty: the user's home
  std::string user;                  // empty: the default one
  std::optional<std::string> input;  // all of its stdin; nullopt: none, it reads end of file
  // Then it and all processes of its group are killed, and `timed_out` says so. Zero: no limit.
  std::chrono::milliseconds timeout{60'000};
  // With a time limit: a secret by which kill_all_of finds its processes. Empty: one is made up.
  std::string mark;
  // Of each stream: what is longer keeps its beginning and its end, half each.
  std::size_t keep = 1 << 20;
};

// `bash -l -c LINE`, as the SDKs run a line.
Command shell(std::string line);

struct CommandEvents {
  std::function<void(std::uint32_t pid)> on_start;
  std::function<void(std::string_view)> on_stdout;
  std::function<void(std::string_view)> on_stderr;
  // Awaited behind each of them, if there is one: who wants to be slow can be. False: enough, the
  // call fails with canceled.
  std::function<net::Task<bool>()> after_event;
};

// What a stream said: all of it, or its beginning and its end.
struct Output {
  std::string head;
  std::string tail;           // only when something was left out
  std::uint64_t omitted = 0;  // bytes between the two
  // Both with a line between them that says how much was left out.
  std::string text() const;
};

struct Finished {
  int exit_code = 0;   // 128 + n when signal n ended it; -1 when it timed out
  std::string status;  // in the agent's words: "exit status 1", "signal: killed"
  Output out;
  Output err;
  bool timed_out = false;
};

// Errors: invalid_argument (no such user, no such directory), not_found (the sandbox or the
// program), unavailable (the connection broke). A command that fails is no error.
net::Task<Result<Finished>> run_command(Inside inside, Command command, CommandEvents events = {});

struct ProcessInfo {
  std::uint32_t pid = 0;
  std::string command;
  std::vector<std::string> arguments;
  std::string tag;
};
net::Task<Result<std::vector<ProcessInfo>>> list_processes(Inside inside);
// not_found: no such process.
net::Task<Result<void>> kill_process(Inside inside, std::uint32_t pid);
net::Task<Result<void>> send_stdin(Inside inside, std::uint32_t pid, std::string bytes);
net::Task<Result<void>> close_stdin(Inside inside, std::uint32_t pid);

}  // namespace atl::client
