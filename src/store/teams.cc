// Calls of administrators: rare, so their statements are made when they are needed.
#include "store/store.h"

namespace atl::store {

Result<std::vector<TeamRecord>> Store::list_teams() {
  std::lock_guard lock(mutex_);
  ATOLL_TRY_ASSIGN(Statement list,
                   main_.prepare("SELECT id, name, created_ns FROM teams ORDER BY created_ns, id"));
  std::vector<TeamRecord> teams;
  for (;;) {
    ATOLL_TRY_ASSIGN(const bool there, list.step());
    if (!there) return teams;
    teams.push_back({list.text(0), list.text(1), from_ns(list.integer(2))});
  }
}

Result<bool> Store::rename_key(const std::string& team_id, const std::string& key_id,
                               const std::string& name) {
  std::lock_guard lock(mutex_);
  ATOLL_TRY_ASSIGN(Statement rename,
                   main_.prepare("UPDATE api_keys SET name=?3 WHERE team_id=?1 AND id=?2"));
  rename.bind(1, team_id);
  rename.bind(2, key_id);
  rename.bind(3, name);
  written_ = true;
  ATOLL_TRY(rename.run());
  return main_.changes() > 0;
}

}  // namespace atl::store
