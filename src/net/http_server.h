// HttpServer: accepts connections from any number of listeners and runs a handler for every
// request.
//
// Each connection has its own strand, on which its handlers run: one after the other over HTTP/1.1,
// many at once over HTTP/2. A handler that throws or returns without an answer gives a 500 (or a
// broken connection or stream when the answer had begun). Limits: connections in all and by peer,
// header size and time, idle time; the handler limits bodies.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>

#include "net/http.h"

namespace atl::net {

class TlsServerContext;
struct Securing;  // what happens to a connection before it speaks HTTP; server_connection.h

using Handler = std::function<Task<void>(Exchange&)>;

struct ServerOptions {
  HttpLimits limits;
  std::size_t max_connections = 10'000;
  // From one address; 0 = no limit of its own. Not for servers behind a proxy or NAT.
  std::size_t max_connections_per_peer = 0;
  std::chrono::milliseconds handshake_time{
      10'000};                      // TLS, from the connection to its first request
  std::uint32_t max_streams = 250;  // HTTP/2: requests at once on one connection
  // Answers 400/408/413/431 made before a handler sees the request; body from (status, message).
  std::function<std::string(int status, std::string_view message)> error_body;
};

class HttpServer {
 public:
  HttpServer(asio::io_context& io, ServerOptions options, Handler handler);
  ~HttpServer();

  // "127.0.0.1:3000", "[::1]:0"; returns the bound port.
  Result<std::uint16_t> listen_tcp(const std::string& address, std::string name);
  // A listening socket made by somebody else (systemd style); takes the descriptor.
  Result<void> listen_fd(int fd, std::string name);
  // The same over TLS: HTTP/2 if the client chose "h2" by ALPN, else HTTP/1.1. These two are in the
  // library atoll_tls, so that programs without TLS do not carry it.
  Result<std::uint16_t> listen_tls(const std::string& address, std::string name,
                                   std::shared_ptr<TlsServerContext> context);
  Result<void> listen_tls_fd(int fd, std::string name, std::shared_ptr<TlsServerContext> context);
  std::size_t connections() const;
  // Closes every connection of the listener `name` but that of `kept`, busy ones too: their
  // handlers see a broken client. When it completes, their descriptors are closed.
  Task<void> close_connections(std::string name, const Stream& kept);
  // Stops accepting, closes idle connections (GOAWAY over HTTP/2), gives busy ones `drain` to
  // finish, then closes them all.
  Task<void> shutdown(std::chrono::milliseconds drain);

 private:
  struct Impl;
  Result<std::uint16_t> listen_secured(const std::string& address, std::string name,
                                       std::shared_ptr<const Securing> securing);
  Result<void> listen_secured_fd(int fd, std::string name,
                                 std::shared_ptr<const Securing> securing);
  std::shared_ptr<Impl> impl_;
};

}  // namespace atl::net
