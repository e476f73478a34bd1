#include "session/redis_table.h"

#include <algorithm>
#include <charconv>

#include "base/ids.h"
#include "base/json.h"

namespace atl::session {
namespace {

using Kind = RedisValue::Kind;

constexpr std::string_view kTeamsKey = "atoll:teams";

// Redis' clock in ms, as text: a number of Lua would lose digits when it is printed.
#define ATOLL_LUA_NOW              \
  "local t = redis.call('TIME')\n" \
  "local now = t[1] * 1000 + math.floor(t[2] / 1000)\n"

constexpr std::string_view kGet = ATOLL_LUA_NOW R"lua(
return {redis.call('HGET', KEYS[1], ARGV[1]), string.format('%.0f', now)}
)lua";

// KEYS: rows, teams, sandboxes. ARGV: key, version that must be there, new version, lease in ms,
// sandbox, JSON, team, node.
constexpr std::string_view kPut = ATOLL_LUA_NOW R"lua(
local old = redis.call('HGET', KEYS[1], ARGV[1])
local version, sandbox = '', ''
if old then version, sandbox = string.match(old, '^([^\n]*)\n[^\n]*\n([^\n]*)\n') end
if version ~= ARGV[2] then return 0 end
local lease = 0
if tonumber(ARGV[4]) > 0 then lease = now + tonumber(ARGV[4]) end
local row = ARGV[3] .. '\n' .. string.format('%.0f', lease) .. '\n' .. ARGV[5] .. '\n' .. ARGV[6]
redis.call('HSET', KEYS[1], ARGV[1], row)
redis.call('SADD', KEYS[2], ARGV[7])
if sandbox ~= '' and sandbox ~= ARGV[5] then redis.call('HDEL', KEYS[3], sandbox) end
if ARGV[5] ~= '' then redis.call('HSET', KEYS[3], ARGV[5], ARGV[8]) end
return 1
)lua";

constexpr std::string_view kRemove = R"lua(
local old = redis.call('HGET', KEYS[1], ARGV[1])
if not old then return 0 end
local version, sandbox = string.match(old, '^([^\n]*)\n[^\n]*\n([^\n]*)\n')
if version ~= ARGV[2] then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1])
if sandbox ~= '' then redis.call('HDEL', KEYS[3], sandbox) end
if redis.call('HLEN', KEYS[1]) == 0 then redis.call('SREM', KEYS[2], ARGV[3]) end
return 1
)lua";

std::string rows_key(const std::string& team) { return "atoll:sessions:" + team; }

std::vector<std::string> keys_of(const std::string& team) {
  return {rows_key(team), std::string(kTeamsKey), std::string(kSandboxesKey)};
}

Error strange(std::string_view what) {
  return make_error(Errc::data_loss, "the session store holds what this program did not write: " +
                                         std::string(what));
}

std::int64_t to_number(std::string_view text) {
  std::int64_t out = 0;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

std::string rest_of(const Row& row) {
  json::object out;
  out["ready"] = row.ready;
  out["node"] = row.node;
  out["claim"] = row.claim;
  out["options"] = row.options;
  out["created"] = to_ns(row.created_at);
  out["used"] = to_ns(row.used_at);
  return json::serialize(out);
}

Result<Row> parse_row(std::string team, std::string key, std::string_view text,
                      std::int64_t now_ms) {
  Row row;
  row.team = std::move(team);
  row.key = std::move(key);
  std::string_view lines[3];
  for (std::string_view& line : lines) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return strange("a row that is too short");
    line = text.substr(0, end);
    text.remove_prefix(end + 1);
  }
  row.version = lines[0];
  row.lease = std::chrono::milliseconds(std::max<std::int64_t>(to_number(lines[1]) - now_ms, 0));
  row.sandbox_id = lines[2];
  auto rest = parse_json(text);
  if (!rest.ok() || !rest->is_object()) return strange("a row without its fields");
  const json::object& o = rest->get_object();
  const auto string_of = [&o](std::string_view name) {
    const json::value* value = o.if_contains(name);
    return value != nullptr && value->is_string() ? std::string(value->get_string())
                                                  : std::string();
  };
  const auto integer_of = [&o](std::string_view name) {
    const json::value* value = o.if_contains(name);
    return value != nullptr && value->is_int64() ? value->get_int64() : 0;
  };
  const json::value* ready = o.if_contains("ready");
  row.ready = ready != nullptr && ready->is_bool() && ready->get_bool();
  row.node = string_of("node");
  row.claim = string_of("claim");
  row.options = string_of("options");
  row.created_at = from_ns(integer_of("created"));
  row.used_at = from_ns(integer_of("used"));
  return row;
}

}  // namespace

