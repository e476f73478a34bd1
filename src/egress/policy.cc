#include "egress/policy.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

namespace atl::egress {
namespace {

constexpr std::size_t kMaxRuleDomains = 10;
constexpr std::size_t kMaxRuleDomainLength = 128;
constexpr std::size_t kMaxHeaders = 20;
constexpr std::size_t kMaxHeaderName = 64;
constexpr std::size_t kMaxHeaderValue = 2048;
constexpr std::size_t kMaxSecretsPerDomain = 32;
constexpr std::size_t kMaxCredential = 255;  // RFC 1929 counts in one byte
constexpr std::size_t kMaxName = 253;
constexpr std::size_t kMaxLabel = 63;

// Where a message ends or what it is about; a rule that sets one of these would change the framing
// or the destination of the request behind the filter's back.
constexpr std::array<std::string_view, 10> kForbiddenHeaders = {
    "host", "connection", "content-length",      "transfer-encoding", "upgrade",
    "te",   "trailer",    "proxy-authorization", "keep-alive",        "proxy-connection"};

Error bad(std::string message) { return make_error(Errc::invalid_argument, std::move(message)); }

bool is_alnum(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; }

std::string lowered(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), lower);
  return out;
}

bool is_label(std::string_view label) {
  if (label.empty() || label.size() > kMaxLabel) return false;
  if (label.front() == '-' || label.back() == '-') return false;
  return std::all_of(label.begin(), label.end(),
                     [](char c) { return is_alnum(c) || c == '-' || c == '_'; });
}

// A name in DNS's letters, whose last label is no number: "10.0.0.300" is a mistake, not a name.
bool is_domain(std::string_view name) {
  if (name.empty() || name.size() > kMaxName) return false;
  std::string_view last;
  for (std::size_t from = 0; from <= name.size();) {
    const std::size_t dot = std::min(name.find('.', from), name.size());
    last = name.substr(from, dot - from);
    if (!is_label(last)) return false;
    from = dot + 1;
  }
  return !std::all_of(last.begin(), last.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Lower case, without the dot that says "absolute"; nullopt if it is neither a name nor "*.name".
std::optional<std::string> canonical_pattern(std::string_view text) {
  std::string pattern = lowered(text);
  if (pattern.ends_with('.')) pattern.pop_back();
  std::string_view name = pattern;
  if (name.starts_with("*.")) name.remove_prefix(2);
  if (!is_domain(name)) return std::nullopt;
  return pattern;
}

bool is_token(std::string_view text) {
  constexpr std::string_view kOthers = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return is_alnum(c) || kOthers.find(c) != std::string_view::npos;
  });
}

bool is_header_value(std::string_view value) {
  if (value != std::string_view() && (value.front() == ' ' || value.back() == ' ')) return false;
  return std::all_of(value.begin(), value.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return c == '\t' || (byte >= 0x20 && byte != 0x7f);
  });
}

