#include "api_server/handlers.h"

namespace atl::api {

Reply json_reply(int status, const json::value& value) {
  Reply out{status, {}, json::serialize(value)};
  out.headers.add("Content-Type", "application/json");
  return out;
}

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

net::Task<Result<Reply>> Handlers::run(Call& call) {
  switch (call.route.action) {
    case Action::health:
      if (!engine_.accepting())
        co_return make_error(Errc::unavailable, "the server is shutting down");
      co_return no_content();
    case Action::create_v1:
      co_return co_await create(call, false);
    case Action::create_v2:
      co_return co_await create(call, true);
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
    case Action::connect:
      co_return co_await connect(call);
    case Action::pause:
      co_return co_await pause(call);
    case Action::resume:
      co_return co_await resume(call);
    case Action::update_network:
      co_return co_await update_network(call);
    case Action::fork:
      co_return co_await fork(call);
    case Action::snapshot:
      co_return co_await snapshot(call);
    case Action::rollback:
      co_return co_await rollback(call);
    case Action::list_snapshots:
      co_return list_snapshots(call);
    case Action::delete_template:
      co_return co_await delete_template(call);
    case Action::sandbox_metrics:
      co_return sandbox_metrics(call);
    case Action::all_metrics:
      co_return all_metrics(call);
    case Action::logs_v1:
      co_return co_await logs_v1(call);
    case Action::logs_v2:
      co_return co_await logs_v2(call);
    case Action::list_templates:
      co_return list_templates();
    case Action::find_alias:
      co_return find_alias(call);
    case Action::list_teams:
      co_return list_teams(call);
    case Action::list_keys:
      co_return list_keys(call.who.caller.team_id);
    case Action::create_key:
      co_return create_key(call.who.caller.team_id, call);
    case Action::rename_key:
      co_return rename_key(call);
    case Action::delete_key:
      co_return delete_key(call.who.caller.team_id, call.params[0], call);
    case Action::list_nodes:
      co_return list_nodes();
    case Action::show_node:
      co_return show_node(call);
    case Action::admin_kill_team:
      co_return co_await kill_team(call);
    case Action::admin_running_counts:
      co_return running_counts();
    case Action::admin_create_key:
      co_return create_key_of(call);
    case Action::admin_delete_key:
      co_return delete_key_of(call);
    case Action::gone:
      break;  // answered before it gets here
    case Action::unsupported:
      break;
  }
  co_return make_error(Errc::unimplemented,
                       std::string(call.route.feature) + ": not supported by this server");
}

}  // namespace atl::api
