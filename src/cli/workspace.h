// `atoll workspace …`: verbs that ask the server's API. workspace_transfer.cc has those that move
// content.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"

namespace atl::cli {

struct WorkspaceOptions {
  std::string home;  // as on the command line; empty: the environment or the default home
  bool json = false;
  std::string name;
  std::string path;  // in the workspace
  std::string file;  // on this machine; "-": stdin or stdout
  std::string version;
  std::string sandbox;
  std::string sandbox_path;
  bool recursive = false;
  bool all = false;
  std::optional<std::uint64_t> max_bytes;
  std::optional<std::uint64_t> max_files;
  std::optional<std::uint64_t> keep_versions;
};

Result<int> workspace_list(const WorkspaceOptions& options);
Result<int> workspace_remove(const WorkspaceOptions& options);
Result<int> workspace_versions(const WorkspaceOptions& options);
Result<int> workspace_restore(const WorkspaceOptions& options);
Result<int> workspace_save(const WorkspaceOptions& options);
Result<int> workspace_load(const WorkspaceOptions& options);
Result<int> workspace_quota(const WorkspaceOptions& options);
Result<int> workspace_put(const WorkspaceOptions& options);
Result<int> workspace_get(const WorkspaceOptions& options);

// "/workspaces/NAME/files?path=…[&version=…]"
std::string file_target(const WorkspaceOptions& options, const std::string& path);

}  // namespace atl::cli
