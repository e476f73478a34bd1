// Query strings of lists, and the cursors that page through them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

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

}  // namespace atl::api
