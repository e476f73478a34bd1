#include "proxy/headers.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "proxy/target.h"

namespace atl::proxy {
namespace {

constexpr std::array<std::string_view, 10> kHopByHop = {"Connection",
                                                        "Keep-Alive",
                                                        "Proxy-Connection",
                                                        "Proxy-Authenticate",
                                                        "Proxy-Authorization",
                                                        "TE",
                                                        "Trailer",
                                                        "Transfer-Encoding",
                                                        "Upgrade",
                                                        "Content-Length"};

bool one_of(std::string_view name, const auto& names) {
  return std::any_of(names.begin(), names.end(),
                     [&](std::string_view n) { return net::iequals(n, name); });
}

bool starts_with_nocase(std::string_view text, std::string_view prefix) {
  return text.size() >= prefix.size() && net::iequals(text.substr(0, prefix.size()), prefix);
}

bool is_forwarding(std::string_view name) {
  return starts_with_nocase(name, "X-Forwarded-") || net::iequals(name, "Forwarded");
}

// Credentials of this server sent along by mistake would tell the sandbox how to control all
// others. Services may have headers of these names with keys of their own.
bool is_our_key(const net::Headers::Field& field, std::uint16_t port) {
  if (net::iequals(field.name, "X-Admin-Token")) return true;
  if (net::iequals(field.name, "X-API-Key"))
    return port == kAgentPort || field.value.starts_with("e2b_");
  return net::iequals(field.name, "Authorization") &&
         starts_with_nocase(field.value, "Bearer e2b_");
}

// What Connection names beside the usual words; most requests have nothing of that kind.
bool names_headers(const net::Headers& headers) {
  return std::any_of(headers.begin(), headers.end(), [](const net::Headers::Field& field) {
    return net::iequals(field.name, "Connection") && !net::iequals(field.value, "keep-alive") &&
           !net::iequals(field.value, "close");
  });
}

std::string masked_host(std::string mask, std::uint16_t port) {
  constexpr std::string_view kPlace = "${PORT}";
  for (std::size_t at = mask.find(kPlace); at != std::string::npos; at = mask.find(kPlace, at)) {
    mask.replace(at, kPlace.size(), std::to_string(port));
  }
  return mask;
}

}  // namespace

Upgrade asks_upgrade(const net::RequestHead& request) {
  const bool asks = request.version >= 11 && request.headers.has("Upgrade") &&
                    request.headers.lists("Connection", "upgrade") && request.method == "GET";
  return asks ? Upgrade::yes : Upgrade::no;
}

net::RequestHead request_to_sandbox(const net::RequestHead& request, std::uint16_t port,
                                    const std::string& mask, Upgrade upgrade) {
  net::RequestHead out;
  out.method = request.method;
  out.target = request.target;
  const bool named = names_headers(request.headers);
  for (const auto& field : request.headers) {
    if (one_of(field.name, kHopByHop) || is_forwarding(field.name) || is_our_key(field, port))
      continue;
    if (net::iequals(field.name, "Expect")) continue;  // answered on this side
    if (named && request.headers.lists("Connection", field.name)) continue;
    out.headers.add(field.name, field.value);
  }
  if (upgrade == Upgrade::yes) {
    out.headers.add("Connection", "Upgrade");
    out.headers.add("Upgrade", std::string(request.headers.get("Upgrade")));
  }
  if (!mask.empty() && port != kAgentPort) {
    out.headers.set("X-Forwarded-Host", std::string(request.headers.get("Host")));
    out.headers.set("Host", masked_host(mask, port));
  }
  return out;
}

net::Headers headers_to_client(const net::ResponseHead& response, Upgrade upgrade) {
  net::Headers out;
  const bool named = names_headers(response.headers);
  for (const auto& field : response.headers) {
    if (one_of(field.name, kHopByHop)) continue;
    if (named && response.headers.lists("Connection", field.name)) continue;
    out.add(field.name, field.value);
  }
  if (upgrade == Upgrade::yes) {
    out.add("Connection", "Upgrade");
    out.add("Upgrade", std::string(response.headers.get("Upgrade")));
  }
  return out;
}

}  // namespace atl::proxy
