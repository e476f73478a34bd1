// `atoll sandbox …`: the verbs that ask the server's API. exec.h has those that go inside.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace atl::cli {

struct SandboxOptions {
  std::string home;  // as on the command line; empty: the environment or the default home
  bool json = false;
  std::vector<std::string> ids;

  // create
  std::string template_name = "base";
  std::string timeout = "5m";
  std::vector<std::string> metadata;  // KEY=VALUE
  std::vector<std::string> envs;      // KEY=VALUE
  bool auto_pause = false;
  bool auto_resume = false;
  bool no_internet = false;
  std::vector<std::string> allow_out;
  std::vector<std::string> deny_out;

  // ls, kill-all
  std::string state;       // running, paused; empty: both
  std::string older_than;  // "2h": started longer ago

  // logs
  bool follow = false;
  unsigned lines = 100;

  // pause, resume
  bool disk_only = false;  // pause: keep the disk, end the processes
};

Result<int> sandbox_create(const SandboxOptions& options);
Result<int> sandbox_list(const SandboxOptions& options);
Result<int> sandbox_info(const SandboxOptions& options);
Result<int> sandbox_logs(const SandboxOptions& options);
Result<int> sandbox_metrics(const SandboxOptions& options);
Result<int> sandbox_pause(const SandboxOptions& options);
Result<int> sandbox_resume(const SandboxOptions& options);
Result<int> sandbox_kill(const SandboxOptions& options);
Result<int> sandbox_kill_all(const SandboxOptions& options);

// Kills those that fit --state and --older-than, one after the other; tells failures on stderr.
struct KillCount {
  std::size_t killed = 0;
  std::size_t failed = 0;
};
Result<KillCount> kill_matching(const SandboxOptions& options);

// Splits "KEY=VALUE"; invalid_argument otherwise.
Result<std::pair<std::string, std::string>> split_pair(const std::string& text);

}  // namespace atl::cli
