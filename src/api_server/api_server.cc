#include "api_server/api_server.h"

#include "api_server/errors.h"
#include "api_server/handlers.h"
#include "api_server/service.h"
#include "base/log.h"

namespace atl::api {
namespace {

Reply refuse(const ApiError& error) {
  return Reply{error.status, headers_of(error), encode(error)};
}

Reply refuse_body(const Error& error) {
  const bool large = error.code == Errc::resource_exhausted;
  return refuse(ApiError{large ? 413 : 400, error.message});
}

void add_cors(net::Headers& headers) {
  headers.add("Access-Control-Allow-Origin", "*");
  headers.add("Access-Control-Expose-Headers",
              "X-Next-Token, X-Total-Running, RateLimit-Limit, RateLimit-Remaining, "
              "RateLimit-Reset, Retry-After");
}

Reply preflight(const net::RequestHead& request) {
  Reply out{204, {}, {}};
  const std::string_view asked = request.headers.get("Access-Control-Request-Headers");
  out.headers.add("Access-Control-Allow-Methods", "GET, POST, PUT, PATCH, DELETE, OPTIONS");
  // With credentials "*" would not cover Authorization, so the asked ones are named.
  out.headers.add(
      "Access-Control-Allow-Headers",
      asked.empty() ? "Authorization, Content-Type, X-API-Key, X-Team-ID" : std::string(asked));
  out.headers.add("Access-Control-Max-Age", "7200");
  return out;
}

Reply no_route(const net::RequestHead& request, const Match& match) {
  if (match.allow.empty()) {
    return refuse(ApiError{404, "no route " + request.method + " " + std::string(request.path())});
  }
  Reply out = refuse(
      ApiError{405, "method " + request.method + " is not allowed here, use " + match.allow});
  out.headers.add("Allow", match.allow);
  return out;
}

bool starts_sandbox(Action action) {
  return action == Action::create_v1 || action == Action::create_v2;
}

ApiOptions completed(ApiOptions options) {
  if (options.instance_id.empty()) options.instance_id = random_uuid4();
  if (options.started_at == Timestamp{}) options.started_at = now();
  return options;
}

}  // namespace

struct ApiServer::Impl {
  Impl(engine::Engine& engine, store::Store& s, ApiOptions given, std::vector<Service*> others)
      : store(s),
        options(completed(std::move(given))),
        handlers(engine, s, options),
        services(std::move(others)) {}

  store::Store& store;
  const ApiOptions options;
  Handlers handlers;
  const std::vector<Service*> services;

  Result<Identity> identify(const net::RequestHead& request, Auth needed) const {
    if (options.vouched_team && (needed == Auth::team || needed == Auth::any_bearer)) {
      if (const auto name = options.vouched_team(request)) return speak_for(*name);
    }
    return authenticate(request, needed, store, options.admin_token);
  }

  Result<Identity> speak_for(const std::string& name) const {
    ATOLL_TRY_ASSIGN(auto team, store.find_team(name));
    if (!team) {
      ATOLL_TRY_ASSIGN(team, store.create_team(name));
    }
    return Identity{{team->id, "node"}, false, {}};
  }

  struct ServiceMatch {
    Service* service = nullptr;  // null: none has this path with this method
    const ServiceRoute* route = nullptr;
    std::vector<std::string> params;
    std::string allow;  // methods of the path, when only the method is wrong
  };
  ServiceMatch match_service(std::string_view method, std::string_view path) const {
    ServiceMatch match;
    std::string_view pattern;
    for (Service* service : services) {
      for (const ServiceRoute& route : service->routes()) {
        if (!pattern.empty() && route.pattern != pattern) continue;
        if (!fits_pattern(route.pattern, path, match.params)) continue;
        pattern = route.pattern;
        if (route.method == method) {
          match.service = service;
          match.route = &route;
          return match;
        }
        if (!match.allow.empty()) match.allow += ", ";
        match.allow += route.method;
      }
    }
    return match;
  }

