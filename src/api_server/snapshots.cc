#include "api_server/decode.h"
#include "api_server/encode.h"
#include "api_server/errors.h"
#include "api_server/handlers.h"
#include "api_server/query.h"

namespace atl::api {

net::Task<Result<Reply>> Handlers::snapshot(Call& call) {
  ATOLL_CO_TRY_ASSIGN(SandboxId id, parse_path_id(call.params[0]));
  ATOLL_CO_TRY_ASSIGN(SnapshotBody body, decode_snapshot(call.body));
  engine::SnapshotCommand command{.caller = call.who.caller,
                                  .id = std::move(id),
                                  .name = std::move(body.name),
                                  .memory = body.memory};
  auto making = engine_.snapshot(std::move(command));
  ATOLL_CO_TRY_ASSIGN(const engine::SnapshotInfo made, co_await std::move(making));
  json::object out = snapshot_json(made.record, made.names);
  if (made.source_pause) out["pausedMs"] = double(made.source_pause->count()) / 1000;
  co_return json_reply(201, out);
}

Result<Reply> Handlers::list_snapshots(Call& call) {
  ATOLL_TRY_ASSIGN(engine::SnapshotQuery query, decode_snapshot_query(call.request));
  query.team_id = call.who.caller.team_id;
  const engine::SnapshotPage page = engine_.list_snapshots(query);
  json::array items;
  for (const auto& record : page.items)
    items.emplace_back(snapshot_json(record, engine_.names_of(record)));
  Reply out = json_reply(200, items);
  if (page.more) {
    const store::SnapshotRecord& last = page.items.back();
    out.headers.add("X-Next-Token",
                    encode_cursor({last.created_at, last.id}, engine::Order::newest_first));
  }
  return out;
}

net::Task<Result<Reply>> Handlers::delete_template(Call& call) {
  auto deleting = engine_.delete_template(call.who.caller, call.params[0]);
  ATOLL_CO_TRY(co_await std::move(deleting));
  co_return no_content();
}

net::Task<Result<Reply>> Handlers::fork(Call& call) {
  ATOLL_CO_TRY_ASSIGN(SandboxId id, parse_path_id(call.params[0]));
  ATOLL_CO_TRY_ASSIGN(const ForkBody body, decode_fork(call.body));
  engine::ForkCommand command{
      .caller = call.who.caller, .id = std::move(id), .timeout = body.timeout, .count = body.count};
  auto forking = engine_.fork(std::move(command));
  ATOLL_CO_TRY_ASSIGN(const auto made, co_await std::move(forking));
  json::array out;
  for (const Result<engine::SandboxInfo>& one : made) {
    if (one.ok()) {
      out.emplace_back(json::object{{"sandbox", sandbox_json(*one, engine_.options().domain)}});
    } else {
      out.emplace_back(
          json::object{{"error", error_json(to_api_error(one.error(), Operation::start))}});
    }
  }
  co_return json_reply(201, out);
}

net::Task<Result<Reply>> Handlers::rollback(Call& call) {
  ATOLL_CO_TRY_ASSIGN(SandboxId id, parse_path_id(call.params[0]));
  ATOLL_CO_TRY_ASSIGN(std::string snapshot, decode_rollback(call.body));
  auto rolling = engine_.rollback(call.who.caller, std::move(id), std::move(snapshot));
  ATOLL_CO_TRY_ASSIGN(const engine::SandboxInfo found, co_await std::move(rolling));
  co_return json_reply(200, sandbox_json(found, engine_.options().domain));
}

}  // namespace atl::api
