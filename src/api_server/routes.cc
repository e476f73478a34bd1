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
    {"GET", "/sandboxes/metrics", Action::unsupported, Auth::api_key, "sandbox metrics"},
    {"GET", "/sandboxes/{}", Action::info},
    {"DELETE", "/sandboxes/{}", Action::kill},
    {"POST", "/sandboxes/{}/timeout", Action::set_timeout},
    {"POST", "/sandboxes/{}/refreshes", Action::refresh},
    {"POST", "/sandboxes/{}/connect", Action::connect_v1},
    {"POST", "/v2/sandboxes/{}/connect", Action::connect_v2},
    {"POST", "/sandboxes/{}/pause", Action::unsupported, Auth::api_key, "pausing sandboxes"},
    {"POST", "/sandboxes/{}/resume", Action::unsupported, Auth::api_key, "resuming sandboxes"},
    {"PUT", "/sandboxes/{}/network", Action::unsupported, Auth::api_key,
     "changing the network of a sandbox"},
    {"POST", "/sandboxes/{}/fork", Action::unsupported, Auth::api_key, "forking sandboxes"},
    {"POST", "/sandboxes/{}/snapshots", Action::unsupported, Auth::api_key, "snapshots"},
    {"GET", "/sandboxes/{}/metrics", Action::unsupported, Auth::api_key, "sandbox metrics"},
    {"GET", "/sandboxes/{}/logs", Action::unsupported, Auth::api_key, "sandbox logs"},
    {"GET", "/v2/sandboxes/{}/logs", Action::unsupported, Auth::api_key, "sandbox logs"},
    {"GET", "/snapshots", Action::unsupported, Auth::api_key, "snapshots"},

    {"GET", "/templates", Action::list_templates},
    {"GET", "/v2/templates", Action::list_templates},
    {"GET", "/templates/aliases/{}", Action::find_alias},
    {"POST", "/v3/templates", Action::unsupported, Auth::api_key, "building templates"},
    {"POST", "/v2/templates", Action::unsupported, Auth::api_key, "building templates"},
    {"POST", "/templates", Action::unsupported, Auth::api_key, "building templates"},
    {"GET", "/volumes", Action::unsupported, Auth::api_key, "volumes"},
    {"POST", "/volumes", Action::unsupported, Auth::api_key, "volumes"},
    {"GET", "/secrets", Action::unsupported, Auth::api_key, "secrets"},
    {"POST", "/secrets", Action::unsupported, Auth::api_key, "secrets"},
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
