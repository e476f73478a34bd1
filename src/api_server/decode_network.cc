// The `network` object: ingress settings here, the egress part by egress::parse_policy.
#include <algorithm>
#include <charconv>

#include "api_server/decode.h"
#include "api_server/fields.h"
#include "egress/policy.h"

namespace atl::api {
namespace {

constexpr std::size_t kMaxHttpsPorts = 100;
constexpr std::int64_t kAgentPort = 49983;

bool is_host_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '-' || c == '_';
}

bool is_port(std::string_view text) {
  std::uint16_t port = 0;
  const auto [stop, ec] = std::from_chars(text.data(), text.data() + text.size(), port);
  return ec == std::errc() && stop == text.data() + text.size() && port != 0;
}

// ASCII host with an optional port; "${PORT}" may stand anywhere in it.
bool is_mask(std::string_view mask) {
  if (mask.size() > 255) return false;
  std::string text(mask);
  constexpr std::string_view kPlace = "${PORT}";
  for (std::size_t at = text.find(kPlace); at != std::string::npos; at = text.find(kPlace)) {
    text.replace(at, kPlace.size(), "80");
  }
  const std::size_t colon = text.find(':');
  const std::string_view host = std::string_view(text).substr(0, colon);
  if (host.empty() || !std::all_of(host.begin(), host.end(), is_host_character)) return false;
  return colon == std::string::npos || is_port(std::string_view(text).substr(colon + 1));
}

Result<void> check_https_ports(const json::object& network) {
  const json::value* ports = present(network, "httpsPorts");
  if (ports == nullptr) return {};
  if (!ports->is_array()) return wrong_type("network.httpsPorts", "an array of ports");
  if (ports->get_array().size() > kMaxHttpsPorts)
    return validation("'network.httpsPorts' has more than 100 entries");
  for (const json::value& port : ports->get_array()) {
    if (!port.is_int64() || port.get_int64() < 1 || port.get_int64() > 65535)
      return wrong_type("network.httpsPorts", "an array of ports from 1 to 65535");
    if (port.get_int64() == kAgentPort)
      return make_error(Errc::invalid_argument, "httpsPorts must not contain the envd port 49983");
  }
  return {};
}

Result<void> check_egress(const json::object& network, std::optional<bool> allow_internet,
                          const Features& features) {
  ATOLL_TRY_ASSIGN(const egress::Policy policy, egress::parse_policy(network, allow_internet));
  if (!policy.rules.empty() && !features.header_rules) {
    return make_error(Errc::invalid_argument,
                      "Network transform rules are not available for your team. This server runs "
                      "without interception.");
  }
  return {};
}

}  // namespace

Result<void> decode_network(const json::object& network, const Features& features,
                            engine::CreateCommand& command) {
  ATOLL_TRY_ASSIGN(command.allow_public_traffic, bool_or(network, "allowPublicTraffic", true));
  if (const json::value* mask = present(network, "maskRequestHost")) {
    if (!mask->is_string() || !is_mask(std::string_view(mask->get_string()))) {
      return wrong_type("network.maskRequestHost", "a host name with an optional port");
    }
    command.mask_request_host = mask->get_string();
  }
  if (!command.allow_public_traffic && !command.secure) {
    return make_error(Errc::invalid_argument,
                      "You cannot create a sandbox without public access unless you enable secure "
                      "envd access via 'secure' flag.");
  }
  ATOLL_TRY(check_https_ports(network));
  ATOLL_TRY(check_egress(network, command.allow_internet, features));
  command.network = json::serialize(network);
  return {};
}

Result<engine::NetworkUpdate> decode_network_update(std::string_view text,
                                                    const Features& features) {
  ATOLL_TRY_ASSIGN(const json::object body, parse_object(text, Body::required));
  engine::NetworkUpdate update;
  ATOLL_TRY_ASSIGN(update.allow_internet, optional_bool(body, "allow_internet_access"));
  ATOLL_TRY(check_egress(body, update.allow_internet, features));
  json::object egress;
  for (const std::string_view field : {"allowOut", "denyOut", "rules", "egressProxy"}) {
    if (const json::value* value = present(body, field)) egress[field] = *value;
  }
  update.egress = json::serialize(egress);
  return update;
}

}  // namespace atl::api
