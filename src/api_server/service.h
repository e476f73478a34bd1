// Service: a part of the API that lives in a library of its own (sessions, workspaces, providers,
// MCP). The API server finds the route, checks the credentials and reads the body; the service
// answers.
//
// A service outlives the server it was added to, and may be called on any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api_server/auth.h"
#include "api_server/reply.h"
#include "api_server/routes.h"
#include "net/http.h"

namespace atl::api {

// Who reads the request's body.
enum class BodyMode : std::uint8_t {
  whole,     // the server, up to its limit
  streamed,  // the service, from `exchange.body`
};

struct ServiceRoute {
  std::string_view method;
  std::string_view pattern;  // "{}" stands for one segment
  int action = 0;            // the service's own number for it
  Auth auth = Auth::team;
  BodyMode body = BodyMode::whole;
};

struct ServiceCall {
  net::Exchange& exchange;
  const ServiceRoute& route;
  std::vector<std::string> params;  // decoded, one per "{}"
  Identity who = {};
  std::string body = {};  // empty when it is streamed
};

class Service {
 public:
  virtual ~Service() = default;
  // Literal patterns before those with "{}".
  virtual std::span<const ServiceRoute> routes() const = 0;
  // An error becomes E2B's {code, message}. A service that answered by `call.exchange.response`
  // itself returns Reply::already_sent().
  virtual net::Task<Result<Reply>> answer(ServiceCall& call) = 0;
};

}  // namespace atl::api
