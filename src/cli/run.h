// `atoll run`: code in a fresh sandbox with an engine of its own; no server needed.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace atl::cli {

struct RunOptions {
  std::string home;
  std::string code;  // text, a file's name, or empty / "-" for stdin
  std::string language;
  std::vector<std::string> envs;  // KEY=VALUE
  std::string template_name = "base";
  unsigned timeout_seconds = 300;
  bool timings = false;
};

// The exit status of the code; 124 when it ran into the timeout.
Result<int> run_code(const RunOptions& options);

}  // namespace atl::cli