net::Task<Result<std::optional<Row>>> RedisTable::get(std::string team, std::string key) {
  auto asking = redis_.eval(kGet, {rows_key(team)}, {key});
  ATOLL_CO_TRY_ASSIGN(const RedisValue answer, co_await std::move(asking));
  if (answer.items.size() != 2 || answer.items[1].kind != Kind::text) co_return strange("no time");
  if (answer.items[0].kind != Kind::text) co_return std::optional<Row>();
  ATOLL_CO_TRY_ASSIGN(Row row, parse_row(std::move(team), std::move(key), answer.items[0].text,
                                         to_number(answer.items[1].text)));
  co_return std::optional<Row>(std::move(row));
}

net::Task<Result<std::optional<std::string>>> RedisTable::put(Row row) {
  const std::string version = random_hex(8);
  auto asking = redis_.eval(kPut, keys_of(row.team),
                            {row.key, row.version, version, std::to_string(row.lease.count()),
                             row.sandbox_id, rest_of(row), row.team, row.node});
  ATOLL_CO_TRY_ASSIGN(const RedisValue answer, co_await std::move(asking));
  if (answer.integer != 1) co_return std::optional<std::string>();
  co_return std::optional<std::string>(version);
}

net::Task<Result<bool>> RedisTable::remove(Row row) {
  auto asking = redis_.eval(kRemove, keys_of(row.team), {row.key, row.version, row.team});
  ATOLL_CO_TRY_ASSIGN(const RedisValue answer, co_await std::move(asking));
  co_return answer.integer == 1;
}

net::Task<Result<void>> RedisTable::list_team(std::string team, std::int64_t now_ms,
                                              std::vector<Row>& into) {
  std::string cursor = "0";
  do {
    auto asking = redis_.run({"HSCAN", rows_key(team), cursor, "COUNT", "500"});
    ATOLL_CO_TRY_ASSIGN(const RedisValue answer, co_await std::move(asking));
    if (answer.items.size() != 2) co_return strange("no list");
    cursor = answer.items[0].text;
    const std::vector<RedisValue>& pairs = answer.items[1].items;
    for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) {
      ATOLL_CO_TRY_ASSIGN(Row row, parse_row(team, pairs[i].text, pairs[i + 1].text, now_ms));
      into.push_back(std::move(row));
    }
  } while (cursor != "0");
  co_return Result<void>();
}

net::Task<Result<std::vector<Row>>> RedisTable::list(std::string team) {
  auto asking = redis_.run({"TIME"});
  ATOLL_CO_TRY_ASSIGN(const RedisValue time, co_await std::move(asking));
  if (time.items.size() != 2) co_return strange("no time");
  const std::int64_t now_ms =
      to_number(time.items[0].text) * 1000 + to_number(time.items[1].text) / 1000;
  std::vector<std::string> teams{team};
  if (team.empty()) {
    auto listing = redis_.run({"SMEMBERS", std::string(kTeamsKey)});
    ATOLL_CO_TRY_ASSIGN(const RedisValue answer, co_await std::move(listing));
    teams.clear();
    for (const RedisValue& each : answer.items) teams.push_back(each.text);
  }
  std::vector<Row> rows;
  for (const std::string& each : teams) {
    auto listing = list_team(each, now_ms, rows);
    ATOLL_CO_TRY(co_await std::move(listing));
  }
  const auto place = [](const Row& row) { return std::tie(row.created_at, row.team, row.key); };
  std::sort(rows.begin(), rows.end(),
            [&](const Row& a, const Row& b) { return place(a) < place(b); });
  // A scan may name one twice.
  rows.erase(
      std::unique(rows.begin(), rows.end(),
                  [](const Row& a, const Row& b) { return a.team == b.team && a.key == b.key; }),
      rows.end());
  co_return rows;
}

}  // namespace atl::session
