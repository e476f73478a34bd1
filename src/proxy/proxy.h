// Proxy: carries client traffic to sandboxes, by host name or by header.
//
// Which requests are sandbox traffic is decided in target.h, what they are answered when they
// cannot be carried in refusal.h. Bodies stream both ways. A client that goes away closes its
// connection to the sandbox; a sandbox that is killed breaks the connections of its clients with
// RST, after the route already answers 502.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "engine/engine.h"
#include "net/http.h"

namespace atl::proxy {

struct ProxyOptions {
  std::string domain;  // sandbox hosts are {port}-{id}.{domain}; empty: any domain is accepted
  // Paths of the control plane: with an API key they win over sandbox headers.
  std::function<bool(std::string_view path)> is_control_path;
  std::size_t idle_connections_per_target = 64;  // kept to one port of one sandbox
  std::chrono::milliseconds idle_agent{60'000};
  std::chrono::milliseconds idle_service{4'000};  // user servers close early (5 s is common)
};

class Proxy {
 public:
  Proxy(engine::Engine& engine, ProxyOptions options);
  ~Proxy();

  // False: not sandbox traffic, nothing was answered.
  net::Task<bool> handle(net::Exchange& exchange);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace atl::proxy
