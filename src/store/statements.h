// Inside of the store: the prepared statements, and maps as JSON columns.
#pragma once

#include "store/store.h"

namespace atl::store {

struct Store::Statements {
  Statement insert_team, list_teams, find_team;
  Statement insert_key, key_by_hash, list_keys, delete_key, rename_key, touch_key;
  Statement insert_sandbox, update_sandbox, live_sandboxes, find_sandbox, purge_killed;
  Statement insert_metric, metrics, purge_metrics, forget_metrics;
  Statement insert_log, logs_forward, logs_backward, last_agent_seq, trim_logs, forget_logs;
  Statement insert_audit, audit, purge_audit;
  Statement insert_snapshot, update_snapshot, delete_snapshot, list_snapshots;
  Statement put_provider, find_provider, list_providers, delete_provider;
  Statement set_active_provider, active_provider, clear_active_provider;
  Statement begin, commit, rollback;
};

std::string to_json(const StringMap& map);
// data_loss: not an object of strings.
Result<StringMap> map_from_json(const std::string& text);

}  // namespace atl::store
