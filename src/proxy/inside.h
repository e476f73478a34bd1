// The way from the server's own parts (tools, executors, workspaces) into a sandbox of its engine.
#pragma once

#include <string>

#include "client/inside.h"
#include "engine/engine.h"

namespace atl::proxy {

// `engine` outlives it. `token` of the agent; empty: the one of the sandbox as it runs now.
//
// A connection obeys the sandbox's route as the proxy's own do: none is made into a sandbox that
// does not run (not_found) or is being paused (unavailable: try again, or `Engine::wake` first),
// and those that exist break when it is killed or its memory goes to files.
client::Inside inside_of(engine::Engine& engine, SandboxId id, std::string token = {});

}  // namespace atl::proxy
