// CONNECT <port>: a connection to a service inside the sandbox, for the traffic proxy on the host.
//
// Only the host's listener has it. The agent connects to 127.0.0.1:<port>, then to [::1]:<port>,
// answers 200 and carries bytes both ways until both sides have finished; 502 if nobody listens. To
// a request with `Atoll-Descriptor` over a Unix socket it gives the connection itself as a
// descriptor beside the answer, and is done.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "net/http.h"

namespace atl::agent {

// "8000" or "<host>:8000"; the host is not looked at, it is always the sandbox itself.
std::optional<std::uint16_t> parse_dial_target(std::string_view target);

net::Task<void> handle_dial(net::Exchange& exchange);

}  // namespace atl::agent
