#include "session/encode.h"

#include "api_server/encode.h"
#include "session/options.h"

namespace atl::session {
namespace {

constexpr Came kCame[] = {Came::created, Came::resumed, Came::reused};

Error strange(std::string_view what) {
  return make_error(Errc::data_loss, "the session that a node told of has no " + std::string(what));
}

Result<std::string> text(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  if (value == nullptr || !value->is_string()) return strange(name);
  return std::string(value->get_string());
}

std::optional<std::string> optional_text(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  if (value == nullptr || !value->is_string()) return std::nullopt;
  return std::string(value->get_string());
}

Result<Timestamp> instant(const json::object& object, std::string_view name) {
  ATOLL_TRY_ASSIGN(const std::string written, text(object, name));
  const auto at = parse_rfc3339(written);
  if (!at) return strange(name);
  return *at;
}

Result<const json::object*> object_of(const json::value& value) {
  const json::object* object = value.if_object();
  if (object == nullptr) return strange("fields");
  return object;
}

}  // namespace

std::string_view to_string(Came came) {
  switch (came) {
    case Came::created:
      return "created";
    case Came::resumed:
      return "resumed";
    case Came::reused:
      break;
  }
  return "reused";
}

// Variables and network rules may hold secrets and are not told again.
json::object session_json(const Session& session) {
  json::object out = encode_options(session.options);
  out.erase("envVars");
  out.erase("network");
  out["key"] = session.key;
  out["sandboxID"] = session.sandbox_id;
  out["state"] = session.state;
  out["createdAt"] = to_rfc3339(session.created_at);
  out["usedAt"] = to_rfc3339(session.used_at);
  out["expiresAt"] = to_rfc3339(session.used_at + session.options.ttl);
  if (session.end_at) out["endAt"] = to_rfc3339(*session.end_at);
  out["workspace"] = session.options.workspace.empty() ? json::value(nullptr)
                                                       : json::value(session.options.workspace);
  out["node"] = session.node;
  return out;
}

json::object acquired_json(const Acquired& acquired, std::string_view domain) {
  json::object out = session_json(acquired.session);
  for (auto& field : api::sandbox_json(acquired.sandbox, domain))
    out[field.key()] = std::move(field.value());
  out["came"] = to_string(acquired.came);
  out["created"] = acquired.came == Came::created;
  return out;
}

Result<Session> parse_session(const json::value& value) {
  ATOLL_TRY_ASSIGN(const json::object* object, object_of(value));
  Session out;
  ATOLL_TRY_ASSIGN(out.options, decode_options(json::serialize(*object)));
  out.options.update = {};
  ATOLL_TRY_ASSIGN(out.key, text(*object, "key"));
  ATOLL_TRY_ASSIGN(out.sandbox_id, text(*object, "sandboxID"));
  ATOLL_TRY_ASSIGN(out.state, text(*object, "state"));
  ATOLL_TRY_ASSIGN(out.created_at, instant(*object, "createdAt"));
  ATOLL_TRY_ASSIGN(out.used_at, instant(*object, "usedAt"));
  ATOLL_TRY_ASSIGN(out.node, text(*object, "node"));
  if (object->contains("endAt")) {
    ATOLL_TRY_ASSIGN(out.end_at, instant(*object, "endAt"));
  }
  return out;
}

Result<Acquired> parse_acquired(const json::value& value) {
  ATOLL_TRY_ASSIGN(const json::object* object, object_of(value));
  ATOLL_TRY_ASSIGN(Session session, parse_session(value));
  const auto id = SandboxId::parse(session.sandbox_id);
  if (!id) return strange("sandboxID");
  Acquired out{.session = std::move(session), .sandbox = {.record = {.id = *id}}};
  ATOLL_TRY_ASSIGN(const std::string came, text(*object, "came"));
  bool known = false;
  for (const Came each : kCame) {
    if (to_string(each) != came) continue;
    out.came = each;
    known = true;
  }
  if (!known) return strange("came");
  store::SandboxRecord& record = out.sandbox.record;
  record.state = store::SandboxState::running;
  record.secure = record.auto_pause = record.auto_resume = true;
  ATOLL_TRY_ASSIGN(record.template_id, text(*object, "templateID"));
  ATOLL_TRY_ASSIGN(record.envd_version, text(*object, "envdVersion"));
  record.alias = optional_text(*object, "alias").value_or("");
  record.metadata = out.session.options.metadata;
  if (out.session.end_at) record.end_at = *out.session.end_at;
  out.sandbox.access_token = optional_text(*object, "envdAccessToken");
  out.sandbox.traffic_token = optional_text(*object, "trafficAccessToken");
  return out;
}

}  // namespace atl::session
