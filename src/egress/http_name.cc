#include "egress/http_name.h"

#include <algorithm>
#include <charconv>

#include "egress/policy.h"

namespace atl::egress {
namespace {

Error bad(const char* what) { return make_error(Errc::invalid_argument, what); }

// The host of "name", "name:80", "192.0.2.1:80" or "[::1]:80"; nullopt for addresses.
Result<std::optional<std::string>> host_of(std::string_view authority, std::uint16_t port) {
  std::string_view host = authority;
  const std::size_t bracket = authority.rfind(']');
  const std::size_t colon = authority.find(':', bracket == std::string_view::npos ? 0 : bracket);
  if (colon != std::string_view::npos) {
    host = authority.substr(0, colon);
    const std::string_view digits = authority.substr(colon + 1);
    unsigned given = 0;
    const char* end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, given);
    if (error != std::errc() || stop != end || given != port)
      return bad("the Host header names another port than the connection's");
  }
  if (host.starts_with('[') || Ipv4::parse(host)) return std::optional<std::string>();
  auto name = canonical_domain(host);
  if (!name) return bad("the Host header is no host name");
  return std::optional<std::string>(std::move(*name));
}

}  // namespace

Result<std::optional<std::string>> take_request_name(net::RequestHead& head, std::uint16_t port) {
  const auto hosts = std::count_if(head.headers.begin(), head.headers.end(), [](const auto& field) {
    return net::iequals(field.name, "Host");
  });
  if (hosts > 1) return bad("the request has more than one Host header");
  if (head.method == "CONNECT") return bad("CONNECT is not for this port");
  std::optional<std::string> name;
  if (hosts == 1) {
    ATOLL_TRY_ASSIGN(name, host_of(head.headers.get("Host"), port));
  } else if (head.version >= 11) {
    return bad("the request has no Host header");
  }
  if (head.target.starts_with('/') || (head.target == "*" && head.method == "OPTIONS")) return name;

  constexpr std::string_view kScheme = "http://";
  if (!net::iequals(std::string_view(head.target).substr(0, kScheme.size()), kScheme))
    return bad("the request's target is neither a path nor an http URL");
  const std::string_view rest = std::string_view(head.target).substr(kScheme.size());
  const std::size_t end = std::min(rest.find_first_of("/?#"), rest.size());
  ATOLL_TRY_ASSIGN(const auto target, host_of(rest.substr(0, end), port));
  if (hosts != 1 || !target || target != name)
    return bad("the request's target and its Host header name different hosts");
  std::string path(rest.substr(end));
  if (!path.starts_with('/')) path.insert(0, "/");
  head.target = std::move(path);
  return name;
}

}  // namespace atl::egress
