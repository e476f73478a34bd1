// The way from a connection to an agent to a service inside its sandbox.
#pragma once

#include <cstdint>
#include <memory>

#include "net/stream.h"

namespace atl::proxy {

// Asks the agent for a connection to the port. An agent that can gives the connection itself as a
// descriptor, so that bytes do not pass through it; from one that cannot the given stream becomes
// the tunnel. not_found: nothing listens on the port. Runs on the strand of `agent`.
net::Task<Result<std::unique_ptr<net::Stream>>> connect_service(std::unique_ptr<net::Stream> agent,
                                                                std::uint16_t port);

}  // namespace atl::proxy
