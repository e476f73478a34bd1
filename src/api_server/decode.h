// Request bodies into commands. Unknown fields are ignored, known ones must have their type; null
// counts as absent where a field is optional. Errors: invalid_argument ("validation error: ..." for
// shapes, E2B's own words for rules), unimplemented for features that this server does not have: a
// sandbox that would silently behave otherwise than asked is never made.
#pragma once

#include <chrono>
#include <optional>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "engine/commands.h"

namespace atl::api {

enum class ApiVersion { v1, v2 };

// What this server can do beyond the core; a request for more is refused.
struct Features {
  bool header_rules = true;  // requests of sandboxes can be intercepted (network.rules)
};

// Everything but the caller.
Result<engine::CreateCommand> decode_create(std::string_view body, ApiVersion version,
                                            const Features& features = {});

struct ConnectBody {
  std::chrono::seconds timeout{300};
  engine::Revive revive = engine::Revive::as_paused;
};
// {"timeout": n, "memory": bool}; a body may be missing.
Result<ConnectBody> decode_connect(std::string_view body);
// {"memory": bool}; a body may be missing. True: memory is kept.
Result<bool> decode_pause(std::string_view body);

struct ResumeBody {
  std::chrono::seconds timeout{15};
  std::optional<bool> auto_pause;
};
// {"timeout": n, "autoPause": bool}; a body may be missing.
Result<ResumeBody> decode_resume(std::string_view body);
// {"timeout": n}; negative counts as zero.
Result<std::chrono::seconds> decode_timeout(std::string_view body);
// {"duration": 0..3600}; a body may be missing.
Result<std::chrono::seconds> decode_refresh(std::string_view body);
// Body of PUT network.
Result<engine::NetworkUpdate> decode_network_update(std::string_view body,
                                                    const Features& features = {});
struct SnapshotBody {
  std::string name;
  bool memory = true;
};
// {"name": "...", "memory": bool}; a body may be missing.
Result<SnapshotBody> decode_snapshot(std::string_view body);
struct ForkBody {
  std::chrono::seconds timeout{15};
  std::int64_t count = 1;
};
// {"timeout": n, "count": n}; a body may be missing.
Result<ForkBody> decode_fork(std::string_view body);
// {"snapshotID": "..."}
Result<std::string> decode_rollback(std::string_view body);
// {"name": "..."}: of an API key.
Result<std::string> decode_key_name(std::string_view body);

// The `network` object of a create into the command, with its rules. In decode_network.cc.
Result<void> decode_network(const json::object& network, const Features& features,
                            engine::CreateCommand& command);

}  // namespace atl::api
