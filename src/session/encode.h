// Sessions as JSON: the answers of /sessions, which other servers of a cluster read again.
#pragma once

#include "base/json.h"
#include "session/sessions.h"

namespace atl::session {

std::string_view to_string(Came came);

json::object session_json(const Session& session);
// With all that E2B's create answers. `domain` may be empty.
json::object acquired_json(const Acquired& acquired, std::string_view domain);

// data_loss: not what this program writes. `inside` of what was acquired is left out.
Result<Session> parse_session(const json::value& value);
Result<Acquired> parse_acquired(const json::value& value);

}  // namespace atl::session
