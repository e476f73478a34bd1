// Who may ask the agent for what, before any route looks at the request (wire/sandbox-agent.md §6).
#pragma once

#include <string_view>

#include "agent/state.h"
#include "base/result.h"
#include "net/http.h"

namespace atl::agent {

inline constexpr std::string_view kUnauthorized =
    "unauthorized access, please provide a valid access token or method signing if supported";

// Routes that the token does not guard: /health, /init, /warm, /suspend and /wake (guarded by
// where they are reachable), and GET and POST /files, which also take signatures and check for
// themselves.
bool is_exempt_from_token(std::string_view method, std::string_view path);

// False: answer 401 with kUnauthorized.
bool is_token_accepted(const AgentState& state, const net::RequestHead& request);

// An `Authorization: Basic` header must name a user of the sandbox, whatever the route. Errors:
// unauthenticated.
Result<void> check_basic_user(const net::RequestHead& request);

// Routes of the control plane, which no client of a sandbox may reach.
bool is_control_plane_route(std::string_view path);

}  // namespace atl::agent
