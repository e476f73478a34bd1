// Resolver: DNS for sandboxes, over UDP and TCP sockets that the warden opened in the router's
// network namespace. The peer's address tells the sandbox; who is not in the table gets no answer.
//
// Names that the policy does not resolve are REFUSED; AAAA, HTTPS and SVCB get an empty answer (no
// IPv6 inside; no addresses or keys by a way that the proxy does not see); never-reachable
// addresses are taken out of answers. Names of the server's own domain lead to
// runtime::kOwnIngressAddress. Everything else goes to the upstream servers. What A records say is
// remembered for the proxy.
//
// State lives on one strand; `start`, `stop` and `addresses` may be called from any thread.
#pragma once

#include <boost/asio/io_context.hpp>
#include <memory>
#include <string>
#include <vector>

#include "egress/dns_upstream.h"
#include "egress/names.h"
#include "egress/table.h"
#include "net/task.h"

namespace atl::egress {

struct ResolverOptions {
  std::string own_domain;  // empty: none
  std::size_t in_flight_per_sandbox = 64;
  std::size_t in_flight = 1024;
  std::size_t queries_per_second = 1000;  // of one sandbox; more are dropped
  std::size_t tcp_per_sandbox = 8;
  std::size_t tcp_connections = 256;
  std::chrono::milliseconds tcp_idle{10'000};
};

class Resolver {
 public:
  // Takes the descriptors; -1: not served. `table` outlives the io context's last run.
  static Result<std::unique_ptr<Resolver>> create(net::asio::io_context& io, int udp, int tcp,
                                                  const Table& table, std::shared_ptr<Names> names,
                                                  std::shared_ptr<dns::Upstream> upstream,
                                                  ResolverOptions options);
  ~Resolver();
  void stop();

 private:
  struct Impl;
  explicit Resolver(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

// Is `name` the own domain or below it? False when there is none.
bool is_own_name(std::string_view own_domain, std::string_view name);

// Public addresses of a name as the upstream servers say now; for the proxy's own use.
net::Task<Result<std::vector<Ipv4>>> addresses_of(std::shared_ptr<dns::Upstream> upstream,
                                                  std::string name);

// What is answered without asking anybody; nullopt: ask upstream. Pure.
std::optional<std::string> answer_locally(const dns::Query& query, const Policy& policy,
                                          std::string_view own_domain);

}  // namespace atl::egress