// A field that is absent and one that is null are the same.
const json::value* field(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

Result<std::vector<std::string>> strings(const json::object& network, std::string_view name) {
  std::vector<std::string> out;
  const json::value* value = field(network, name);
  if (value == nullptr) return out;
  const json::array* array = value->if_array();
  if (array == nullptr)
    return bad("validation error: network." + std::string(name) + " must be an array of strings");
  if (array->size() > runtime::kMaxNetworkEntries) {
    return bad("network." + std::string(name) + " can have at most " +
               std::to_string(runtime::kMaxNetworkEntries) + " entries.");
  }
  for (const json::value& item : *array) {
    const json::string* text = item.if_string();
    if (text == nullptr)
      return bad("validation error: network." + std::string(name) + " must be an array of strings");
    out.emplace_back(text->data(), text->size());
  }
  return out;
}

// "0.0.0.0" alone is no address that anybody can mean; "0.0.0.0/0" is everything.
std::optional<Cidr4> parse_block(std::string_view text) {
  auto block = Cidr4::parse(text);
  if (block && block->network.value == 0 && block->bits != 0) return std::nullopt;
  return block;
}

template <class T>
void add_once(std::vector<T>& list, T item) {
  if (std::find(list.begin(), list.end(), item) == list.end()) list.push_back(std::move(item));
}

Result<void> parse_lists(const json::object& network, Policy& policy) {
  ATOLL_TRY_ASSIGN(const auto denied, strings(network, "denyOut"));
  for (const std::string& item : denied) {
    const auto block = parse_block(item);
    if (!block) return bad("invalid denied CIDR " + item);
    add_once(policy.deny, *block);
  }
  ATOLL_TRY_ASSIGN(const auto allowed, strings(network, "allowOut"));
  for (const std::string& item : allowed) {
    if (const auto block = parse_block(item)) {
      add_once(policy.allow, *block);
    } else if (auto domain = canonical_pattern(item)) {
      add_once(policy.allow_domains, std::move(*domain));
    } else {
      return bad("invalid allowed address or domain " + item);
    }
  }
  if (!policy.allow_domains.empty() && !policy.denies_everything_else()) {
    return bad(
        "When specifying allowed domains in allow out, you must include 'ALL_TRAFFIC' in deny out "
        "to block all other traffic.");
  }
  return {};
}

bool is_placeholder_name(std::string_view name) {
  return !name.empty() && name.size() <= 128 && std::all_of(name.begin(), name.end(), [](char c) {
    return is_alnum(c) || c == '_' || c == '-';
  });
}

// Values that are put in on the way out. A well-formed one names something that must exist; the
// text of a placeholder never leaves in its place.
Result<void> check_placeholders(std::string_view value, std::set<std::string>& secrets) {
  constexpr std::string_view kOpen = "${e2b.";
  constexpr std::string_view kSecret = "secrets.";
  constexpr std::string_view kToken = "identity.tokens.";
  for (std::size_t at = value.find(kOpen); at != std::string_view::npos;
       at = value.find(kOpen, at)) {
    const std::size_t end = value.find('}', at);
    const std::string_view inside = end == std::string_view::npos
                                        ? std::string_view()
                                        : value.substr(at + kOpen.size(), end - at - kOpen.size());
    if (inside.starts_with(kSecret) && is_placeholder_name(inside.substr(kSecret.size()))) {
      secrets.emplace(inside.substr(kSecret.size()));
    } else if (inside.starts_with(kToken) && is_placeholder_name(inside.substr(kToken.size()))) {
      return bad("Identity token \"" + std::string(inside.substr(kToken.size())) +
                 "\" is not configured for this sandbox.");
    } else {
      return bad("Malformed placeholder in a header value of the network rules.");
    }
    at = end;
  }
  return {};
}

Result<HeaderRule> parse_rule(std::string domain, const json::value& value) {
  HeaderRule rule;
  const std::string where = "Rule for domain \"" + domain + "\"";
  const json::array* list = value.if_array();
  if (list == nullptr) return bad("validation error: network.rules must map a domain to an array");
  if (list->size() > 1) return bad(where + ": at most one rule per domain is supported.");
  rule.domain = std::move(domain);
  if (list->empty()) return rule;
  const json::object* item = list->front().if_object();
  if (item == nullptr) return bad("validation error: a network rule must be an object");
  const json::value* transform = field(*item, "transform");
  if (transform == nullptr) return rule;
  if (!transform->is_object()) return bad("validation error: transform must be an object");
  const json::value* headers = field(transform->as_object(), "headers");
  if (headers == nullptr) return rule;
  if (!headers->is_object()) return bad("validation error: transform.headers must be an object");
  if (headers->as_object().size() > kMaxHeaders) {
    return bad(where + " can have at most " + std::to_string(kMaxHeaders) + " headers.");
  }
  std::set<std::string> seen;
  std::set<std::string> secrets;
  for (const auto& [key, content] : headers->as_object()) {
    const std::string name(key.data(), key.size());
    if (name.size() > kMaxHeaderName || !is_token(name))
      return bad(where + ": \"" + name.substr(0, kMaxHeaderName) +
                 "\" is not a valid header name.");
    const std::string plain = lowered(name);
    if (std::find(kForbiddenHeaders.begin(), kForbiddenHeaders.end(), plain) !=
        kForbiddenHeaders.end()) {
      return bad(where + ": header \"" + name + "\" cannot be set by a rule.");
    }
    if (!seen.insert(plain).second)
      return bad(where + ": header \"" + name + "\" is given more than once.");
    const json::string* text = content.if_string();
    if (text == nullptr) return bad("validation error: header values must be strings");
    const std::string header_value(text->data(), text->size());
    if (header_value.size() > kMaxHeaderValue) {
      return bad(where + ": the value of header \"" + name + "\" is longer than " +
                 std::to_string(kMaxHeaderValue) + " bytes.");
    }
    if (!is_header_value(header_value))
      return bad(where + ": the value of header \"" + name +
                 "\" has characters that no header has.");
    ATOLL_TRY(check_placeholders(header_value, secrets));
    rule.headers.emplace(name, header_value);
  }
  if (secrets.size() > kMaxSecretsPerDomain) {
    return bad(where + " can use at most " + std::to_string(kMaxSecretsPerDomain) + " secrets.");
  }
  if (!secrets.empty()) return bad("Secret \"" + *secrets.begin() + "\" not found.");
  return rule;
}

Result<void> parse_rules(const json::object& network, Policy& policy) {
  const json::value* value = field(network, "rules");
  if (value == nullptr) return {};
  const json::object* rules = value->if_object();
  if (rules == nullptr) return bad("validation error: network.rules must be an object");
  if (rules->size() > kMaxRuleDomains) {
    return bad("Network rules can have at most " + std::to_string(kMaxRuleDomains) + " domains.");
  }
  for (const auto& [key, content] : *rules) {
    const std::string text(key.data(), key.size());
    if (text.empty()) return bad("Rule domain cannot be empty.");
    if (text.size() > kMaxRuleDomainLength) {
      return bad("Rule domain \"" + text.substr(0, kMaxRuleDomainLength) + "\" is longer than " +
                 std::to_string(kMaxRuleDomainLength) + " characters.");
    }
    auto domain = canonical_pattern(text);
    if (!domain) return bad("Rule domain \"" + text + "\" is not a valid domain name.");
    const bool known = std::any_of(policy.rules.begin(), policy.rules.end(),
                                   [&](const HeaderRule& rule) { return rule.domain == *domain; });
    if (known) return bad("Rule domain \"" + text + "\" is given more than once.");
    ATOLL_TRY_ASSIGN(HeaderRule rule, parse_rule(std::move(*domain), content));
    policy.rules.push_back(std::move(rule));
  }
  // A rule without headers changes nothing.
  std::erase_if(policy.rules, [](const HeaderRule& rule) { return rule.headers.empty(); });
  return {};
}

Result<std::string> credential(const json::object& object, std::string_view name) {
  const json::value* value = field(object, name);
  if (value == nullptr) return std::string();
  const json::string* text = value->if_string();
  if (text == nullptr)
    return bad("validation error: egressProxy." + std::string(name) + " must be a string");
  if (text->size() > kMaxCredential) {
    return bad("Egress proxy " + std::string(name) + " must be at most " +
               std::to_string(kMaxCredential) + " bytes.");
  }
  return std::string(text->data(), text->size());
}

Result<void> parse_upstream(const json::object& network, Policy& policy) {
  const json::value* value = field(network, "egressProxy");
  if (value == nullptr) return {};
  const json::object* object = value->if_object();
  if (object == nullptr) return bad("validation error: network.egressProxy must be an object");
  const json::value* address = field(*object, "address");
  if (address == nullptr || !address->is_string())
    return bad("validation error: egressProxy.address is required");
  const std::string text(address->as_string().data(), address->as_string().size());
  const std::size_t colon = text.rfind(':');
  const std::string host = text.substr(0, std::min(colon, text.size()));
  unsigned port = 0;
  if (colon != std::string::npos) {
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, port);
    if (error != std::errc() || stop != end) port = 0;
  }
  if (port == 0 || port > 65535 || host.empty())
    return bad("Egress proxy address \"" + text + "\" must be host:port.");
  if (const auto ip = Ipv4::parse(host)) {
    if (is_never_reachable(*ip))
      return bad("Egress proxy address \"" + text + "\" is not a public address.");
  } else if (!is_domain(host)) {
    return bad("Egress proxy address \"" + text + "\" must be host:port.");
  }
  UpstreamProxy upstream;
  upstream.host = lowered(host);
  upstream.port = std::uint16_t(port);
  ATOLL_TRY_ASSIGN(upstream.username, credential(*object, "username"));
  ATOLL_TRY_ASSIGN(upstream.password, credential(*object, "password"));
  if (!upstream.password.empty() && upstream.username.empty())
    return bad("Egress proxy password requires a username.");
  policy.upstream = std::move(upstream);
  return {};
}

