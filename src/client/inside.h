// Inside: a sandbox as whoever works in it sees it, however it is reached: by an engine of this
// process, or by a server. Copies are cheap and mean the same sandbox.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "net/http.h"

namespace atl::client {

inline constexpr std::uint16_t kAgentPort = 49983;

struct Inside {
  std::string id;
  std::string token;  // of the agent
  // A connection to a port. not_found: nothing listens there.
  std::function<net::Task<Result<net::HttpClient>>(std::uint16_t)> connect;
  // What a request to the port needs on its way.
  std::function<net::Headers(std::uint16_t)> headers;
};

// The headers of a request that a server carries to a port of a sandbox. The agent's token goes to
// the agent and the interpreter alone: whatever else listens there is the code's own.
net::Headers headers_for(std::string host, const std::string& id, std::uint16_t port,
                         const std::string& token, const std::string& traffic_token);

}  // namespace atl::client
