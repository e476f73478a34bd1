// The client side of SOCKS5 (RFC 1928) with user name and password (RFC 1929).
#pragma once

#include <string>

#include "base/ipv4.h"
#include "egress/policy.h"
#include "net/stream.h"

namespace atl::egress {

struct SocksTarget {
  std::string name;  // empty: `address`
  Ipv4 address;
  std::uint16_t port = 0;
};

// Asks the server at the other end of `stream` for a connection; afterwards the stream is that
// connection. unavailable: it refused; data_loss: it speaks something else.
net::Task<Result<void>> socks_connect(net::Stream& stream, UpstreamProxy proxy, SocksTarget target);

}  // namespace atl::egress
