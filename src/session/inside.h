// How to work in the sandbox of a session.
#pragma once

#include <chrono>

#include "client/inside.h"

namespace atl::session {

// One of the server at this address; proxy/inside.h has the way to those of this one. Each
// connection is tried for at most `connect_time`.
client::Inside inside_of(std::string ip, std::uint16_t port, std::string id, std::string token,
                         std::string traffic_token, std::chrono::milliseconds connect_time);

}  // namespace atl::session
