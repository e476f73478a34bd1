// A connection to another server.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "net/stream.h"
#include "net/task.h"

namespace atl::session {

// A machine that is gone answers nothing at all, so there is a limit. unavailable: not within it.
// Call on a strand.
net::Task<Result<std::unique_ptr<net::Stream>>> dial(std::string ip, std::uint16_t port,
                                                     std::chrono::milliseconds limit);

}  // namespace atl::session
