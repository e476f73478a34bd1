// Egress: everything of a server that sandboxes use to get out by name: the resolver and the proxy,
// on the sockets that the warden opened for them.
#pragma once

#include <boost/asio/io_context.hpp>
#include <memory>
#include <string>
#include <vector>

#include "egress/table.h"
#include "runtime/runtime.h"

namespace atl::egress {

struct EgressOptions {
  std::vector<std::string> resolvers;  // "192.0.2.53:53"; empty: those of /etc/resolv.conf
  std::string own_domain;              // sandbox hosts are {port}-{id}.{own_domain}; empty: none
  std::string own_ingress;             // "127.0.0.1:3443", where own_domain is served with TLS
  std::string own_ingress_plain;       // and without; each may be empty
  std::string extra_ca;                // PEM file that hosts may also have certificates from
  std::string home;                    // HOME/keys has the interception CA; empty: no interception
};

class Egress {
 public:
  // Takes the descriptors. `table` outlives the io context's last run.
  static Result<std::unique_ptr<Egress>> create(net::asio::io_context& io,
                                                runtime::EgressSockets sockets, const Table& table,
                                                EgressOptions options);
  ~Egress();

  // Ends the connections of a sandbox at once. Those of sandboxes that left the table end by
  // themselves within about a second. Thread-safe.
  void drop(Ipv4 address);
  // Ends everything. The io context must run for a moment longer for it to take effect.
  void stop();

 private:
  struct Impl;
  explicit Egress(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// What sandboxes get as `caBundle`: the CA that signs intercepted hosts' certificates. Made on
// first use in HOME/keys/egress-ca.{pem,key}.
Result<std::string> ca_pem(const std::string& home);

}  // namespace atl::egress
