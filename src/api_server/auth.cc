#include "api_server/auth.h"

#include <algorithm>

#include "base/ids.h"
#include "store/keys.h"

namespace atl::api {
namespace {

Error unauthenticated(std::string message) {
  return make_error(Errc::unauthenticated, std::move(message));
}

// What was shown, whatever header carried it.
struct Shown {
  std::string_view key;
  std::string_view admin;
};

Shown find_credentials(const net::RequestHead& request) {
  Shown shown{request.headers.get("X-API-Key"), request.headers.get("X-Admin-Token")};
  if (!shown.key.empty() || !shown.admin.empty()) return shown;
  std::string_view bearer = request.headers.get("Authorization");
  if (bearer.size() < 7 || !net::iequals(bearer.substr(0, 7), "Bearer ")) return shown;
  bearer.remove_prefix(7);
  if (bearer.starts_with(store::kKeyPrefix)) {
    shown.key = bearer;
  } else {
    shown.admin = bearer;
  }
  return shown;
}

Result<Identity> check_key(std::string_view key, store::Store& store) {
  if (!key.starts_with(store::kKeyPrefix))
    return unauthenticated("authorization header is malformed");
  ATOLL_TRY_ASSIGN(const auto known, store::verify_key(store, key));
  if (!known) {
    return unauthenticated(
        "Invalid API key, please visit https://e2b.dev/docs/api-key for more information. Keys of "
        "this server are made and listed by 'atoll key'.");
  }
  return Identity{{known->team_id, known->id}, false, std::string(key)};
}

Result<Identity> check_admin(const net::RequestHead& request, std::string_view token,
                             store::Store& store, std::string_view admin_token) {
  if (admin_token.empty() || !constant_time_equal(token, admin_token))
    return unauthenticated("Invalid Access token.");
  Identity identity{{"", "admin"}, true, {}};
  const std::string_view team = request.headers.get("X-Team-ID");
  if (team.empty()) return identity;
  ATOLL_TRY_ASSIGN(const auto teams, store.list_teams());
  const bool known = std::any_of(teams.begin(), teams.end(),
                                 [&](const store::TeamRecord& t) { return t.id == team; });
  if (!known) return make_error(Errc::not_found, "team '" + std::string(team) + "' not found");
  identity.caller.team_id = team;
  return identity;
}

}  // namespace

Result<Identity> authenticate(const net::RequestHead& request, Auth needed, store::Store& store,
                              std::string_view admin_token) {
  const Shown shown = find_credentials(request);
  const bool needs_admin = needed == Auth::admin || needed == Auth::team_admin;
  const bool needs_team = needed == Auth::team || needed == Auth::team_admin;
  if (shown.key.empty() && shown.admin.empty())
    return unauthenticated("authorization header is missing");
  // A key says which team it is, so it wins where both would do.
  if (!shown.key.empty() && (!needs_admin || shown.admin.empty())) {
    ATOLL_TRY_ASSIGN(Identity identity, check_key(shown.key, store));
    if (needs_admin) {
      return make_error(Errc::permission_denied,
                        "an API key may not do this; send the admin token of the server in the "
                        "header X-Admin-Token");
    }
    return identity;
  }
  ATOLL_TRY_ASSIGN(Identity identity, check_admin(request, shown.admin, store, admin_token));
  if (needs_team && identity.caller.team_id.empty()) {
    return unauthenticated(
        "the header X-Team-ID is missing: it says for which team the admin token is used");
  }
  return identity;
}

}  // namespace atl::api
