// Request bodies into commands. Unknown fields are ignored, known ones must have their type; null
// counts as absent where a field is optional. Errors: invalid_argument ("validation error: ..." for
// shapes, E2B's own words for rules), unimplemented for features that this server does not have: a
// sandbox that would silently behave otherwise than asked is never made.
#pragma once

#include <chrono>
#include <string_view>

#include "base/result.h"
#include "engine/commands.h"

namespace atl::api {

enum class ApiVersion { v1, v2 };

// Everything but the caller.
Result<engine::CreateCommand> decode_create(std::string_view body, ApiVersion version);
// Body of connect: {"timeout": n}; a body may be missing.
Result<std::chrono::seconds> decode_connect(std::string_view body);
// {"timeout": n}; negative counts as zero.
Result<std::chrono::seconds> decode_timeout(std::string_view body);
// {"duration": 0..3600}; a body may be missing.
Result<std::chrono::seconds> decode_refresh(std::string_view body);

}  // namespace atl::api
