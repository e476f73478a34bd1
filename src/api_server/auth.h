// Who calls: API keys, and the admin token of the home.
//
//   X-API-Key: e2b_...                      a team
//   X-Admin-Token: T [+ X-Team-ID: id]      the administrator [on behalf of a team]
//   Authorization: Bearer <either of them>  the same, for clients that know only this header
#pragma once

#include <string>

#include "api_server/routes.h"
#include "base/result.h"
#include "engine/commands.h"
#include "net/http.h"
#include "store/store.h"

namespace atl::api {

struct Identity {
  engine::Caller caller;  // its team is empty for an administrator who named none
  bool admin = false;
  std::string key;  // the API key that was shown; empty for administrators
};

// `admin_token` empty: there is no administrator. unauthenticated, permission_denied (an API key
// where only the administrator may), not_found (a team that does not exist).
Result<Identity> authenticate(const net::RequestHead& request, Auth needed, store::Store& store,
                              std::string_view admin_token);

}  // namespace atl::api
