// The routes of sessions: /sessions.
#pragma once

#include "api_server/service.h"
#include "session/manager.h"

namespace atl::session {

class SessionService final : public api::Service {
 public:
  // `sessions` outlives it. `domain` is told to clients; empty: none.
  SessionService(Manager& sessions, std::string domain);
  std::span<const api::ServiceRoute> routes() const override;
  net::Task<Result<api::Reply>> answer(api::ServiceCall& call) override;

 private:
  net::Task<Result<api::Reply>> acquire(api::ServiceCall& call);
  net::Task<Result<api::Reply>> show(api::ServiceCall& call);

  Manager& sessions_;
  const std::string domain_;
};

}  // namespace atl::session
