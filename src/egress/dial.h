// Outgoing connections of the resolver and the proxy, made in the host's network namespace.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <memory>

#include "net/stream.h"

namespace atl::egress {

// deadline_exceeded when the connection is not there within `limit`.
net::Task<Result<std::unique_ptr<net::Stream>>> dial(net::asio::ip::tcp::endpoint to,
                                                     std::chrono::milliseconds limit);

// A stream that first gives bytes that somebody already read from it.
std::unique_ptr<net::Stream> put_back(std::unique_ptr<net::Stream> stream, std::string bytes);

}  // namespace atl::egress
