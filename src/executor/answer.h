// The answer of POST /run: the one table of what can come of a run, and its JSON.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "executor/artifacts.h"

namespace atl::executor {

struct Answer {
  std::string_view status;  // success, program_error, resource_limit_exceeded, ...; literals all
  std::string out;
  std::string err;
  int exit_code = 0;
  std::optional<std::string> detail;
  std::optional<std::int64_t> time_used_ms;
  std::optional<std::uint64_t> memory_used_kb;
  std::optional<std::string_view> resource_limit;  // "time", "memory"
  std::optional<std::string_view> unauthorized;    // "file_access", "disallowed_syscall"
  std::optional<std::string_view> runtime_error;   // "nonzero_exit"
  std::vector<Artifact> artifacts;
  std::optional<std::string> result;  // JSON of {"present", "value", "type"}, as it goes out
};

// What one run of the code did.
struct Ran {
  int exit_code = 0;
  bool timed_out = false;
  bool out_of_memory = false;  // the kernel killed something in the sandbox for it
  std::string out;
  std::string err;
  std::optional<std::string> value;  // JSON of what main() returned
  std::chrono::milliseconds took{0};
  std::uint64_t memory_kb = 0;
};

Answer answer_of(Ran ran);

// Answers without a run.
Answer busy();
Answer rate_limited();
Answer unsafe(std::string reasons);
Answer internal_error(std::string what);

std::string encode(const Answer& answer);

}  // namespace atl::executor
