#include "proxy/refusal.h"

#include <array>

#include "base/json.h"

namespace atl::proxy {
namespace {

std::string lowered(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
  }
  return out;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

json::object body_of(std::string_view id, std::string_view message, int code) {
  json::object body;
  body["sandboxId"] = id;
  body["message"] = message;
  body["code"] = code;
  return body;
}

}  // namespace

Refusal reserved_route(std::string_view path) {
  json::object body;
  body["message"] =
      "This endpoint is reserved for the E2B control plane and is not reachable through the "
      "sandbox URL";
  body["path"] = path;
  body["code"] = 404;
  return {404, json::serialize(body), "Not Found",
          "The path " + std::string(path) + " is reserved for the control plane."};
}

Refusal sandbox_not_found(std::string_view id) {
  return {502, json::serialize(body_of(id, "The sandbox was not found", 502)), "Sandbox Not Found",
          "The sandbox " + std::string(id) +
              " does not run. It was killed, its time is over, or it never was."};
}

Refusal resume_denied(std::string_view id) {
  constexpr std::string_view kMessage =
      "This sandbox can't be resumed with the credentials provided. Check your access token and "
      "try again.";
  return {403, json::serialize(body_of(id, kMessage, 403)), "Sandbox Is Paused",
          "The sandbox " + std::string(id) +
              " is paused, and the credentials of this request do not wake it."};
}

Refusal still_transitioning(std::string_view id) {
  constexpr std::string_view kMessage =
      "The sandbox is still transitioning. Try again in a moment.";
  return {409, json::serialize(body_of(id, kMessage, 409)), "Sandbox Is Transitioning",
          "The sandbox " + std::string(id) + " is being paused or resumed. Try again in a moment."};
}

Refusal resume_refused(std::string_view id, std::string_view reason) {
  return {429, json::serialize(body_of(id, reason, 429)), "Sandbox Cannot Be Resumed",
          "The sandbox " + std::string(id) + " cannot be resumed now: " + std::string(reason)};
}

Refusal traffic_token_missing(std::string_view id) {
  constexpr std::string_view kMessage =
      "Sandbox is secured with traffic access token. Token header 'e2b-traffic-access-token' is "
      "missing";
  return {403, json::serialize(body_of(id, kMessage, 403)), "Missing Traffic Access Token",
          "The sandbox " + std::string(id) +
              " takes requests only with the header e2b-traffic-access-token."};
}

Refusal traffic_token_wrong(std::string_view id) {
  constexpr std::string_view kMessage =
      "Sandbox is secured with traffic access token. Provided token in header "
      "'e2b-traffic-access-token' is invalid";
  return {403, json::serialize(body_of(id, kMessage, 403)), "Invalid Traffic Access Token",
          "The token in the header e2b-traffic-access-token is not that of the sandbox " +
              std::string(id) + "."};
}

Refusal too_many_connections(std::string_view id, std::uint32_t limit) {
  const std::string message =
      "The sandbox has too many concurrent incoming connections (limit: " + std::to_string(limit) +
      ")";
  json::object body = body_of(id, message, 429);
  body["connectionLimit"] = limit;
  return {429, json::serialize(body), "Too Many Connections", message + ": " + std::string(id)};
}

Refusal port_not_open(std::string_view id, std::uint16_t port) {
  json::object body;
  body["sandboxId"] = id;
  body["message"] = "The sandbox is running but port is not open";
  body["port"] = port;
  body["code"] = 502;
  return {502, json::serialize(body), "Closed Port",
          "The sandbox " + std::string(id) + " runs, but there is no service running on port " +
              std::to_string(port) + "."};
}

bool wants_page(const net::RequestHead& request) {
  constexpr std::array<std::string_view, 7> kBrowsers = {"mozilla", "chrome", "safari", "firefox",
                                                         "edge",    "opera",  "msie"};
  const std::string agent = lowered(request.headers.get("User-Agent"));
  bool browser = false;
  for (const std::string_view name : kBrowsers)
    browser = browser || agent.find(name) != std::string::npos;
  if (!browser) return false;
  const std::string accept = lowered(request.headers.get("Accept"));
  if (accept.find("application/json") != std::string::npos &&
      accept.find("text/html") == std::string::npos)
    return false;
  const std::string mode = lowered(request.headers.get("Sec-Fetch-Mode"));
  if (mode == "cors" || mode == "no-cors" || mode == "same-origin" || mode == "websocket")
    return false;
  return mode == "navigate" || !request.headers.has("X-Requested-With");
}

Rendered render(const Refusal& refusal, const net::RequestHead& request) {
  Rendered out;
  if (!wants_page(request)) {
    out.headers.add("Content-Type", "application/json; charset=utf-8");
    out.body = refusal.json;
    return out;
  }
  out.headers.add("Content-Type", "text/html; charset=utf-8");
  out.headers.add("X-Content-Type-Options", "nosniff");
  out.body = "<html lang=\"en\"><head><meta charset=\"utf-8\"><title>" + escaped(refusal.title) +
             "</title><style>body{font:16px/1.5 sans-serif;max-width:40em;margin:15vh "
             "auto;padding:0 1em}</style></head><body><h1>" +
             escaped(refusal.title) + "</h1><p>" + escaped(refusal.text) + "</p></body></html>";
  return out;
}

}  // namespace atl::proxy
