#include "api_server/decode.h"
#include "api_server/encode.h"
#include "api_server/handlers.h"
#include "api_server/query.h"

namespace atl::api {
namespace {

Features features_of(const engine::Engine& engine) {
  return Features{.header_rules = !engine.options().ca_bundle.empty()};
}

}  // namespace

net::Task<Result<Reply>> Handlers::create(Call& call, bool v2) {
  ATOLL_CO_TRY_ASSIGN(
      engine::CreateCommand command,
      decode_create(call.body, v2 ? ApiVersion::v2 : ApiVersion::v1, features_of(engine_)));
  command.caller = call.who.caller;
  auto creating = engine_.create(std::move(command));
  ATOLL_CO_TRY_ASSIGN(const engine::SandboxInfo made, co_await std::move(creating));
  co_return json_reply(201, sandbox_json(made, engine_.options().domain));
}

Result<Reply> Handlers::list_v1(Call& call) {
  engine::ListQuery query;
  query.team_id = call.who.caller.team_id;
  query.paused = false;
  if (const auto metadata = call.request.query_param("metadata")) {
    ATOLL_TRY_ASSIGN(query.metadata, decode_metadata_filter(*metadata));
  }
  json::array out;
  for (const auto& item : engine_.list(query).items) out.emplace_back(listed_json(item));
  return json_reply(200, out);
}

Result<Reply> Handlers::list_v2(Call& call) {
  ATOLL_TRY_ASSIGN(engine::ListQuery query, decode_list_query(call.request, engine_.templates()));
  query.team_id = call.who.caller.team_id;
  if (query.template_id) {  // it may be the name of a snapshot
    const auto named =
        engine_.find_snapshot(call.who.caller, *call.request.query_param("template"));
    if (named.ok()) query.template_id = named->template_id;
  }
  const engine::ListPage page = engine_.list(query);
  json::array items;
  for (const auto& item : page.items) items.emplace_back(listed_json(item));
  Reply out = json_reply(200, items);
  if (page.more) {
    const store::SandboxRecord& last = page.items.back().record;
    out.headers.add("X-Next-Token", encode_cursor({last.started_at, last.id.str()}, query.order));
  }
  if (query.running) out.headers.add("X-Total-Running", std::to_string(page.total_running));
  return out;
}

Result<Reply> Handlers::info(Call& call) {
  ATOLL_TRY_ASSIGN(const SandboxId id, parse_path_id(call.params[0]));
  ATOLL_TRY_ASSIGN(const engine::SandboxInfo found, engine_.info(call.who.caller, id));
  return json_reply(200, detail_json(found, engine_.options().domain));
}

net::Task<Result<Reply>> Handlers::kill(Call& call) {
  ATOLL_CO_TRY_ASSIGN(SandboxId id, parse_path_id(call.params[0]));
  auto killing = engine_.kill(call.who.caller, std::move(id));
  ATOLL_CO_TRY(co_await std::move(killing));
  co_return no_content();
}

Result<Reply> Handlers::set_timeout(Call& call) {
  ATOLL_TRY_ASSIGN(const SandboxId id, parse_path_id(call.params[0]));
  ATOLL_TRY_ASSIGN(const auto timeout, decode_timeout(call.body));
  ATOLL_TRY(engine_.set_timeout(call.who.caller, id, timeout));
  return no_content();
}

Result<Reply> Handlers::refresh(Call& call) {
  ATOLL_TRY_ASSIGN(const SandboxId id, parse_path_id(call.params[0]));
  ATOLL_TRY_ASSIGN(const auto duration, decode_refresh(call.body));
  ATOLL_TRY(engine_.refresh(call.who.caller, id, duration));
  return no_content();
}

net::Task<Result<Reply>> Handlers::connect(Call& call) {
  ATOLL_CO_TRY_ASSIGN(SandboxId id, parse_path_id(call.params[0]));
  ATOLL_CO_TRY_ASSIGN(const ConnectBody body, decode_connect(call.body));
  auto connecting = engine_.connect(call.who.caller, std::move(id), body.timeout, body.revive);
  ATOLL_CO_TRY_ASSIGN(const engine::Connected found, co_await std::move(connecting));
  co_return json_reply(found.resumed ? 201 : 200,
                       sandbox_json(found.info, engine_.options().domain));
}

net::Task<Result<Reply>> Handlers::pause(Call& call) {
  ATOLL_CO_TRY_ASSIGN(SandboxId id, parse_path_id(call.params[0]));
  ATOLL_CO_TRY_ASSIGN(const bool keep_memory, decode_pause(call.body));
  auto pausing = engine_.pause(call.who.caller, std::move(id), keep_memory);
  ATOLL_CO_TRY(co_await std::move(pausing));
  co_return no_content();
}

net::Task<Result<Reply>> Handlers::resume(Call& call) {
  ATOLL_CO_TRY_ASSIGN(SandboxId id, parse_path_id(call.params[0]));
  ATOLL_CO_TRY_ASSIGN(const ResumeBody body, decode_resume(call.body));
  engine::ResumeCommand command{.caller = call.who.caller,
                                .id = std::move(id),
                                .timeout = body.timeout,
                                .auto_pause = body.auto_pause};
  auto resuming = engine_.resume(std::move(command));
  ATOLL_CO_TRY_ASSIGN(const engine::SandboxInfo found, co_await std::move(resuming));
  co_return json_reply(201, sandbox_json(found, engine_.options().domain));
}

net::Task<Result<Reply>> Handlers::update_network(Call& call) {
  ATOLL_CO_TRY_ASSIGN(SandboxId id, parse_path_id(call.params[0]));
  ATOLL_CO_TRY_ASSIGN(engine::NetworkUpdate update,
                      decode_network_update(call.body, features_of(engine_)));
  auto updating = engine_.update_network(call.who.caller, std::move(id), std::move(update));
  ATOLL_CO_TRY(co_await std::move(updating));
  co_return no_content();
}

}  // namespace atl::api
