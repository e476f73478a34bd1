// One execution of code: a fresh sandbox, the run, the sandbox gone again, whatever happens.
//
// The limit of time is hard: at its end nobody is asked, the sandbox is disposed of. That no
// sandbox could be had, or that it was lost, is an answer as well (error_name "SandboxError").
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "client/execution.h"
#include "client/inside.h"

namespace atl::client {

struct ExecuteOptions {
  std::string language = "python";
  std::chrono::milliseconds timeout{30'000};
  std::map<std::string, std::string> envs;
};

struct Executed {
  bool success = false;
  std::string output;  // text of the main result
  std::optional<CellError> error;
  std::int64_t time_ms = 0;  // of the run, without making the sandbox
  std::vector<std::string> out;
  std::vector<std::string> err;
  std::vector<CellResult> results;

  // {"success", "output", "error_name", "error_value", "error_traceback", "execution_time_ms",
  //  "logs": {"stdout", "stderr"}}
  json::object to_json() const;
};

inline constexpr const char* kSandboxError = "SandboxError";
inline constexpr const char* kTimeoutError = "TimeoutError";

// Where sandboxes come from. `dispose` ends the sandbox that `create` made; it is called after each
// create that succeeded, once.
struct SandboxSource {
  std::function<net::Task<Result<Inside>>()> create;
  std::function<net::Task<void>()> dispose;
};

net::Task<Executed> execute_structured(SandboxSource source, std::string code,
                                       ExecuteOptions options);

}  // namespace atl::client
