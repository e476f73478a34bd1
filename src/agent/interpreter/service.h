// Service: the HTTP API of port 49999 (wire/code-interpreter.md §§1-3). It asks for no token:
// whoever reaches the port may use it.
#pragma once

#include <cstdint>

#include "agent/interpreter/interpreter.h"
#include "net/http_server.h"

namespace atl::agent::interpreter {

inline constexpr std::uint16_t kPort = 49999;
inline constexpr std::size_t kMaxBody = 32 << 20;

class Service {
 public:
  // Both outlive it.
  Service(net::asio::io_context& io, Interpreter& interpreter);

  // On every address, both families; 0 = any free port. The bound port.
  Result<std::uint16_t> listen(std::uint16_t port);

 private:
  net::Task<void> handle(net::Exchange& exchange);
  net::Task<void> list(net::Exchange& exchange);
  net::Task<void> create(net::Exchange& exchange);
  net::Task<void> change(net::Exchange& exchange, std::string id, bool restart);
  net::Task<void> execute(net::Exchange& exchange);
  // Nothing: it was answered already.
  net::Task<std::optional<std::string>> read_body(net::Exchange& exchange);
  net::Task<std::shared_ptr<Context>> context_of(net::Exchange& exchange,
                                                 const ExecuteRequest& request);

  Interpreter& interpreter_;
  net::HttpServer server_;
};

}  // namespace atl::agent::interpreter