  // Route, then credentials, then body: nobody learns more than their credentials allow.
  net::Task<Reply> answer_service(net::Exchange& exchange, ServiceMatch match) {
    const net::RequestHead& request = exchange.request;
    ServiceCall call{exchange, *match.route, std::move(match.params)};
    if (match.route->auth != Auth::none) {
      auto identity = identify(request, match.route->auth);
      if (!identity.ok()) co_return refuse(to_api_error(identity.error()));
      call.who = std::move(*identity);
      call.who.caller.peer = exchange.peer;
    }
    if (match.route->body == BodyMode::whole) {
      auto reading = exchange.body.read_all(options.body_limit);
      auto body = co_await std::move(reading);
      if (!body.ok()) co_return refuse_body(body.error());
      call.body = std::move(*body);
    }
    auto running = match.service->answer(call);
    auto result = co_await std::move(running);
    if (result.ok()) co_return std::move(*result);
    if (exchange.response.started()) {
      exchange.response.abort();
      co_return Reply::already_sent();
    }
    co_return refuse(to_api_error(result.error()));
  }

  net::Task<Reply> answer(net::Exchange& exchange) {
    const net::RequestHead& request = exchange.request;
    if (request.method == "OPTIONS") co_return preflight(request);
    Match match = match_route(request.method, request.path());
    if (match.route == nullptr) {
      if (!match.allow.empty()) co_return no_route(request, match);
      ServiceMatch other = match_service(request.method, request.path());
      if (other.service == nullptr) {
        match.allow = std::move(other.allow);
        co_return no_route(request, match);
      }
      auto answering = answer_service(exchange, std::move(other));
      co_return co_await std::move(answering);
    }
    Call call{request, *match.route, std::move(match.params)};
    if (match.route->auth != Auth::none) {
      auto identity = identify(request, match.route->auth);
      if (!identity.ok()) co_return refuse(to_api_error(identity.error()));
      call.who = std::move(*identity);
      call.who.caller.peer = exchange.peer;
    }
    if (match.route->action == Action::gone) {
      co_return refuse(ApiError{
          410, std::string(match.route->feature) + " are no longer part of the API; use API keys"});
    }
    auto reading = exchange.body.read_all(options.body_limit);
    auto body = co_await std::move(reading);
    if (!body.ok()) co_return refuse_body(body.error());
    call.body = std::move(*body);
    auto running = handlers.run(call);
    auto result = co_await std::move(running);
    if (result.ok()) co_return std::move(*result);
    const bool start = starts_sandbox(call.route.action);
    co_return refuse(to_api_error(result.error(), start ? Operation::start : Operation::other));
  }
};

ApiServer::ApiServer(engine::Engine& engine, store::Store& store, ApiOptions options,
                     std::vector<Service*> services)
    : impl_(std::make_unique<Impl>(engine, store, std::move(options), std::move(services))) {}
ApiServer::~ApiServer() = default;

net::Task<void> ApiServer::handle(net::Exchange& exchange) {
  const auto began = std::chrono::steady_clock::now();
  Reply out = refuse(ApiError{500, "Internal error"});
  try {
    auto answering = impl_->answer(exchange);
    out = co_await std::move(answering);
  } catch (const std::exception& e) {
    log::error("a request failed with an exception",
               {{"target", exchange.request.target}, {"what", e.what()}});
  }
  const int status = out.status;
  Result<void> sent;
  if (!out.sent) {
    add_cors(out.headers);
    auto sending = exchange.response.send(out.status, std::move(out.headers), std::move(out.body));
    sent = co_await std::move(sending);
  }
  const auto took = std::chrono::steady_clock::now() - began;
  log::debug(
      sent.ok() ? "api request" : "api request, client gone",
      {{"method", exchange.request.method},
       {"target", exchange.request.target},
       {"status", std::to_string(status)},
       {"us", std::to_string(std::chrono::duration_cast<std::chrono::microseconds>(took).count())},
       {"peer", exchange.peer}});
}

bool ApiServer::is_control_path(std::string_view path) const {
  if (api::is_control_path(path)) return true;
  const Impl::ServiceMatch other = impl_->match_service("GET", path);
  return other.service != nullptr || !other.allow.empty();
}

}  // namespace atl::api
