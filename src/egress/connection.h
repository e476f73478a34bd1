// Inside of the proxy: one connection, from its first byte to its end.
#pragma once

#include <memory>

#include "egress/proxy.h"
#include "egress/session.h"

namespace atl::egress {

// What all connections share.
struct Surroundings {
  const Table& table;
  std::shared_ptr<Names> names;
  std::shared_ptr<dns::Upstream> upstream;
  std::shared_ptr<Interceptor> interceptor;  // may be null
  ProxyOptions options;
};

// On the session's strand. Returns when the connection is over.
net::Task<void> carry_connection(std::shared_ptr<const Surroundings> around,
                                 std::shared_ptr<Session> session,
                                 std::unique_ptr<net::Stream> client, Destination to);

}  // namespace atl::egress
