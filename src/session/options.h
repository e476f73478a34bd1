// Keys and options of sessions: what is allowed, and their form as JSON, which is the same in
// requests and in the table.
#pragma once

#include <string_view>

#include "base/json.h"
#include "session/sessions.h"

namespace atl::session {

inline constexpr std::size_t kMaxKey = 256;
inline constexpr std::string_view kKeyMetadata = "atoll.session";
inline constexpr std::string_view kClaimMetadata = "atoll.session.claim";

// 1 to 256 bytes of UTF-8 without control characters.
Result<void> check_key(std::string_view key);

// A request's body; it may be missing. What it names of a session that is there goes to `update`,
// or, if it has an array `update`, what that names.
Result<Options> decode_options(std::string_view body);
// With `update`: a body that means the same to another server.
json::object encode_request(const Options& options);
json::object encode_options(const Options& options);
// Those of a session that is there, changed.
Options updated(Options options, const Update& update);

// The create that makes the session's sandbox: secured, paused at its end, woken by traffic. Also
// the check of the options that it needs. invalid_argument.
Result<engine::CreateCommand> create_command(const engine::Caller& caller, const std::string& key,
                                             const std::string& claim, const Options& options);

}  // namespace atl::session
