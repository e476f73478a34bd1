// Inside of src/net: HTTP/2 on a connection of HttpServer.
#pragma once

#include "net/server_connection.h"

namespace atl::net {

// Runs the connection until it ends and all its handlers have returned. Every request becomes an
// Exchange with a handler of its own; all run on the connection's strand.
Task<void> serve_http2(std::shared_ptr<ServerConnection> connection, const ServerOptions& options,
                       const Handler& handler);

}  // namespace atl::net
