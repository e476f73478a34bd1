#include "agent/auth.h"

#include <algorithm>
#include <array>

#include "agent/users.h"

namespace atl::agent {

bool is_exempt_from_token(std::string_view method, std::string_view path) {
  if (path == "/health") return method == "GET";
  if (path == "/files") return method == "GET" || method == "POST";
  return (path == "/init" || path == "/warm" || path == "/suspend" || path == "/wake") &&
         method == "POST";
}

bool is_token_accepted(const AgentState& state, const net::RequestHead& request) {
  if (!state.access_token() || is_exempt_from_token(request.method, request.path())) return true;
  return state.token_matches(request.headers.get("X-Access-Token"));
}

Result<void> check_basic_user(const net::RequestHead& request) {
  const auto name = basic_username(request.headers.get("Authorization"));
  if (!name) return {};
  if (lookup_user(*name).ok()) return {};
  return make_error(Errc::unauthenticated, "invalid username: '" + *name + "'");
}

bool is_control_plane_route(std::string_view path) {
  static constexpr std::array<std::string_view, 11> kRoutes = {
      "/init",     "/warm",     "/suspend",  "/wake",   "/logs",   "/freeze",
      "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw", "/upgrade"};
  return std::find(kRoutes.begin(), kRoutes.end(), path) != kRoutes.end();
}

}  // namespace atl::agent
