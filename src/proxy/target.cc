#include "proxy/target.h"

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <charconv>
#include <vector>

#include "base/encoding.h"

namespace atl::proxy {
namespace {

std::string lowered(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
  }
  return out;
}

// Without the port; brackets of an IPv6 literal stay.
std::string_view strip_port(std::string_view host) {
  if (!host.empty() && host.front() == '[') {
    const std::size_t end = host.find(']');
    return end == std::string_view::npos ? host : host.substr(0, end + 1);
  }
  return host.substr(0, host.find(':'));
}

bool is_ip(std::string_view host) {
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  boost::system::error_code ec;
  boost::asio::ip::make_address(std::string(host), ec);
  return !ec;
}

std::optional<std::uint16_t> parse_port(std::string_view text) {
  std::uint16_t port = 0;
  const auto [stop, ec] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (ec != std::errc() || stop != text.data() + text.size() || port == 0 || text.empty())
    return std::nullopt;
  return port;
}

std::string_view before_dash(std::string_view text) { return text.substr(0, text.find('-')); }

// "8000-..." : digits, then a dash.
bool looks_like_sandbox_label(std::string_view label) {
  const std::string_view digits = before_dash(label);
  return !digits.empty() && digits.size() < label.size() &&
         digits.find_first_not_of("0123456789") == std::string_view::npos;
}

bool is_below(std::string_view host, std::string_view domain) {
  return !domain.empty() && host.size() > domain.size() + 1 && host.ends_with(domain) &&
         host[host.size() - domain.size() - 1] == '.';
}

Target make_target(std::string_view id_text, std::string_view port_text) {
  auto id = SandboxId::parse(id_text);
  if (!id) return Malformed{400, "Invalid sandbox ID"};
  const auto port = parse_port(port_text);
  if (!port) return Malformed{400, "Invalid sandbox port"};
  return ToSandbox{std::move(*id), *port};
}

// <port>-<id>[-<anything>]
Target from_label(std::string_view label) {
  const std::string_view port = before_dash(label);
  if (port.size() == label.size()) return Malformed{400, "Invalid host"};
  return make_target(before_dash(label.substr(port.size() + 1)), port);
}

Target from_headers(const net::RequestHead& request, const std::string& host,
                    const TargetRules& rules) {
  const auto id = request.headers.find("E2b-Sandbox-Id");
  const auto port = request.headers.find("E2b-Sandbox-Port");
  const bool has_key = request.headers.has("X-API-Key");
  // Old clients send the sandbox headers on control calls too. A service on another port of a
  // sandbox keeps its own paths.
  if (has_key && (!port || *port == "49983") && rules.is_control_path &&
      rules.is_control_path(request.path()))
    return ToApi{};
  if (id || port) {
    if (!id || !port) return Malformed{400, "missing header"};
    return make_target(before_dash(*id), *port);
  }
  const auto token = request.headers.find("X-Access-Token");
  if (token && !token->empty() && !has_key) return ToTokenOwner{std::string(*token)};
  if (host.starts_with("sandbox.")) return Malformed{400, "Invalid host"};
  return ToApi{};
}

}  // namespace

Target find_target(const net::RequestHead& request, const TargetRules& rules) {
  // CONNECT and absolute targets name another host than the Host header does; the agent's own
  // CONNECT opens any port.
  if (request.method == "CONNECT") return Malformed{405, "CONNECT is not supported"};
  if (!request.target.starts_with('/') && !(request.target == "*" && request.method == "OPTIONS")) {
    return Malformed{400, "Invalid request target"};
  }
  const auto hosts =
      std::count_if(request.headers.begin(), request.headers.end(),
                    [](const auto& field) { return net::iequals(field.name, "Host"); });
  if (hosts > 1) return Malformed{400, "Invalid host"};
  const std::string host = lowered(strip_port(request.headers.get("Host")));
  const std::string domain = lowered(strip_port(rules.domain));

  const std::size_t dot = host.find('.');
  const bool plain = dot == std::string::npos || is_ip(host) || host.starts_with("sandbox.");
  if (!plain) {
    const std::string_view label = std::string_view(host).substr(0, dot);
    if (looks_like_sandbox_label(label)) return from_label(label);
    if (is_below(host, domain) && label != "api") return from_label(label);
  }
  return from_headers(request, host, rules);
}

std::optional<std::string> clean_path(std::string_view path) {
  const auto decoded = percent_decode(path);
  if (!decoded) return std::nullopt;
  std::vector<std::string_view> parts;
  std::string_view rest = *decoded;
  while (!rest.empty()) {
    const std::size_t slash = rest.find('/');
    const std::string_view part = rest.substr(0, slash);
    if (part == "..") {
      if (!parts.empty()) parts.pop_back();
    } else if (!part.empty() && part != ".") {
      parts.push_back(part);
    }
    if (slash == std::string_view::npos) break;
    rest.remove_prefix(slash + 1);
  }
  std::string out;
  for (const std::string_view part : parts) {
    out += '/';
    out += part;
  }
  return out.empty() ? "/" : out;
}

bool is_reserved_route(std::string_view path) {
  constexpr std::string_view kReserved[] = {"/init",     "/warm",   "/suspend",  "/wake",
                                            "/logs",     "/freeze", "/unfreeze", "/collapse",
                                            "/fsfreeze", "/fsthaw", "/upgrade"};
  return std::find(std::begin(kReserved), std::end(kReserved), path) != std::end(kReserved);
}

std::string_view find_smuggling(const net::RequestHead& request) {
  std::optional<std::string_view> length;
  bool chunked = false;
  for (const auto& field : request.headers) {
    if (net::iequals(field.name, "Content-Length")) {
      if (length && *length != field.value) return "several Content-Length headers";
      if (field.value.empty() || field.value.find_first_not_of("0123456789") != std::string::npos) {
        return "malformed Content-Length";
      }
      length = field.value;
    } else if (net::iequals(field.name, "Transfer-Encoding")) {
      if (chunked || !net::iequals(field.value, "chunked")) return "unsupported Transfer-Encoding";
      chunked = true;
    }
  }
  if (length && chunked) return "both Content-Length and Transfer-Encoding";
  if (chunked && request.version < 11) return "Transfer-Encoding in HTTP/1.0";
  return {};
}

}  // namespace atl::proxy
