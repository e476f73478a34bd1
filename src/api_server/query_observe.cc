// Query strings of metrics and logs.
#include <charconv>

#include "api_server/fields.h"
#include "api_server/query.h"

namespace atl::api {
namespace {

constexpr std::size_t kMaxIds = 100;
constexpr std::size_t kMaxLogLimit = 1000;
constexpr std::size_t kMaxSearch = 256;
constexpr std::int64_t kMaxSeconds = 253'402'300'799;  // the end of the year 9999

Result<std::optional<std::int64_t>> query_int(const net::RequestHead& head, std::string_view name,
                                              std::int64_t least, std::int64_t most) {
  const auto text = head.query_param(name);
  if (!text || text->empty()) return std::optional<std::int64_t>();
  std::int64_t number = 0;
  const char* end = text->data() + text->size();
  const auto [stop, ec] = std::from_chars(text->data(), end, number);
  if (ec != std::errc() || stop != end || number < least || number > most) {
    return validation("'" + std::string(name) + "' must be an integer from " +
                      std::to_string(least) + " to " + std::to_string(most));
  }
  return std::optional<std::int64_t>(number);
}

// Milliseconds or seconds since 1970; what lies beyond the range of a Timestamp is cut to it.
Timestamp at_seconds(std::int64_t seconds) {
  constexpr std::int64_t kLast = 9'223'372'036;
  return from_ns(std::min(seconds, kLast) * 1'000'000'000);
}
Timestamp at_milliseconds(std::int64_t milliseconds) {
  constexpr std::int64_t kLast = 9'223'372'036'854;
  return from_ns(std::min(milliseconds, kLast) * 1'000'000);
}

}  // namespace

Result<TimeRange> decode_metric_range(const net::RequestHead& head) {
  ATOLL_TRY_ASSIGN(const auto start, query_int(head, "start", 0, kMaxSeconds));
  ATOLL_TRY_ASSIGN(const auto end, query_int(head, "end", 0, kMaxSeconds));
  if (start && end && *start > *end)
    return make_error(Errc::invalid_argument, "Invalid time range for metrics");
  TimeRange range;
  if (start) range.start = at_seconds(*start);
  if (end) range.end = at_seconds(*end);
  return range;
}

Result<std::vector<SandboxId>> decode_sandbox_ids(const net::RequestHead& head) {
  const auto text = head.query_param("sandbox_ids");
  if (!text || text->empty()) return validation("parameter 'sandbox_ids' is missing");
  std::vector<SandboxId> ids;
  std::string_view rest = *text;
  for (;;) {
    const std::size_t comma = rest.find(',');
    const std::string_view one = rest.substr(0, comma);
    auto id = SandboxId::parse(one.substr(0, one.find('-')));
    if (!id) return make_error(Errc::invalid_argument, "Invalid sandbox ID");
    if (ids.size() == kMaxIds) return validation("'sandbox_ids' has more than 100 entries");
    ids.push_back(std::move(*id));
    if (comma == std::string_view::npos) return ids;
    rest.remove_prefix(comma + 1);
  }
}

Result<engine::LogQuery> decode_logs_v1(const net::RequestHead& head) {
  engine::LogQuery query;
  ATOLL_TRY_ASSIGN(const auto start, query_int(head, "start", 0, kMaxSeconds * 1000));
  ATOLL_TRY_ASSIGN(const auto limit, query_int(head, "limit", 1, kMaxLogLimit));
  if (start) query.from = at_milliseconds(*start);
  query.limit = std::size_t(limit.value_or(kMaxLogLimit));
  return query;
}

Result<engine::LogQuery> decode_logs_v2(const net::RequestHead& head) {
  engine::LogQuery query;
  ATOLL_TRY_ASSIGN(const auto cursor, query_int(head, "cursor", 0, kMaxSeconds * 1000));
  ATOLL_TRY_ASSIGN(const auto limit, query_int(head, "limit", 0, kMaxLogLimit));
  query.limit = std::size_t(limit.value_or(kMaxLogLimit));
  const std::string direction = head.query_param("direction").value_or("backward");
  if (direction != "backward" && direction != "forward")
    return validation("'direction' must be 'forward' or 'backward'");
  query.newest_first = direction == "backward";
  if (cursor) (query.newest_first ? query.to : query.from) = at_milliseconds(*cursor);
  if (const auto level = head.query_param("level"); level && !level->empty()) {
    const auto least = store::parse_log_level(*level);
    if (!least) return validation("'level' must be 'debug', 'info', 'warn' or 'error'");
    query.least = *least;
  }
  query.search = head.query_param("search").value_or("");
  if (query.search.size() > kMaxSearch) return validation("'search' is longer than 256 bytes");
  return query;
}

}  // namespace atl::api
