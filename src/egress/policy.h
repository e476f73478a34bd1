// What a sandbox may reach, as the client said it: the `network` object of the API, checked and
// parsed once. The engine stores the JSON, turns it into this, tells the kernel its part
// (`for_kernel`) and the egress proxy the whole (table.h).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ipv4.h"
#include "base/json.h"
#include "base/result.h"
#include "runtime/spec.h"

namespace atl::egress {

// Headers that replace or join those of a request that leaves for a domain.
struct HeaderRule {
  std::string domain;  // lower case; may start with "*."
  std::map<std::string, std::string> headers;
};

struct UpstreamProxy {  // SOCKS5
  std::string host;
  std::uint16_t port = 0;
  std::string username;
  std::string password;
};

struct Policy {
  std::vector<Cidr4> allow;
  std::vector<Cidr4> deny;
  std::vector<std::string> allow_domains;  // lower case, "example.com" or "*.example.com"
  std::vector<HeaderRule> rules;
  std::optional<UpstreamProxy> upstream;

  bool denies_everything_else() const;  // `deny` has 0.0.0.0/0
  // May a connection to this address be made, by addresses alone? Never-reachable ones may not.
  bool allows(Ipv4 address) const;
  bool allows_domain(std::string_view name) const;  // any letter case, no trailing dot
  const HeaderRule* rule_for(std::string_view name) const;
  // May this name be resolved? Everything, unless all traffic is denied: then only what the names
  // allow, so that DNS is no way out.
  bool resolves(std::string_view name) const;
};

// The egress part (allowOut, denyOut, rules, egressProxy) of a SandboxNetworkConfig or
// SandboxNetworkUpdateConfig. `allow_internet == false` is the same as denyOut 0.0.0.0/0.
// invalid_argument in E2B's words.
Result<Policy> parse_policy(const json::object& network, std::optional<bool> allow_internet);

runtime::NetworkPolicy for_kernel(const Policy& policy);

// A host name in lower case without its last dot; nullopt if it is none (an address, odd letters).
std::optional<std::string> canonical_domain(std::string_view text);

// "*.example.com" matches any name below example.com, not itself.
bool domain_matches(std::string_view pattern, std::string_view name);

}  // namespace atl::egress
