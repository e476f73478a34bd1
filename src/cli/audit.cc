#include "cli/audit.h"

#include <fmt/format.h>

#include "base/json.h"
#include "cli/home.h"
#include "cli/table.h"
#include "store/store.h"

namespace atl::cli {
namespace {

json::object as_json(const store::AuditRecord& row) {
  json::object o;
  o["at"] = to_rfc3339(row.at);
  o["team"] = row.team_id;
  o["by"] = row.key_id;
  o["peer"] = row.peer;
  o["action"] = row.action;
  o["subject"] = row.subject;
  o["detail"] = row.detail;
  return o;
}

}  // namespace

Result<int> audit_command(const AuditOptions& options) {
  store::AuditFilter filter;
  filter.subject = options.subject;
  filter.limit = options.limit;
  if (!options.since.empty()) {
    const auto age = parse_duration(options.since);
    if (!age)
      return make_error(Errc::invalid_argument,
                        "not a duration: " + options.since + ". Try 90s, 15m, 2h or 7d");
    filter.from = now() - *age;
  }
  ATOLL_TRY_ASSIGN(const ServerUser user, find_server_user());
  ATOLL_TRY_ASSIGN(const Home home, Home::open(options.home, user));
  // The store's files must stay the server's, so this command works as the server's user too.
  ATOLL_TRY(become(user));
  ATOLL_TRY_ASSIGN(const auto store, store::Store::open(home.state_db()));
  ATOLL_TRY_ASSIGN(const auto rows, store->audit(filter));
  if (options.json) {
    json::array out;
    for (const auto& row : rows) out.push_back(as_json(row));
    fmt::print("{}\n", json::serialize(out));
    return 0;
  }
  Table table({"AT", "BY", "PEER", "ACTION", "SUBJECT", "DETAIL"});
  for (const auto& row : rows) {
    table.add({to_rfc3339(row.at), printable(row.key_id), printable(row.peer), row.action,
               printable(row.subject), printable(row.detail)});
  }
  table.print();
  return 0;
}

}  // namespace atl::cli
