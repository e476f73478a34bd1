// The routes of providers: GET and PUT /providers, GET, PUT and DELETE /providers/{id}, POST
// /providers/{id}/test, POST /providers/execute and /providers/{id}/execute.
//
// A team's key reads (masked) settings and runs code; only the administrator, for a team, changes
// settings or tests a connection, since both decide which hosts this server talks to.
#pragma once

#include <atomic>

#include "api_server/service.h"
#include "providers/settings.h"

namespace atl::providers {

class ProviderService : public api::Service {
 public:
  // All outlive it. `key_file` is where the key for secrets is, made on the first start.
  static Result<std::unique_ptr<ProviderService>> create(engine::Engine& engine,
                                                         store::Store& store,
                                                         const std::string& key_file);
  ProviderService(engine::Engine& engine, store::Store& store, store::SecretBox box,
                  Settings::Environment environment);

  std::span<const api::ServiceRoute> routes() const override;
  net::Task<Result<api::Reply>> answer(api::ServiceCall& call) override;

 private:
  Result<api::Reply> list(const api::ServiceCall& call) const;
  Result<api::Reply> use(const api::ServiceCall& call);
  Result<api::Reply> show(const api::ServiceCall& call) const;
  Result<api::Reply> set(const api::ServiceCall& call);
  Result<api::Reply> unset(const api::ServiceCall& call);
  net::Task<Result<api::Reply>> test(const api::ServiceCall& call);
  net::Task<Result<api::Reply>> execute(const api::ServiceCall& call, std::string id);
  Surroundings surroundings(const api::ServiceCall& call) const;
  void audit(const api::ServiceCall& call, std::string action, const std::string& subject);

  engine::Engine& engine_;
  store::Store& store_;
  Settings settings_;
  std::atomic<int> running_ = 0;
};

}  // namespace atl::providers
