// How the verbs that run code reach a sandbox.
#pragma once

#include <string>

#include "cli/remote.h"
#include "client/inside.h"
#include "runtime/runtime.h"

namespace atl::cli {

using client::Inside;
using client::kAgentPort;

// Of this process's own engine. `runtime` outlives it.
Inside inside_of(runtime::Runtime& runtime, SandboxId id, std::string token);
// Of a server. `traffic_token` may be empty.
Inside inside_of(Remote remote, std::string id, std::string token, std::string traffic_token);

}  // namespace atl::cli
