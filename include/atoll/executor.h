// One execution of code: a fresh sandbox, the run, the sandbox gone again, whatever happens.
//
// The timeout is hard: at its end the sandbox is killed, whatever the code does with signals. That
// there is no sandbox to be had is an answer too (error_name "SandboxError"), no exception.
#pragma once

#include <chrono>
#include <cstdint>
#include <future>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "atoll/client.h"
#include "atoll/code.h"
#include "atoll/export.h"

namespace atl::sdk {

struct ExecuteOptions {
  std::string language = "python";
  std::chrono::milliseconds timeout{30'000};
  std::string template_id;  // empty: the one with a code interpreter
  std::map<std::string, std::string> envs;
};

struct ATOLL_API StructuredExecution {
  bool success = false;
  std::string output;  // text of the main result
  // "ValueError" and so on of the code; "TimeoutError"; "SandboxError": there was no sandbox, or it
  // was lost.
  std::optional<std::string> error_name;
  std::optional<std::string> error_value;
  std::optional<std::string> error_traceback;
  std::int64_t execution_time_ms = 0;
  std::vector<std::string> out;  // logs
  std::vector<std::string> err;

  // One JSON object with all of it.
  std::string to_json() const;
};

struct SimpleExecution {
  bool success = false;
  std::string output;
  std::optional<std::string> error;  // "ValueError: ..." in one text
  std::int64_t execution_time_ms = 0;
  std::vector<std::string> out;
  std::vector<std::string> err;
};

ATOLL_API SimpleExecution execute(const Client& client, std::string code,
                                  ExecuteOptions options = {});
ATOLL_API StructuredExecution execute_structured(const Client& client, std::string code,
                                                 ExecuteOptions options = {});
ATOLL_API std::future<StructuredExecution> execute_structured_async(const Client& client,
                                                                    std::string code,
                                                                    ExecuteOptions options = {});
// For what `from_environment()` and its like answer: an Error becomes a SandboxError.
ATOLL_API StructuredExecution execute_structured(const Result<Client>& client, std::string code,
                                                 ExecuteOptions options = {});

}  // namespace atl::sdk
