// Front: what a server of a cluster does with a request before its own gateway sees it.
//
//   for a sandbox that another node has   carried there, whole
//   with an API key of another node       vouched for: the gateway takes it as that team's
//
// A request that another node has sent on is never sent on again.
#pragma once

#include "engine/engine.h"
#include "net/http_server.h"
#include "proxy/target.h"
#include "session/cluster.h"

namespace atl::session {

class Front {
 public:
  // All outlive it.
  Front(engine::Engine& engine, store::Store& store, Cluster& cluster, proxy::TargetRules rules,
        std::string admin_token, net::Handler gateway);
  net::Task<void> handle(net::Exchange& exchange);

 private:
  // Of the sandbox that a request is for; nullopt: for none.
  struct Wanted {
    SandboxId id;
    std::uint16_t port = proxy::kAgentPort;
    bool control = false;  // a call of the API about it
  };
  std::optional<Wanted> wanted(const net::RequestHead& request) const;
  // The team that the credentials of a call of the API are of; nullopt: they are no good.
  net::Task<Result<std::optional<std::string>>> team_of(const net::RequestHead& request);
  net::Task<void> carry(net::Exchange& exchange, Wanted what, std::string node);
  net::Task<void> vouch(net::Exchange& exchange);

  engine::Engine& engine_;
  store::Store& store_;
  Cluster& cluster_;
  const proxy::TargetRules rules_;
  const std::string admin_token_;
  const net::Handler gateway_;
};

}  // namespace atl::session
