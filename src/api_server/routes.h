// The routes of the control plane, and how a path finds its route.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace atl::api {

enum class Action : std::uint8_t {
  health,
  create_v1,
  create_v2,
  list_v1,
  list_v2,
  info,
  kill,
  set_timeout,
  refresh,
  connect,
  pause,
  resume,
  update_network,
  fork,
  snapshot,
  rollback,
  list_snapshots,
  delete_template,
  sandbox_metrics,
  all_metrics,
  logs_v1,
  logs_v2,
  list_templates,
  find_alias,
  list_teams,
  list_keys,
  create_key,
  rename_key,
  delete_key,
  list_nodes,
  show_node,
  admin_kill_team,
  admin_running_counts,
  admin_create_key,
  admin_delete_key,
  gone,         // was part of the API once
  unsupported,  // known to E2B's clients, not served yet
};

// Who may call.
enum class Auth : std::uint8_t {
  none,
  team,        // an API key, or the admin token for a team
  any_bearer,  // an API key or the admin token, as bearer or in their own headers
  team_admin,  // the admin token for a team
  admin,       // the admin token
};

struct Route {
  std::string_view method;
  std::string_view pattern;  // "{}" stands for one segment
  Action action;
  Auth auth = Auth::team;
  std::string_view feature = {};  // of an unsupported one, for the message
};

std::span<const Route> all_routes();

struct Match {
  const Route* route = nullptr;     // null: no such path, or not with this method
  std::vector<std::string> params;  // decoded
  std::string allow;                // methods of the path, when only the method is wrong
};

// `path` as on the wire. Literal segments win over "{}".
Match match_route(std::string_view method, std::string_view path);

// Is this a path of the table that needs credentials, whatever the method? `/health` is not one.
bool is_control_path(std::string_view path);

// Does the path fit the pattern? `params` are its decoded "{}" segments then.
bool fits_pattern(std::string_view pattern, std::string_view path,
                  std::vector<std::string>& params);

}  // namespace atl::api