bool any_contains(const std::vector<Cidr4>& blocks, Ipv4 address) {
  return std::any_of(blocks.begin(), blocks.end(),
                     [&](const Cidr4& block) { return block.contains(address); });
}

}  // namespace

bool Policy::denies_everything_else() const {
  return std::any_of(deny.begin(), deny.end(), [](const Cidr4& block) { return block.bits == 0; });
}

bool Policy::allows(Ipv4 address) const {
  if (is_never_reachable(address)) return false;
  return any_contains(allow, address) || !any_contains(deny, address);
}

bool Policy::allows_domain(std::string_view name) const {
  return std::any_of(allow_domains.begin(), allow_domains.end(),
                     [&](const std::string& pattern) { return domain_matches(pattern, name); });
}

// An exact name before a wildcard, a longer wildcard before a shorter one.
const HeaderRule* Policy::rule_for(std::string_view name) const {
  const HeaderRule* best = nullptr;
  for (const HeaderRule& rule : rules) {
    if (!domain_matches(rule.domain, name)) continue;
    if (!rule.domain.starts_with("*.")) return &rule;
    if (best == nullptr || rule.domain.size() > best->domain.size()) best = &rule;
  }
  return best;
}

bool Policy::resolves(std::string_view name) const {
  return !denies_everything_else() || allows_domain(name);
}

