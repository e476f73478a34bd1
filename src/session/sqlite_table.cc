#include "session/sqlite_table.h"

namespace atl::session {

// The store answers in microseconds: no thread is needed.
net::Task<Result<std::optional<Row>>> SqliteTable::get(std::string team, std::string key) {
  co_return rows_.get(team, key);
}

net::Task<Result<std::optional<std::string>>> SqliteTable::put(Row row) {
  co_return rows_.put(row);
}

net::Task<Result<bool>> SqliteTable::remove(Row row) {
  co_return rows_.remove(row.team, row.key, row.version);
}

net::Task<Result<std::vector<Row>>> SqliteTable::list(std::string team) {
  co_return rows_.list(team);
}

}  // namespace atl::session
