// JSON-RPC 2.0 as MCP uses it: texts to messages and back. Pure: no connection, no session.
//
// A text is one message or, where the protocol version has them, a batch. Each message of a batch
// stands for itself: one that is malformed does not spoil the others.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"

namespace atl::mcp {

// Codes of the specification, and ours from the range that it leaves to servers.
enum class RpcCode : int {
  parse_error = -32700,
  invalid_request = -32600,
  method_not_found = -32601,
  invalid_params = -32602,
  internal_error = -32603,
  unavailable = -32000,        // nothing that could answer is there; too much at once
  session_not_found = -32001,  // the client shall begin with `initialize` again
  authentication_required = -32002,
  cancelled = -32800,
};

inline constexpr std::size_t kMaxMessage = 16 << 20;  // bytes of a text
inline constexpr std::size_t kMaxBatch = 32;          // messages
inline constexpr std::size_t kMaxId = 256;            // bytes of an id that is a string

struct Message {
  enum class Kind { request, notification, response };
  Kind kind = Kind::request;
  json::value id;  // a string or an integer; null: a notification
  std::string method;
  json::object params;
};

// What is wrong with a message, and what its sender can be told. `id` is null if it had none that
// could be read.
struct Malformed {
  RpcCode code = RpcCode::invalid_request;
  std::string message;
  json::value id;
};

using Parsed = std::variant<Message, Malformed>;

struct Incoming {
  std::vector<Parsed> messages;  // at least one
  bool batch = false;
};

// Never fails: what cannot be read at all is one Malformed.
Incoming parse_incoming(std::string_view text);

json::object make_response(json::value id, json::value result);
json::object make_failure(json::value id, RpcCode code, std::string_view message,
                          json::object data = {});
json::object make_failure(const Malformed& malformed);
json::object make_notification(std::string_view method, json::object params);

// One id, one text: 1 and "1" are different.
std::string id_key(const json::value& id);

}  // namespace atl::mcp
