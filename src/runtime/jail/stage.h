// The stage: one read-only tmpfs per warden with what all its sandboxes share: device nodes, the
// agent's binary and the runners. It is attached in the warden's private mount namespace only;
// sandboxes get read-only copies of parts of it and keep them when the warden is gone.
#pragma once

#include <string>

#include "base/result.h"
#include "sys/fd.h"

namespace atl::jail {

// Names of directories below kStage where the warden and the new process attach something for a
// moment.
inline constexpr const char* kStageRoot = "root";
inline constexpr const char* kStageLower = "lower";
inline constexpr const char* kStageDisk = "disk";
// Where layers of snapshots are attached for as long as they are used.
inline constexpr const char* kStageLayers = "layers";
// The programs of sandboxes: the agent's directory beside the runners (kKernelsName). Below
// kStagePrograms, in a tmpfs of its own, are those of other versions (programs.h).
inline constexpr const char* kStageAgent = "agent";
inline constexpr const char* kAgentName = "atoll-agent";
inline constexpr const char* kStagePrograms = "programs";

// Preconditions: root, in a private mount namespace whose mounts do not propagate. `agent_path` and
// the tree `kernels_path` are copied; an empty `kernels_path` is an empty tree.
Result<void> build_stage(const std::string& agent_path, const std::string& kernels_path);

// Into an open directory: the agent as kAgentName, and what is in a tree of runners. Bounded; links
// and devices are refused. Everybody may read and nobody write the copies.
Result<void> copy_agent(const sys::UniqueFd& agent, const sys::UniqueFd& into);
Result<void> copy_kernels(const sys::UniqueFd& tree, const sys::UniqueFd& into);

}  // namespace atl::jail
