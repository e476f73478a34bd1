// `atoll sandbox …`: the verbs that ask the server's API. exec.h has those that go inside.
#pragma once

#include <chrono>
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

  // pause, snapshot
  bool disk_only = false;  // keep the disk, not the processes

  // snapshot, fork, rollback
  std::string id;        // of the sandbox
  std::string name;      // snapshot: its name; snapshots: only those of this name
  std::string snapshot;  // rollback: what to go back to
  unsigned count = 1;    // fork: how many

  // snapshots
  std::string of_sandbox;  // only those made of this one
};

Result<int> sandbox_create(const SandboxOptions& options);
Result<int> sandbox_list(const SandboxOptions& options);
Result<int> sandbox_info(const SandboxOptions& options);
Result<int> sandbox_logs(const SandboxOptions& options);
Result<int> sandbox_metrics(const SandboxOptions& options);
Result<int> sandbox_pause(const SandboxOptions& options);
Result<int> sandbox_resume(const SandboxOptions& options);
// In snapshot.cc.
Result<int> sandbox_snapshot(const SandboxOptions& options);
Result<int> sandbox_snapshots(const SandboxOptions& options);
Result<int> sandbox_remove_snapshot(const SandboxOptions& options);
Result<int> sandbox_fork(const SandboxOptions& options);
Result<int> sandbox_rollback(const SandboxOptions& options);
Result<int> sandbox_kill(const SandboxOptions& options);
Result<int> sandbox_kill_all(const SandboxOptions& options);

// Kills those that fit --state and --older-than, one after the other; tells failures on stderr.
struct KillCount {
  std::size_t killed = 0;
  std::size_t failed = 0;
};
Result<KillCount> kill_matching(const SandboxOptions& options);

// invalid_argument: not the id of a sandbox.
Result<void> check_id(const std::string& id);
// What --timeout and the like say; `option` is named in the error.
Result<std::chrono::seconds> duration_option(const std::string& text, const char* option);
// Splits "KEY=VALUE"; invalid_argument otherwise.
Result<std::pair<std::string, std::string>> split_pair(const std::string& text);

}  // namespace atl::cli
