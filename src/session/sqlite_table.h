// The table of a server of its own: rows in its store.
#pragma once

#include "session/table.h"

namespace atl::session {

class SqliteTable final : public Table {
 public:
  // `rows` outlives it.
  explicit SqliteTable(store::SessionRows& rows) : rows_(rows) {}
  net::Task<Result<std::optional<Row>>> get(std::string team, std::string key) override;
  net::Task<Result<std::optional<std::string>>> put(Row row) override;
  net::Task<Result<bool>> remove(Row row) override;
  net::Task<Result<std::vector<Row>>> list(std::string team) override;

 private:
  store::SessionRows& rows_;
};

}  // namespace atl::session
