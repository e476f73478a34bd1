// `atoll exec`: code in a fresh sandbox that is gone afterwards, with a hard limit of time. On the
// server that the environment or the home names, else with an engine of this process's own.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace atl::cli {

struct ExecuteCommand {
  std::string home;               // of --home; empty: as the environment says
  std::string code;               // text; empty or "-": stdin
  std::string language;           // empty: Python
  std::string template_name;      // empty: one that has the language
  std::vector<std::string> envs;  // KEY=VALUE
  double timeout_seconds = 30;
  bool structured = false;  // one JSON object instead of the output
};

// 0, 1 when the code failed or there was no sandbox, 124 when it ran into the timeout.
Result<int> execute_code(const ExecuteCommand& command);

}  // namespace atl::cli
