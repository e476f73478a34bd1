// That CRIU was tried on this host with success: remembered for this boot, so that later wardens
// need not try again and workers need not ask for its version.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/jail/launch.h"
#include "snapshot/snapshot.h"

namespace atl::jail {

// CRIU's version, if that installation was tried.
std::optional<std::string> remembered_trial(const MemoryTools& tools);
void remember_trial(const MemoryTools& tools, std::string_view version);

// For a dump or a restore.
Result<snapshot::Tools> tried_tools(const MemoryTools& tools);

}  // namespace atl::jail
