#include "mcp/protocol/message.h"

namespace atl::mcp {
namespace {

// Fractions are allowed by JSON-RPC and by nobody else.
bool is_id(const json::value& value) {
  if (value.is_string()) return value.get_string().size() <= kMaxId;
  return value.is_int64() || value.is_uint64();
}

Malformed invalid(std::string message, json::value id = nullptr) {
  return Malformed{RpcCode::invalid_request, std::move(message), std::move(id)};
}

Parsed parse_message(json::value& value) {
  if (!value.is_object()) return invalid("a message must be an object");
  json::object& object = value.get_object();
  json::value id = nullptr;
  const json::value* given = object.if_contains("id");
  if (given != nullptr && is_id(*given)) id = *given;
  const json::value* version = object.if_contains("jsonrpc");
  if (version == nullptr || !version->is_string() || version->get_string() != "2.0")
    return invalid("\"jsonrpc\" must be \"2.0\"", std::move(id));
  Message message;
  const json::value* method = object.if_contains("method");
  if (method == nullptr) {
    if (id.is_null() || (!object.contains("result") && !object.contains("error")))
      return invalid("a message has a method, or the id and the result of one", std::move(id));
    message.kind = Message::Kind::response;
    message.id = std::move(id);
    return message;
  }
  if (!method->is_string()) return invalid("\"method\" must be a string", std::move(id));
  if (given != nullptr && id.is_null()) {
    return invalid("\"id\" must be an integer or a string of at most " + std::to_string(kMaxId) +
                   " bytes");
  }
  message.kind = id.is_null() ? Message::Kind::notification : Message::Kind::request;
  message.method = std::string(method->get_string());
  if (json::value* params = object.if_contains("params")) {
    if (!params->is_object()) {
      return Malformed{RpcCode::invalid_params, "\"params\" must be an object", std::move(id)};
    }
    message.params = std::move(params->get_object());
  }
  message.id = std::move(id);
  return message;
}

Incoming only(Malformed malformed) {
  Incoming out;
  out.messages.emplace_back(std::move(malformed));
  return out;
}

}  // namespace

Incoming parse_incoming(std::string_view text) {
  if (text.size() > kMaxMessage) {
    return only(
        invalid("the message is longer than " + std::to_string(kMaxMessage >> 20) + " MiB"));
  }
  auto parsed = parse_json(text);
  if (!parsed.ok()) return only({RpcCode::parse_error, parsed.error().message, nullptr});
  if (!parsed->is_array()) {
    Incoming out;
    out.messages.push_back(parse_message(*parsed));
    return out;
  }
  json::array& list = parsed->get_array();
  if (list.empty()) return only(invalid("an empty batch"));
  if (list.size() > kMaxBatch) {
    return only(invalid("a batch has at most " + std::to_string(kMaxBatch) + " messages"));
  }
  Incoming out;
  out.batch = true;
  for (json::value& item : list) out.messages.push_back(parse_message(item));
  return out;
}

json::object make_response(json::value id, json::value result) {
  json::object out;
  out["jsonrpc"] = "2.0";
  out["id"] = std::move(id);
  out["result"] = std::move(result);
  return out;
}

json::object make_failure(json::value id, RpcCode code, std::string_view message,
                          json::object data) {
  json::object error;
  error["code"] = int(code);
  error["message"] = message;
  if (!data.empty()) error["data"] = std::move(data);
  json::object out;
  out["jsonrpc"] = "2.0";
  out["id"] = std::move(id);
  out["error"] = std::move(error);
  return out;
}

json::object make_failure(const Malformed& malformed) {
  return make_failure(malformed.id, malformed.code, malformed.message);
}

json::object make_notification(std::string_view method, json::object params) {
  json::object out;
  out["jsonrpc"] = "2.0";
  out["method"] = method;
  out["params"] = std::move(params);
  return out;
}

std::string id_key(const json::value& id) { return json::serialize(id); }

}  // namespace atl::mcp
