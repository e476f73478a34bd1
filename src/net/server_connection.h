// Inside of src/net: what HttpServer shares with the protocols that run on its connections.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "net/http_server.h"

namespace atl::net {

// Touched on `executor` (the connection's strand) only, but for `busy`.
struct ServerConnection {
  asio::any_io_executor executor;
  std::unique_ptr<Stream> stream;  // null during the TLS handshake
  int handshake_fd = -1;           // the descriptor meanwhile, for shutdown(2)
  std::string listener;
  std::string peer;
  std::atomic<bool> busy = false;
  std::function<void()>
      drain;  // tells the peer that no request more is taken; empty: close if idle
};

// Runs a connection to its end.
using Protocol = std::function<Task<void>(std::shared_ptr<ServerConnection>, const ServerOptions&,
                                          const Handler&)>;

struct Secured {
  std::unique_ptr<Stream> stream;
  Protocol protocol;  // empty: HTTP/1.1
};

// Makes a secured connection of a plain one. An error has told the peer what it could.
struct Securing {
  std::function<Task<Result<Secured>>(std::unique_ptr<Stream>, const ServerOptions&)> secure;
};

// Answers a request that no handler sees, and lets the client read the answer.
Task<void> refuse_http1(Stream& stream, const ServerOptions& options, int status,
                        std::string_view message);
std::string error_body(const ServerOptions& options, int status, std::string_view message);
// Closing with unread input makes the kernel send RST, which can destroy the answer on its way:
// finishes sending, then swallows what the client still sends, within limits.
Task<void> linger(Stream& stream);

}  // namespace atl::net
