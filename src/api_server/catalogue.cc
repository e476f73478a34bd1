#include "api_server/encode.h"
#include "api_server/handlers.h"

namespace atl::api {

Result<Reply> Handlers::list_templates() {
  json::array out;
  for (const auto& t : engine_.templates().list()) out.emplace_back(template_json(t));
  return json_reply(200, out);
}

Result<Reply> Handlers::find_alias(Call& call) {
  ATOLL_TRY_ASSIGN(const auto found, engine_.templates().find(call.params[0]));
  json::object out;
  out["templateID"] = found.id;
  out["public"] = true;
  return json_reply(200, out);
}

}  // namespace atl::api
