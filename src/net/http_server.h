// HttpServer: accepts connections from any number of listeners and runs a handler for every
// request.
//
// Each connection is one coroutine on its own strand. A handler that throws or returns without an
// answer gives a 500 (or a broken connection when the answer had begun). Limits: connections in
// all, header size and time, idle time; the handler limits bodies.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>

#include "net/http.h"

namespace atl::net {

using Handler = std::function<Task<void>(Exchange&)>;

struct ServerOptions {
  HttpLimits limits;
  std::size_t max_connections = 10'000;
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
  std::size_t connections() const;
  // Stops accepting, closes idle connections, gives busy ones `drain` to finish, then closes them
  // all.
  Task<void> shutdown(std::chrono::milliseconds drain);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace atl::net
