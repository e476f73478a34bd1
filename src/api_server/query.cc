#include "api_server/query.h"

#include <algorithm>
#include <charconv>

#include "api_server/fields.h"
#include "base/encoding.h"
#include "templates/reference.h"

namespace atl::api {
namespace {

constexpr std::size_t kMaxLimit = 100;
constexpr std::string_view kSeparator = "__";

Error bad_token() { return make_error(Errc::invalid_argument, "Invalid next token"); }

Result<void> decode_states(std::string_view text, engine::ListQuery& query) {
  query.running = query.paused = false;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const std::string_view state = text.substr(0, comma);
    if (state == "running") {
      query.running = true;
    } else if (state == "paused") {
      query.paused = true;
    } else {
      return validation("'state' must be a list of 'running' and 'paused'");
    }
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  if (!query.running && !query.paused) query.running = query.paused = true;
  return {};
}

Result<std::string> decode_template(const std::string& text, templates::Catalog& templates) {
  ATOLL_TRY_ASSIGN(const templates::Reference reference, templates::parse_reference(text));
  if (!reference.tag.empty()) return validation("'template' must not have a tag");
  auto found = templates.find(text);
  // A template that is gone may still have sandboxes; of one that never was there are none.
  return found.ok() ? found->id : reference.alias;
}

// 1 to 100; absent: 100.
Result<std::size_t> decode_limit(const net::RequestHead& head) {
  std::size_t value = kMaxLimit;
  if (const auto limit = head.query_param("limit")) {
    const char* end = limit->data() + limit->size();
    const auto [stop, ec] = std::from_chars(limit->data(), end, value);
    if (ec != std::errc() || stop != end || value < 1 || value > kMaxLimit)
      return validation("'limit' must be an integer from 1 to 100");
  }
  return value;
}

}  // namespace

Result<store::StringMap> decode_metadata_filter(std::string_view value) {
  const auto form = percent_decode(value, PlusIs::space);
  if (!form) return validation("'metadata' is not encoded correctly");
  store::StringMap map;
  std::string_view rest = *form;
  while (!rest.empty()) {
    const std::size_t amp = rest.find('&');
    const std::string_view pair = rest.substr(0, amp);
    const std::size_t eq = pair.find('=');
    if (eq == std::string_view::npos || pair.find('=', eq + 1) != std::string_view::npos) {
      return validation("'metadata' must be pairs of key=value joined by '&'");
    }
    auto key = percent_decode(pair.substr(0, eq));
    auto wanted = percent_decode(pair.substr(eq + 1));
    if (!key || !wanted) return validation("'metadata' is not encoded correctly");
    map.insert_or_assign(std::move(*key), std::move(*wanted));
    if (amp == std::string_view::npos) break;
    rest.remove_prefix(amp + 1);
  }
  return map;
}

std::string encode_cursor(const engine::Cursor& cursor, engine::Order order) {
  std::string text = to_rfc3339(cursor.started_at) + std::string(kSeparator) + cursor.id;
  if (order == engine::Order::oldest_first) text += "__asc";
  std::string token = base64_encode(text);
  while (!token.empty() && token.back() == '=') token.pop_back();
  std::replace(token.begin(), token.end(), '+', '-');
  std::replace(token.begin(), token.end(), '/', '_');
  return token;
}

Result<engine::Cursor> decode_cursor(std::string_view token, engine::Order order) {
  if (token.size() > 256) return bad_token();
  const auto text = base64_decode(token);
  if (!text) return bad_token();
  std::string_view rest = *text;
  const std::size_t first = rest.find(kSeparator);
  if (first == std::string_view::npos) return bad_token();
  const auto started = parse_rfc3339(rest.substr(0, first));
  rest.remove_prefix(first + kSeparator.size());
  const bool ascending = rest.ends_with("__asc");
  if (ascending) rest.remove_suffix(5);
  if (ascending != (order == engine::Order::oldest_first)) return bad_token();
  if (!started || !SandboxId::parse(rest)) return bad_token();
  return engine::Cursor{*started, std::string(rest)};
}

Result<engine::ListQuery> decode_list_query(const net::RequestHead& head,
                                            templates::Catalog& templates) {
  engine::ListQuery query;
  if (const auto metadata = head.query_param("metadata")) {
    ATOLL_TRY_ASSIGN(query.metadata, decode_metadata_filter(*metadata));
  }
  if (const auto state = head.query_param("state")) {
    ATOLL_TRY(decode_states(*state, query));
  }
  if (const auto order = head.query_param("order")) {
    if (*order != "asc" && *order != "desc") return validation("'order' must be 'asc' or 'desc'");
    query.order = *order == "asc" ? engine::Order::oldest_first : engine::Order::newest_first;
  }
  if (const auto after = head.query_param("startedAfter")) {
    query.started_after = parse_rfc3339(*after);
    if (!query.started_after) return validation("'startedAfter' must be an RFC 3339 time");
  }
  if (const auto reference = head.query_param("template")) {
    ATOLL_TRY_ASSIGN(query.template_id, decode_template(*reference, templates));
  }
  ATOLL_TRY_ASSIGN(query.limit, decode_limit(head));
  if (const auto token = head.query_param("nextToken"); token && !token->empty()) {
    ATOLL_TRY_ASSIGN(query.after, decode_cursor(*token, query.order));
  }
  return query;
}

Result<engine::SnapshotQuery> decode_snapshot_query(const net::RequestHead& head) {
  engine::SnapshotQuery query;
  if (const auto id = head.query_param("sandboxID"); id && !id->empty()) {
    // `id` or `id-clientid`, as in paths.
    const auto parsed = SandboxId::parse(std::string_view(*id).substr(0, id->find('-')));
    if (!parsed) return make_error(Errc::invalid_argument, "Invalid sandbox ID");
    query.sandbox_id = parsed->str();
  }
  if (const auto name = head.query_param("name"); name && !name->empty()) {
    ATOLL_TRY_ASSIGN(query.name, templates::parse_reference(*name));
    // A reference without a tag means all of them here, one with `default` only that.
    if (query.name->tag.empty() && name->find(':') != std::string::npos)
      query.name->tag = "default";
  }
  ATOLL_TRY_ASSIGN(query.limit, decode_limit(head));
  if (const auto token = head.query_param("nextToken"); token && !token->empty()) {
    ATOLL_TRY_ASSIGN(query.after, decode_cursor(*token, engine::Order::newest_first));
  }
  return query;
}

}  // namespace atl::api
