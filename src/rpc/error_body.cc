#include "rpc/error_body.h"

#include "base/encoding.h"
#include "base/json.h"

namespace atl::rpc {
namespace {

json::object error_object(const Error& error) {
  std::string message = error.message;
  if (!is_valid_utf8(message)) {
    for (char& c : message) {
      if (static_cast<unsigned char>(c) >= 0x80) c = '?';
    }
  }
  json::object object;
  object["code"] = connect_name(error.code);
  object["message"] = message;
  return object;
}

std::optional<Error> error_from(const json::value& value) {
  const json::object* object = value.if_object();
  if (!object) return std::nullopt;
  const json::value* code = object->if_contains("code");
  const json::value* message = object->if_contains("message");
  if (!code || !code->is_string()) return std::nullopt;
  const auto errc = errc_from_connect_name(std::string_view(code->get_string()));
  if (!errc) return std::nullopt;
  std::string text =
      message && message->is_string() ? std::string(message->get_string()) : std::string();
  return make_error(*errc, std::move(text));
}

// Statuses that come from something in front of the service (a proxy, token authentication).
Errc errc_from_status(int status) {
  switch (status) {
    case 400:
      return Errc::invalid_argument;
    case 401:
      return Errc::unauthenticated;
    case 403:
      return Errc::permission_denied;
    case 404:
      return Errc::not_found;
    case 409:
      return Errc::already_exists;
    case 413:
    case 429:
      return Errc::resource_exhausted;
    case 499:
      return Errc::canceled;
    case 500:
      return Errc::internal;
    case 501:
      return Errc::unimplemented;
    case 502:
    case 503:
      return Errc::unavailable;
    case 504:
      return Errc::deadline_exceeded;
    default:
      return Errc::unknown;
  }
}

}  // namespace

std::optional<Errc> errc_from_connect_name(std::string_view name) {
  for (int i = int(Errc::canceled); i <= int(Errc::unauthenticated); ++i) {
    if (connect_name(Errc(i)) == name) return Errc(i);
  }
  return std::nullopt;
}

std::string error_body(const Error& error) { return json::serialize(error_object(error)); }

std::string end_stream_body(const Result<void>& outcome) {
  if (outcome.ok()) return "{}";
  json::object object;
  object["error"] = error_object(outcome.error());
  return json::serialize(object);
}

Error parse_error_body(int status, std::string_view body) {
  const auto parsed = parse_json(body);
  if (parsed.ok()) {
    if (auto error = error_from(*parsed)) return *std::move(error);
    if (const json::object* object = parsed->if_object()) {
      const json::value* message = object->if_contains("message");
      if (message && message->is_string()) {
        return make_error(errc_from_status(status), std::string(message->get_string()));
      }
    }
  }
  std::string text = "HTTP " + std::to_string(status);
  if (!body.empty()) text += ": " + std::string(body.substr(0, 500));
  return make_error(errc_from_status(status), std::move(text));
}

Result<void> parse_end_stream(std::string_view payload) {
  auto parsed = parse_json(payload);
  if (!parsed.ok()) return std::move(parsed).error().with("invalid end of stream");
  const json::object* object = parsed->if_object();
  if (!object) return make_error(Errc::internal, "invalid end of stream: not an object");
  const json::value* error = object->if_contains("error");
  if (!error) return {};
  if (auto known = error_from(*error)) return *std::move(known);
  return make_error(Errc::unknown, "the stream ended with an unreadable error");
}

}  // namespace atl::rpc
