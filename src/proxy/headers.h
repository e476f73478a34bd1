// Which headers pass between a client and a sandbox. Hop-by-hop headers and framing end here; each
// side makes its own.
#pragma once

#include <cstdint>
#include <string>

#include "net/http.h"

namespace atl::proxy {

enum class Upgrade { no, yes };

// Does the client ask to leave HTTP (WebSocket)?
Upgrade asks_upgrade(const net::RequestHead& request);

// The request as the sandbox gets it. `mask` replaces Host ("${PORT}" in it becomes the port);
// empty: the client's own.
net::RequestHead request_to_sandbox(const net::RequestHead& request, std::uint16_t port,
                                    const std::string& mask, Upgrade upgrade);
// Headers of the answer as the client gets them.
net::Headers headers_to_client(const net::ResponseHead& response, Upgrade upgrade);

}  // namespace atl::proxy
