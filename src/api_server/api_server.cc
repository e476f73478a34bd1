#include "api_server/api_server.h"

#include "api_server/decode.h"
#include "api_server/encode.h"
#include "api_server/errors.h"
#include "api_server/query.h"
#include "api_server/routes.h"
#include "base/log.h"
#include "store/keys.h"

namespace atl::api {
namespace {

struct Reply {
  int status = 200;
  net::Headers headers;
  std::string body;
};

struct Call {
  net::Exchange& exchange;
  const Route* route;
  std::vector<std::string> params;
  engine::Caller caller;
  std::string body;
};

Reply reply(int status, const json::value& value) {
  Reply out{status, {}, json::serialize(value)};
  out.headers.add("Content-Type", "application/json");
  return out;
}

Reply reply(const ApiError& error) {
  Reply out{error.status, {}, encode(error)};
  out.headers.add("Content-Type", "application/json");
  return out;
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

// An id in a path is `id` or `id-clientid`.
Result<SandboxId> parse_path_id(std::string_view text) {
  const std::size_t dash = text.find('-');
  const std::string_view rest =
      dash == std::string_view::npos ? std::string_view() : text.substr(dash + 1);
  auto id = SandboxId::parse(text.substr(0, dash));
  if (!id || (dash != std::string_view::npos && !SandboxId::parse(rest))) {
    return make_error(Errc::invalid_argument, "Invalid sandbox ID");
  }
  return std::move(*id);
}

}  // namespace

struct ApiServer::Impl {
  engine::Engine& engine;
  store::Store& store;
  ApiOptions options;

  net::Task<Reply> answer(net::Exchange& exchange) {
    const net::RequestHead& request = exchange.request;
    if (request.method == "OPTIONS") co_return preflight(request);
    Match match = match_route(request.method, request.path());
    if (match.route == nullptr) {
      if (match.allow.empty()) {
        co_return reply(
            ApiError{404, "no route " + request.method + " " + std::string(request.path()), {}});
      }
      Reply out = reply(ApiError{
          405, "method " + request.method + " is not allowed here, use " + match.allow, {}});
      out.headers.add("Allow", match.allow);
      co_return out;
    }
    Call call{exchange, match.route, std::move(match.params), {}, {}};
    if (match.route->auth == Auth::api_key) {
      auto caller = authenticate(request);
      if (!caller.ok()) co_return reply(to_api_error(caller.error()));
      call.caller = std::move(*caller);
    }
    auto reading = exchange.body.read_all(options.body_limit);
    auto body = co_await std::move(reading);
    if (!body.ok()) {
      if (body.error().code == Errc::resource_exhausted)
        co_return reply(ApiError{413, body.error().message, {}});
      co_return reply(ApiError{400, body.error().message, {}});
    }
    call.body = std::move(*body);
    auto running = dispatch(call);
    auto result = co_await std::move(running);
    if (result.ok()) co_return std::move(*result);
    const bool start =
        call.route->action == Action::create_v1 || call.route->action == Action::create_v2;
    co_return reply(to_api_error(result.error(), start ? Operation::start : Operation::other));
  }

  Result<engine::Caller> authenticate(const net::RequestHead& request) {
    const auto key = request.headers.find("X-API-Key");
    if (!key || key->empty())
      return make_error(Errc::unauthenticated, "authorization header is missing");
    if (!key->starts_with(store::kKeyPrefix)) {
      return make_error(Errc::unauthenticated, "authorization header is malformed");
    }
    ATOLL_TRY_ASSIGN(const auto known, store::verify_key(store, *key));
    if (!known) {
      return make_error(Errc::unauthenticated,
                        "Invalid API key, please visit https://e2b.dev/docs/api-key for more "
                        "information. Keys of this "
                        "server are made and listed by 'atoll key'.");
    }
    return engine::Caller{known->team_id, known->id};
  }

  net::Task<Result<Reply>> dispatch(Call& call) {
    switch (call.route->action) {
      case Action::health:
        if (!engine.accepting())
          co_return make_error(Errc::unavailable, "the server is shutting down");
        co_return Reply{204, {}, {}};
      case Action::create_v1:
        co_return co_await create(call, ApiVersion::v1);
      case Action::create_v2:
        co_return co_await create(call, ApiVersion::v2);
      case Action::list_v1:
        co_return list_v1(call);
      case Action::list_v2:
        co_return list_v2(call);
      case Action::info:
        co_return info(call);
      case Action::kill:
        co_return co_await kill(call);
      case Action::set_timeout:
        co_return set_timeout(call);
      case Action::refresh:
        co_return refresh(call);
      case Action::connect_v1:
      case Action::connect_v2:
        co_return co_await connect(call);
      case Action::list_templates:
        co_return list_templates();
      case Action::find_alias:
        co_return find_alias(call);
      case Action::unsupported:
        break;
    }
    co_return make_error(Errc::unimplemented,
                         std::string(call.route->feature) + ": not supported by this server");
  }

  net::Task<Result<Reply>> create(Call& call, ApiVersion version) {
    ATOLL_CO_TRY_ASSIGN(engine::CreateCommand command, decode_create(call.body, version));
    command.caller = call.caller;
    auto creating = engine.create(std::move(command));
    ATOLL_CO_TRY_ASSIGN(const engine::SandboxInfo made, co_await std::move(creating));
    co_return reply(201, sandbox_json(made, engine.options().domain));
  }

