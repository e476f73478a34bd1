#include "session/front.h"

#include "api_server/auth.h"
#include "api_server/errors.h"
#include "base/log.h"
#include "proxy/headers.h"
#include "session/relay.h"
#include "store/crypto.h"
#include "store/keys.h"

namespace atl::session {
namespace {

// "/sandboxes/{id}…" and "/v2/sandboxes/{id}…": the id.
std::string_view id_in_path(std::string_view path) {
  for (const std::string_view prefix : {"/sandboxes/", "/v2/sandboxes/", "/v3/sandboxes/"}) {
    if (!path.starts_with(prefix)) continue;
    path.remove_prefix(prefix.size());
    path = path.substr(0, path.find('/'));
    return path.substr(0, path.find('-'));
  }
  return {};
}

std::string_view shown_key(const net::RequestHead& request) {
  const std::string_view key = request.headers.get("X-API-Key");
  if (!key.empty()) return key;
  const std::string_view bearer = request.headers.get("Authorization");
  if (bearer.size() > 7 && net::iequals(bearer.substr(0, 7), "Bearer ")) return bearer.substr(7);
  return {};
}

net::Task<void> refuse(net::Exchange& exchange, Error error) {
  const api::ApiError shown = api::to_api_error(error);
  auto sending = exchange.response.send(shown.status, api::headers_of(shown), api::encode(shown));
  (void)co_await std::move(sending);  // a client that is gone needs no answer
}

}  // namespace

Front::Front(engine::Engine& engine, store::Store& store, Cluster& cluster,
             proxy::TargetRules rules, std::string admin_token, net::Handler gateway)
    : engine_(engine),
      store_(store),
      cluster_(cluster),
      rules_(std::move(rules)),
      admin_token_(std::move(admin_token)),
      gateway_(std::move(gateway)) {}

net::Task<void> Front::handle(net::Exchange& exchange) {
  const auto what = wanted(exchange.request);
  if (cluster_.verify(exchange.request)) {
    // A sandbox is not to see how servers speak with one another.
    if (what && !what->control) erase_signature(exchange.request.headers);
  } else {
    erase_signature(exchange.request.headers);
    if (what && !engine_.has(what->id)) {
      auto asking = cluster_.owner_of(what->id.str());
      auto owner = co_await std::move(asking);
      if (!owner.ok()) {
        auto refusing = refuse(exchange, std::move(owner).error());
        co_await std::move(refusing);
        co_return;
      }
      if (*owner) {
        auto carrying = carry(exchange, *what, **owner);
        co_await std::move(carrying);
        co_return;
      }
    }
    if (!what || what->control) {
      auto vouching = vouch(exchange);
      co_await std::move(vouching);
      if (exchange.response.started()) co_return;
    }
  }
  auto answering = gateway_(exchange);
  co_await std::move(answering);
}

std::optional<Front::Wanted> Front::wanted(const net::RequestHead& request) const {
  const proxy::Target target = proxy::find_target(request, rules_);
  if (const auto* sandbox = std::get_if<proxy::ToSandbox>(&target))
    return Wanted{sandbox->id, sandbox->port, false};
  if (!std::holds_alternative<proxy::ToApi>(target)) return std::nullopt;
  auto id = SandboxId::parse(id_in_path(request.path()));
  if (!id) return std::nullopt;
  return Wanted{std::move(*id), proxy::kAgentPort, true};
}

net::Task<Result<std::optional<std::string>>> Front::team_of(const net::RequestHead& request) {
  const auto known = api::authenticate(request, api::Auth::team, store_, admin_token_);
  if (known.ok()) {
    ATOLL_CO_TRY_ASSIGN(const auto team, store_.find_team(known->caller.team_id));
    if (!team) co_return std::optional<std::string>();
    co_return std::optional<std::string>(team->name);
  }
  const std::string_view key = shown_key(request);
  if (!key.starts_with(store::kKeyPrefix)) co_return std::optional<std::string>();
  auto asking = cluster_.team_of_key(sha256_hex(key));
  co_return co_await std::move(asking);
}

net::Task<void> Front::carry(net::Exchange& exchange, Wanted what, std::string node) {
  if (const std::string_view problem = proxy::find_smuggling(exchange.request); !problem.empty()) {
    auto refusing = refuse(exchange, make_error(Errc::invalid_argument, std::string(problem)));
    co_await std::move(refusing);
    co_return;
  }
  // The client's key stays here; this server speaks for its team.
  net::RequestHead head = proxy::request_to_sandbox(exchange.request, what.port, "",
                                                    proxy::asks_upgrade(exchange.request));
  std::string team;
  if (what.control) {
    auto asking = team_of(exchange.request);
    auto found = co_await std::move(asking);
    if (!found.ok()) {
      auto refusing = refuse(exchange, std::move(found).error());
      co_await std::move(refusing);
      co_return;
    }
    if (!*found) {
      auto answering = gateway_(exchange);  // which refuses the key
      co_await std::move(answering);
      co_return;
    }
    team = **found;
    head.headers.set("X-API-Key", "e2b_node");  // a call of the API, whatever else is in the head
  }
  cluster_.sign(head, team);
  auto relaying = relay(exchange, std::move(head), [&] { return cluster_.connect(node); });
  auto done = co_await std::move(relaying);
  if (!done.ok()) {
    auto refusing = refuse(exchange, std::move(done).error());
    co_await std::move(refusing);
  }
}

// A key that is not ours may be another node's.
net::Task<void> Front::vouch(net::Exchange& exchange) {
  const std::string_view key = shown_key(exchange.request);
  if (!key.starts_with(store::kKeyPrefix)) co_return;
  auto known = store::verify_key(store_, key);
  if (!known.ok() || *known) co_return;
  auto asking = cluster_.team_of_key(sha256_hex(key));
  auto team = co_await std::move(asking);
  if (!team.ok()) {
    auto refusing = refuse(exchange, std::move(team).error());
    co_await std::move(refusing);
    co_return;
  }
  if (*team) cluster_.sign(exchange.request, **team);
}

}  // namespace atl::session
