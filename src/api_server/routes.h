// The routes of the control plane, and how a path finds its route.
#pragma once

#include <cstdint>
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
  connect_v1,
  connect_v2,
  list_templates,
  find_alias,
  unsupported,  // known to E2B's clients, not served yet
};

enum class Auth : std::uint8_t { none, api_key };

struct Route {
  std::string_view method;
  std::string_view pattern;  // "{}" stands for one segment
  Action action;
  Auth auth = Auth::api_key;
  std::string_view feature = {};  // of an unsupported one, for the message
};

struct Match {
  const Route* route = nullptr;     // null: no such path, or not with this method
  std::vector<std::string> params;  // decoded
  std::string allow;                // methods of the path, when only the method is wrong
};

// `path` as on the wire. Literal segments win over "{}".
Match match_route(std::string_view method, std::string_view path);

}  // namespace atl::api
