// `atoll session …`: sessions by their keys.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace atl::cli {

struct SessionOptions {
  std::string home;  // as on the command line; empty: the environment or the default home
  bool json = false;
  std::vector<std::string> keys;

  // get; empty: the server's default, or what the session has
  std::string template_name;
  std::string timeout;
  std::string pause_after;
  std::string ttl;
  std::string workspace;
  std::vector<std::string> metadata;  // KEY=VALUE
  std::vector<std::string> envs;      // KEY=VALUE
  bool no_internet = false;
};

// Prints the id of the sandbox.
Result<int> session_get(const SessionOptions& options);
Result<int> session_list(const SessionOptions& options);
Result<int> session_info(const SessionOptions& options);
Result<int> session_pause(const SessionOptions& options);
Result<int> session_remove(const SessionOptions& options);

}  // namespace atl::cli