  Result<Reply> list_v1(Call& call) {
    engine::ListQuery query;
    query.team_id = call.caller.team_id;
    query.paused = false;
    if (const auto metadata = call.exchange.request.query_param("metadata")) {
      ATOLL_TRY_ASSIGN(query.metadata, decode_metadata_filter(*metadata));
    }
    json::array out;
    for (const auto& item : engine.list(query).items) out.emplace_back(listed_json(item));
    return reply(200, out);
  }

  Result<Reply> list_v2(Call& call) {
    ATOLL_TRY_ASSIGN(engine::ListQuery query,
                     decode_list_query(call.exchange.request, engine.templates()));
    query.team_id = call.caller.team_id;
    const engine::ListPage page = engine.list(query);
    json::array items;
    for (const auto& item : page.items) items.emplace_back(listed_json(item));
    Reply out = reply(200, items);
    if (page.more) {
      const store::SandboxRecord& last = page.items.back().record;
      out.headers.add("X-Next-Token", encode_cursor({last.started_at, last.id.str()}, query.order));
    }
    if (query.running) out.headers.add("X-Total-Running", std::to_string(page.total_running));
    return out;
  }

  Result<Reply> info(Call& call) {
    ATOLL_TRY_ASSIGN(const SandboxId id, parse_path_id(call.params[0]));
    ATOLL_TRY_ASSIGN(const engine::SandboxInfo found, engine.info(call.caller, id));
    return reply(200, detail_json(found, engine.options().domain));
  }

  net::Task<Result<Reply>> kill(Call& call) {
    ATOLL_CO_TRY_ASSIGN(SandboxId id, parse_path_id(call.params[0]));
    auto killing = engine.kill(call.caller, std::move(id));
    ATOLL_CO_TRY(co_await std::move(killing));
    co_return Reply{204, {}, {}};
  }

  Result<Reply> set_timeout(Call& call) {
    ATOLL_TRY_ASSIGN(const SandboxId id, parse_path_id(call.params[0]));
    ATOLL_TRY_ASSIGN(const auto timeout, decode_timeout(call.body));
    ATOLL_TRY(engine.set_timeout(call.caller, id, timeout));
    return Reply{204, {}, {}};
  }

  Result<Reply> refresh(Call& call) {
    ATOLL_TRY_ASSIGN(const SandboxId id, parse_path_id(call.params[0]));
    ATOLL_TRY_ASSIGN(const auto duration, decode_refresh(call.body));
    ATOLL_TRY(engine.refresh(call.caller, id, duration));
    return Reply{204, {}, {}};
  }

  net::Task<Result<Reply>> connect(Call& call) {
    ATOLL_CO_TRY_ASSIGN(SandboxId id, parse_path_id(call.params[0]));
    ATOLL_CO_TRY_ASSIGN(const auto timeout, decode_connect(call.body));
    auto connecting = engine.connect(call.caller, std::move(id), timeout);
    ATOLL_CO_TRY_ASSIGN(const engine::Connected found, co_await std::move(connecting));
    co_return reply(found.resumed ? 201 : 200, sandbox_json(found.info, engine.options().domain));
  }

  Result<Reply> list_templates() {
    json::array out;
    for (const auto& t : engine.templates().list()) out.emplace_back(template_json(t));
    return reply(200, out);
  }

  Result<Reply> find_alias(Call& call) {
    ATOLL_TRY_ASSIGN(const auto found, engine.templates().find(call.params[0]));
    json::object out;
    out["templateID"] = found.id;
    out["public"] = true;
    return reply(200, out);
  }
};

ApiServer::ApiServer(engine::Engine& engine, store::Store& store, ApiOptions options)
    : impl_(new Impl{engine, store, options}) {}
ApiServer::~ApiServer() = default;

net::Task<void> ApiServer::handle(net::Exchange& exchange) {
  const auto began = std::chrono::steady_clock::now();
  Reply out = reply(ApiError{500, "Internal error", {}});
  try {
    auto answering = impl_->answer(exchange);
    out = co_await std::move(answering);
  } catch (const std::exception& e) {
    log::error("a request failed with an exception",
               {{"target", exchange.request.target}, {"what", e.what()}});
  }
  add_cors(out.headers);
  const int status = out.status;
  auto sending = exchange.response.send(out.status, std::move(out.headers), std::move(out.body));
  const auto sent = co_await std::move(sending);
  const auto took = std::chrono::steady_clock::now() - began;
  log::debug(
      sent.ok() ? "api request" : "api request, client gone",
      {{"method", exchange.request.method},
       {"target", exchange.request.target},
       {"status", std::to_string(status)},
       {"us", std::to_string(std::chrono::duration_cast<std::chrono::microseconds>(took).count())},
       {"peer", exchange.peer}});
}

bool ApiServer::is_control_path(std::string_view path) {
  const Match match = match_route("GET", path);
  if (match.route != nullptr) return match.route->auth == Auth::api_key;
  return !match.allow.empty();
}

}  // namespace atl::api
