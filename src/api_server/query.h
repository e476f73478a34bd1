// Query strings of lists, and the cursors that page through them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/commands.h"
#include "net/http.h"
#include "templates/catalog.h"

namespace atl::api {

// `metadata` as clients send it: each key and value is encoded, the pairs are form-encoded, and the
// result is the value of a query parameter. `value` has had the query decoding already.
// invalid_argument unless every pair has exactly one '='.
Result<store::StringMap> decode_metadata_filter(std::string_view value);

// Opaque to clients: base64url of "<started at>__<id>", with "__asc" behind it for the other order.
std::string encode_cursor(const engine::Cursor& cursor, engine::Order order);
// invalid_argument "Invalid next token", also for a cursor of the other order.
Result<engine::Cursor> decode_cursor(std::string_view token, engine::Order order);

// GET /v2/sandboxes. Everything but the team.
Result<engine::ListQuery> decode_list_query(const net::RequestHead& head,
                                            templates::Catalog& templates);

// GET /snapshots: `sandboxID`, `name`, `limit`, `nextToken`. Everything but the team.
Result<engine::SnapshotQuery> decode_snapshot_query(const net::RequestHead& head);

// `start` and `end` in seconds since 1970. invalid_argument "Invalid time range for metrics" when
// they are the wrong way round.
struct TimeRange {
  std::optional<Timestamp> start;
  std::optional<Timestamp> end;
};
Result<TimeRange> decode_metric_range(const net::RequestHead& head);
// `sandbox_ids`: at least one and at most 100, joined by commas.
Result<std::vector<SandboxId>> decode_sandbox_ids(const net::RequestHead& head);
// `start` in milliseconds, `limit`; oldest first.
Result<engine::LogQuery> decode_logs_v1(const net::RequestHead& head);
// `cursor` in milliseconds, `limit`, `direction`, `level`, `search`. A limit of 0 is passed on.
Result<engine::LogQuery> decode_logs_v2(const net::RequestHead& head);

}  // namespace atl::api
