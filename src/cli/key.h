// `atoll key`: the API keys of a home.
#pragma once

#include <string>

#include "base/result.h"

namespace atl::cli {

struct KeyOptions {
  std::string home;
  std::string verb = "show";
  std::string argument;
  std::string team;  // name or id; empty: the team that exists from the beginning
  bool json = false;
};

Result<int> key_command(const KeyOptions& options);

}  // namespace atl::cli
