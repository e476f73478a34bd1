#include "api_server/routes.h"

#include "base/encoding.h"

namespace atl::api {
namespace {

constexpr Route kRoutes[] = {
    {"GET", "/health", Action::health, Auth::none},

    {"POST", "/sandboxes", Action::create_v1},
    {"POST", "/v2/sandboxes", Action::create_v2},
    {"GET", "/sandboxes", Action::list_v1},
    {"GET", "/v2/sandboxes", Action::list_v2},
    {"GET", "/sandboxes/metrics", Action::all_metrics},
    {"GET", "/sandboxes/{}", Action::info},
    {"DELETE", "/sandboxes/{}", Action::kill},
    {"POST", "/sandboxes/{}/timeout", Action::set_timeout},
    {"POST", "/sandboxes/{}/refreshes", Action::refresh},
    {"POST", "/sandboxes/{}/connect", Action::connect},
    {"POST", "/v2/sandboxes/{}/connect", Action::connect},
    {"POST", "/sandboxes/{}/pause", Action::pause},
    {"POST", "/sandboxes/{}/resume", Action::resume},
    {"PUT", "/sandboxes/{}/network", Action::update_network},
    {"GET", "/sandboxes/{}/metrics", Action::sandbox_metrics},
    {"GET", "/sandboxes/{}/logs", Action::logs_v1},
    {"GET", "/v2/sandboxes/{}/logs", Action::logs_v2},
    {"POST", "/sandboxes/{}/fork", Action::fork},
    {"POST", "/sandboxes/{}/snapshots", Action::snapshot},
    {"POST", "/sandboxes/{}/rollback", Action::rollback},
    {"GET", "/snapshots", Action::list_snapshots},

    {"GET", "/templates", Action::list_templates},
    {"GET", "/v2/templates", Action::list_templates},
    {"GET", "/templates/aliases/{}", Action::find_alias},
    {"POST", "/v3/templates", Action::unsupported, Auth::team, "building templates"},
    {"POST", "/v2/templates", Action::unsupported, Auth::team, "building templates"},
    {"PATCH", "/v2/templates/{}", Action::unsupported, Auth::team, "changing templates"},
    {"POST", "/v2/templates/{}/builds/{}", Action::unsupported, Auth::team, "building templates"},
    {"POST", "/templates", Action::unsupported, Auth::team, "building templates"},
    {"POST", "/templates/tags", Action::unsupported, Auth::team, "tags of templates"},
    {"DELETE", "/templates/tags", Action::unsupported, Auth::team, "tags of templates"},
    {"GET", "/templates/{}", Action::unsupported, Auth::team, "builds of templates"},
    {"POST", "/templates/{}", Action::unsupported, Auth::team, "building templates"},
    {"PATCH", "/templates/{}", Action::unsupported, Auth::team, "changing templates"},
    {"DELETE", "/templates/{}", Action::delete_template},
    {"GET", "/templates/{}/tags", Action::unsupported, Auth::team, "tags of templates"},
    {"GET", "/templates/{}/files/{}", Action::unsupported, Auth::team, "building templates"},
    {"POST", "/templates/{}/builds/{}", Action::unsupported, Auth::team, "building templates"},
    {"GET", "/templates/{}/builds/{}/status", Action::unsupported, Auth::team,
     "building templates"},
    {"GET", "/templates/{}/builds/{}/logs", Action::unsupported, Auth::team, "building templates"},

    {"GET", "/volumes", Action::unsupported, Auth::team, "volumes"},
    {"POST", "/volumes", Action::unsupported, Auth::team, "volumes"},
    {"GET", "/volumes/{}", Action::unsupported, Auth::team, "volumes"},
    {"DELETE", "/volumes/{}", Action::unsupported, Auth::team, "volumes"},
    {"GET", "/secrets", Action::unsupported, Auth::team, "secrets"},
    {"POST", "/secrets", Action::unsupported, Auth::team, "secrets"},
    {"GET", "/secrets/{}", Action::unsupported, Auth::team, "secrets"},
    {"POST", "/secrets/{}", Action::unsupported, Auth::team, "secrets"},
    {"DELETE", "/secrets/{}", Action::unsupported, Auth::team, "secrets"},

    {"GET", "/teams", Action::list_teams, Auth::any_bearer},
    {"GET", "/teams/{}/metrics", Action::unsupported, Auth::team, "metrics of teams"},
    {"GET", "/teams/{}/metrics/max", Action::unsupported, Auth::team, "metrics of teams"},
    {"GET", "/api-keys", Action::list_keys, Auth::team_admin},
    {"POST", "/api-keys", Action::create_key, Auth::team_admin},
    {"PATCH", "/api-keys/{}", Action::rename_key, Auth::team_admin},
    {"DELETE", "/api-keys/{}", Action::delete_key, Auth::team_admin},
    {"POST", "/access-tokens", Action::gone, Auth::any_bearer, "access tokens"},
    {"DELETE", "/access-tokens/{}", Action::gone, Auth::any_bearer, "access tokens"},
    {"GET", "/nodes", Action::list_nodes, Auth::admin},
    {"GET", "/nodes/{}", Action::show_node, Auth::admin},
    {"POST", "/nodes/{}", Action::unsupported, Auth::admin, "changing the status of the node"},
    {"POST", "/admin/teams/{}/sandboxes/kill", Action::admin_kill_team, Auth::admin},
    {"GET", "/admin/sandboxes/running-counts", Action::admin_running_counts, Auth::admin},
    {"POST", "/admin/teams/{}/builds/cancel", Action::unsupported, Auth::admin,
     "building templates"},
    {"POST", "/admin/teams/{}/api-keys", Action::admin_create_key, Auth::admin},
    {"DELETE", "/admin/teams/{}/api-keys/{}", Action::admin_delete_key, Auth::admin},
};

constexpr std::size_t kMaxSegments = 8;

// Splits first: an encoded slash belongs to its segment.
std::vector<std::string_view> split(std::string_view path) {
  std::vector<std::string_view> segments;
  if (path.empty() || path.front() != '/') return segments;
  path.remove_prefix(1);
  while (segments.size() <= kMaxSegments) {
    const std::size_t slash = path.find('/');
    segments.push_back(path.substr(0, slash));
    if (slash == std::string_view::npos) break;
    path.remove_prefix(slash + 1);
  }
  return segments;
}

bool fits(std::string_view pattern, const std::vector<std::string_view>& segments,
          std::vector<std::string>& params) {
  params.clear();
  const std::vector<std::string_view> wanted = split(pattern);
  if (wanted.size() != segments.size()) return false;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] != "{}") {
      if (wanted[i] != segments[i]) return false;
      continue;
    }
    auto decoded = percent_decode(segments[i]);
    if (!decoded || decoded->empty()) return false;
    params.push_back(std::move(*decoded));
  }
  return true;
}

}  // namespace

std::span<const Route> all_routes() { return kRoutes; }

bool is_control_path(std::string_view path) {
  const Match match = match_route("GET", path);
  if (match.route != nullptr) return match.route->auth != Auth::none;
  return !match.allow.empty();
}

bool fits_pattern(std::string_view pattern, std::string_view path,
                  std::vector<std::string>& params) {
  return fits(pattern, split(path), params);
}

Match match_route(std::string_view method, std::string_view path) {
  const std::vector<std::string_view> segments = split(path);
  Match match;
  std::vector<std::string> params;
  // Literal patterns come before those with "{}" in the table; a path belongs to the first pattern
  // that fits it.
  std::string_view pattern;
  for (const Route& route : kRoutes) {
    if (!pattern.empty() && route.pattern != pattern) continue;
    if (!fits(route.pattern, segments, params)) continue;
    pattern = route.pattern;
    if (route.method == method) {
      match.route = &route;
      match.params = std::move(params);
      return match;
    }
    if (!match.allow.empty()) match.allow += ", ";
    match.allow += route.method;
  }
  return match;
}

}  // namespace atl::api
