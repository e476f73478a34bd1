#include "proxy/proxy.h"

#include "base/log.h"
#include "proxy/forward.h"
#include "proxy/refusal.h"
#include "proxy/target.h"
#include "proxy/upstream.h"

namespace atl::proxy {

struct Proxy::Impl {
  Impl(engine::Engine& e, ProxyOptions options)
      : engine(e),
        rules{std::move(options.domain), std::move(options.is_control_path)},
        upstreams(e, PoolLimits{.per_target = options.idle_connections_per_target,
                                .idle_agent = options.idle_agent,
                                .idle_service = options.idle_service}) {}

  engine::Engine& engine;
  const TargetRules rules;
  Upstreams upstreams;

  static net::Task<void> refuse_text(net::Exchange& exchange, int status, std::string text) {
    net::Headers headers{{"Content-Type", "text/plain; charset=utf-8"}, {"Connection", "close"}};
    auto sending = exchange.response.send(status, std::move(headers), std::move(text));
    (void)co_await std::move(sending);  // a client that is gone needs no answer
  }

  static net::Task<void> refuse(net::Exchange& exchange, Refusal refusal) {
    Rendered rendered = render(refusal, exchange.request);
    auto sending = exchange.response.send(refusal.status, std::move(rendered.headers),
                                          std::move(rendered.body));
    (void)co_await std::move(sending);  // a client that is gone needs no answer
  }

  // The route of a sandbox that does not run now, once it does. The request is held meanwhile.
  net::Task<Result<std::shared_ptr<engine::Route>>> wake(const net::RequestHead& request,
                                                         std::string_view id, std::uint16_t port) {
    auto parsed = SandboxId::parse(id);
    if (!parsed) co_return make_error(Errc::not_found, "nobody has this token");
    engine::WakeRequest wanted{
        .id = std::move(*parsed),
        .agent_port = port == kAgentPort,
        .access_token = std::string(request.headers.get("X-Access-Token")),
        .traffic_token = std::string(request.headers.get("e2b-traffic-access-token"))};
    auto waking = engine.wake(std::move(wanted));
    ATOLL_CO_TRY_ASSIGN(auto route, co_await std::move(waking));
    if (!route) co_return make_error(Errc::not_found, "it does not run");
    co_return route;
  }

  static Refusal refusal_of(const Error& error, std::string_view id) {
    switch (error.code) {
      case Errc::permission_denied:
        return resume_denied(id);
      case Errc::deadline_exceeded:
        return still_transitioning(id);
      case Errc::resource_exhausted:
        return resume_refused(id, error.message);
      case Errc::not_found:
        return sandbox_not_found(id);
      default:
        log::warn("a sandbox could not be woken",
                  {{"sandbox", std::string(id)}, {"error", error.message}});
        return sandbox_not_found(id);
    }
  }

  // The order of these steps is the contract: a later check never answers for an earlier one.
  net::Task<void> carry(net::Exchange& exchange, std::string id,
                        std::shared_ptr<engine::Route> route, std::uint16_t port) {
    if (port == kAgentPort) {
      const auto path = clean_path(exchange.request.path());
      if (!path) {
        auto refusing = refuse_text(exchange, 400, "Invalid request path");
        co_await std::move(refusing);
        co_return;
      }
      if (is_reserved_route(*path)) {
        auto refusing = refuse(exchange, reserved_route(*path));
        co_await std::move(refusing);
        co_return;
      }
    }
    if (!route || route->dead() || route->held()) {
      auto waking = wake(exchange.request, id, port);
      auto woken = co_await std::move(waking);
      if (!woken.ok()) {
        auto refusing = refuse(exchange, refusal_of(woken.error(), id));
        co_await std::move(refusing);
        co_return;
      }
      route = std::move(*woken);
    }
    if (const auto& token = route->spec().traffic_token; token && port != kAgentPort) {
      const auto given = exchange.request.headers.find("e2b-traffic-access-token");
      if (!given || !constant_time_equal(*given, *token)) {
        auto refusing =
            refuse(exchange, given ? traffic_token_wrong(id) : traffic_token_missing(id));
        co_await std::move(refusing);
        co_return;
      }
    }
    auto forwarding = forward(exchange, std::move(route), port, upstreams,
                              [&] { return wake(exchange.request, id, port); });
    const auto forwarded = co_await std::move(forwarding);
    if (!forwarded.ok()) {
      auto refusing = refuse(exchange, refusal_of(forwarded.error(), id));
      co_await std::move(refusing);
    }
  }
};

Proxy::Proxy(engine::Engine& engine, ProxyOptions options)
    : impl_(std::make_unique<Impl>(engine, std::move(options))) {}
Proxy::~Proxy() = default;

net::Task<bool> Proxy::handle(net::Exchange& exchange) {
  const auto began = std::chrono::steady_clock::now();
  const Target target = find_target(exchange.request, impl_->rules);
  if (const auto* bad = std::get_if<Malformed>(&target)) {
    auto refusing = Impl::refuse_text(exchange, bad->status, bad->text);
    co_await std::move(refusing);
    co_return true;
  }
  if (const std::string_view problem = find_smuggling(exchange.request); !problem.empty()) {
    auto refusing = Impl::refuse_text(exchange, 400, std::string(problem));
    co_await std::move(refusing);
    co_return true;
  }
  if (std::holds_alternative<ToApi>(target)) co_return false;

  std::string id;
  std::uint16_t port = kAgentPort;
  std::shared_ptr<engine::Route> route;
  if (const auto* sandbox = std::get_if<ToSandbox>(&target)) {
    id = sandbox->id.str();
    port = sandbox->port;
    route = impl_->engine.route(sandbox->id);
  } else if (const auto* owner = std::get_if<ToTokenOwner>(&target)) {
    route = impl_->engine.route_by_access_token(owner->token);
    if (route) id = route->id().str();
  }
  auto carrying = impl_->carry(exchange, id, std::move(route), port);
  co_await std::move(carrying);
  const auto took = std::chrono::steady_clock::now() - began;
  log::debug("sandbox request",
             {{"sandbox", id},
              {"port", std::to_string(port)},
              {"method", exchange.request.method},
              {"target", exchange.request.target},
              {"us", std::to_string(
                         std::chrono::duration_cast<std::chrono::microseconds>(took).count())}});
  co_return true;
}

}  // namespace atl::proxy
