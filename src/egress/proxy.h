// EgressProxy: takes the connections that the kernel redirected, finds out which host each is for,
// and carries it there if the sandbox's policy says so.
//
// What decides, in this order:
// - the peer's address is in the table, else the connection is reset;
// - runtime::kOwnIngressAddress: the server's own ingress, by a name of its own domain only;
// - never-reachable addresses are refused;
// - an address that the policy allows passes; otherwise the name must be allowed *and* DNS must
// have
//   given this sandbox this address for it. The name is the SNI of a ClientHello or the Host of a
//   request, and every request on a connection is looked at;
// - a name with a header rule is intercepted, and its requests get the headers.
//
// A refused TLS or unknown connection is reset, a refused HTTP request answered 403. Each
// connection has a strand of its own; `drop` and `stop` may be called from any thread.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "egress/dns_upstream.h"
#include "egress/intercept.h"
#include "egress/names.h"
#include "egress/table.h"
#include "net/stream.h"

namespace atl::egress {

struct Destination {
  Ipv4 address;
  std::uint16_t port = 0;
};

struct ProxyOptions {
  std::string own_domain;  // empty: none
  // Where the own domain is served, with TLS and without; nullopt: it is not.
  std::optional<net::asio::ip::tcp::endpoint> own_ingress;
  std::optional<net::asio::ip::tcp::endpoint> own_ingress_plain;
  std::size_t per_sandbox = 256;
  std::size_t in_all = 4096;
  std::chrono::milliseconds first_bytes{10'000};
  // With an address that may pass anyway, a client that waits for the server to speak first.
  std::chrono::milliseconds first_bytes_if_allowed{3'000};
  std::chrono::milliseconds connect_time{10'000};
  std::chrono::milliseconds idle{600'000};
  std::chrono::milliseconds sweep_every{1'000};

  // How the original destination is found and connections are made; tests replace them.
  std::function<Result<Destination>(int fd)> destination_of;
  using Connect = net::Task<Result<std::unique_ptr<net::Stream>>>(net::asio::ip::tcp::endpoint to,
                                                                  std::chrono::milliseconds limit);
  std::function<Connect> connect;
};

class EgressProxy {
 public:
  // Takes the listening descriptor. `table` outlives the io context's last run.
  // Without an interceptor hosts with header rules are refused.
  static Result<std::unique_ptr<EgressProxy>> create(net::asio::io_context& io, int listener,
                                                     const Table& table,
                                                     std::shared_ptr<Names> names,
                                                     std::shared_ptr<dns::Upstream> upstream,
                                                     std::shared_ptr<Interceptor> interceptor,
                                                     ProxyOptions options);
  ~EgressProxy();

  // Ends all connections of a sandbox.
  void drop(Ipv4 address);
  void stop();
  std::size_t connections() const;

 private:
  struct Impl;
  explicit EgressProxy(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

// SO_ORIGINAL_DST of a connection that the kernel redirected.
Result<Destination> original_destination(int fd);

}  // namespace atl::egress
