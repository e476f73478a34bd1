// ApiServer: the REST control plane. Decodes and checks requests, sends commands to the engine,
// encodes the answers.
//
// Stateless but for its collaborators; one instance serves every connection and thread. Contracts:
// docs of the routes are in routes.cc, error bodies in api/errors.md.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "net/http.h"
#include "store/store.h"

namespace atl::api {

class Service;

struct ApiOptions {
  std::size_t body_limit = 1 << 20;
  std::string admin_token = {};  // X-Admin-Token; empty: nobody is the administrator
  std::string version = "dev";   // what GET /nodes tells
  std::string commit = {};
  // The team that another server of the same cluster speaks for; nullopt: the request is not from
  // one. A team that is not known here is made.
  std::function<std::optional<std::string>(const net::RequestHead&)> vouched_team = {};
  // Filled in by ApiServer when they are not given.
  std::string instance_id = {};
  Timestamp started_at = {};
};

class ApiServer {
 public:
  // All outlive the server.
  ApiServer(engine::Engine& engine, store::Store& store, ApiOptions options = {},
            std::vector<Service*> services = {});
  ~ApiServer();

  // Answers every request, with a JSON error where nothing better fits. Never throws.
  net::Task<void> handle(net::Exchange& exchange);

  // is_control_path of routes.h, with the paths of the services.
  bool is_control_path(std::string_view path) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace atl::api
