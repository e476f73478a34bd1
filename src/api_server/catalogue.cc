#include "api_server/encode.h"
#include "api_server/handlers.h"

namespace atl::api {

Result<Reply> Handlers::list_templates() {
  json::array out;
  for (const auto& t : engine_.templates().list()) out.emplace_back(template_json(t));
  return json_reply(200, out);
}

Result<Reply> Handlers::find_alias(Call& call) {
  auto found = engine_.templates().find(call.params[0]);
  json::object out;
  if (found.ok()) {
    out["templateID"] = found->id;
    out["public"] = true;
    return json_reply(200, out);
  }
  const auto snapshot = engine_.find_snapshot(call.who.caller, call.params[0]);
  if (!snapshot.ok()) return std::move(found).error();
  out["templateID"] = snapshot->template_id;
  out["public"] = false;
  return json_reply(200, out);
}

}  // namespace atl::api
