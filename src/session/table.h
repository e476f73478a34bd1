// Table: which sandbox a session's key means, wherever that is kept.
//
// Every write names the version that the writer has read, and succeeds only over that one: of
// several who want the same key, on one server or on many, one gets it. Versions are random and
// never come back, so that whoever was away for too long cannot write over what came after.
//
// Errors are `unavailable`: the table does not answer. A write may have happened then.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "net/task.h"
#include "store/session_rows.h"

namespace atl::session {

using Row = store::SessionRecord;

class Table {
 public:
  virtual ~Table() = default;
  virtual net::Task<Result<std::optional<Row>>> get(std::string team, std::string key) = 0;
  // Over `row.version` (empty: nothing is there). The version it has now; nullopt: another was
  // there.
  virtual net::Task<Result<std::optional<std::string>>> put(Row row) = 0;
  // False: it has another version by now, or is gone.
  virtual net::Task<Result<bool>> remove(Row row) = 0;
  // Oldest first. `team` empty: of all teams.
  virtual net::Task<Result<std::vector<Row>>> list(std::string team) = 0;
};

}  // namespace atl::session
