// Inside: a sandbox as the verbs that run code see it, however it is reached.
#pragma once

#include <functional>
#include <string>

#include "cli/remote.h"
#include "net/http.h"
#include "runtime/runtime.h"

namespace atl::cli {

inline constexpr std::uint16_t kAgentPort = 49983;

struct Inside {
  std::string id;
  std::string token;  // of the agent
  // A connection to a port. not_found: nothing listens there.
  std::function<net::Task<Result<net::HttpClient>>(std::uint16_t)> connect;
  // What a request to the port needs on its way.
  std::function<net::Headers(std::uint16_t)> headers;
};

// Of this process's own engine. `runtime` outlives it.
Inside inside_of(runtime::Runtime& runtime, SandboxId id, std::string token);
// Of a server. `traffic_token` may be empty.
Inside inside_of(Remote remote, std::string id, std::string token, std::string traffic_token);

}  // namespace atl::cli
