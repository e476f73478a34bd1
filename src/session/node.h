// Node: all that a server has of sessions, put together: the table, the manager, the routes and, in
// a cluster, what it takes to be one of several servers.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "api_server/service.h"
#include "engine/engine.h"
#include "net/http_server.h"
#include "proxy/target.h"
#include "session/sessions.h"

namespace atl::session {

struct NodeOptions {
  std::string id_file;      // where this node's id is kept; made on the first start
  std::string domain;       // told to clients; empty: none
  std::string shared;       // redis://…: the table that several servers share; empty: in the store
  std::string url;          // where other servers reach this one: http://IP:PORT
  std::string admin_token;  // of this server
};

class Node {
 public:
  // `io`, `engine` and `store` outlive it. invalid_argument: one of the addresses.
  static Result<std::unique_ptr<Node>> create(net::asio::io_context& io, engine::Engine& engine,
                                              store::Store& store, NodeOptions options);
  ~Node();

  Sessions& sessions();
  api::Service& service();
  // For ApiOptions; null when there are no other servers.
  std::function<std::optional<std::string>(const net::RequestHead&)> vouched_team();
  // The gateway with what comes before it in a cluster.
  net::Handler in_front_of(net::Handler gateway, proxy::TargetRules rules);

  // After the engine has started, before the first request.
  net::Task<void> start();
  net::Task<void> stop();

 private:
  struct Parts;
  explicit Node(std::unique_ptr<Parts> parts);
  const std::unique_ptr<Parts> parts_;
};

}  // namespace atl::session
