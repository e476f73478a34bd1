// The table that several servers share, in Redis.
//
//   atoll:sessions:TEAM   hash: key -> row (four lines: version, end of the lease in ms of Redis'
//                         clock, sandbox, the rest as JSON)
//   atoll:teams           set of the teams that have one
//   atoll:sandboxes       hash: id of a session's sandbox -> node that has it
//
// Writes are Lua scripts that compare the version, so they happen as a whole or not at all; leases
// are measured by Redis' clock, whatever those of the servers say.
#pragma once

#include "session/redis.h"
#include "session/table.h"

namespace atl::session {

inline constexpr std::string_view kSandboxesKey = "atoll:sandboxes";

class RedisTable final : public Table {
 public:
  // `redis` outlives it.
  explicit RedisTable(Redis& redis) : redis_(redis) {}
  net::Task<Result<std::optional<Row>>> get(std::string team, std::string key) override;
  net::Task<Result<std::optional<std::string>>> put(Row row) override;
  net::Task<Result<bool>> remove(Row row) override;
  net::Task<Result<std::vector<Row>>> list(std::string team) override;

 private:
  net::Task<Result<void>> list_team(std::string team, std::int64_t now_ms, std::vector<Row>& into);
  Redis& redis_;
};

}  // namespace atl::session