Result<Policy> parse_policy(const json::object& network, std::optional<bool> allow_internet) {
  Policy policy;
  if (allow_internet == false) policy.deny.push_back(Cidr4{Ipv4{0}, 0});
  ATOLL_TRY(parse_lists(network, policy));
  ATOLL_TRY(parse_rules(network, policy));
  ATOLL_TRY(parse_upstream(network, policy));
  return policy;
}

runtime::NetworkPolicy for_kernel(const Policy& policy) {
  runtime::NetworkPolicy out;
  out.allow = policy.allow;
  out.deny = policy.deny;
  if (policy.upstream)
    out.intercept = runtime::Intercept::tcp;
  else if (!policy.allow_domains.empty() || !policy.rules.empty())
    out.intercept = runtime::Intercept::web;
  return out;
}

std::optional<std::string> canonical_domain(std::string_view text) {
  auto name = canonical_pattern(text);
  if (name && name->starts_with("*.")) return std::nullopt;
  return name;
}

bool domain_matches(std::string_view pattern, std::string_view name) {
  const auto same = [](std::string_view a, std::string_view b) {
    return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(),
                                              [](char x, char y) { return lower(x) == lower(y); });
  };
  if (!pattern.starts_with("*.")) return same(pattern, name);
  pattern.remove_prefix(1);
  return name.size() > pattern.size() && same(pattern, name.substr(name.size() - pattern.size()));
}

}  // namespace atl::egress
