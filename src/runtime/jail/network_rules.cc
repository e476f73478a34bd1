#include "runtime/jail/network_rules.h"

#include <linux/netfilter.h>
#include <linux/netfilter_ipv4.h>

#include <algorithm>

namespace atl::jail {
namespace {

using Family = NftBatch::Family;
using Policy = NftBatch::Policy;

constexpr const char* kNeverSet = "never";
constexpr const char* kListsMap = "lists";      // address -> its own chain
constexpr const char* kTenantsSet = "tenants";  // address and tenant, of those that are there
constexpr const char* kCountersSet = "connections";
constexpr std::uint32_t kMaxCounters = 65536;
constexpr const char* kRefuse = "refuse";

std::string chain_of(std::uint32_t slot) { return "sandbox" + std::to_string(slot); }

bool covers_all(const std::vector<AddressRange>& ranges) {
  return ranges.size() == 1 && ranges.front() == AddressRange{0, ~std::uint32_t(0)};
}

// Before anything else looks at a packet: who sent it, and may he send at all.
void add_ingress(NftBatch& batch) {
  batch.add_base_chain("ingress", {"filter", NF_INET_PRE_ROUTING, NF_IP_PRI_RAW, Policy::accept});
  batch.rule("ingress", {nft::from(kUplink), nft::accept()});
  batch.rule("ingress", {nft::spoofed(), nft::drop()});
  batch.rule("ingress", {nft::mark_from_source(kRightsMap)});
  batch.rule("ingress", {nft::mark_is_zero(), nft::drop()});
}

// Connections that the server's egress proxy takes over. What is refused below is left as it is.
void add_intercept(NftBatch& batch) {
  batch.add_base_chain("intercept",
                       {"nat", NF_INET_PRE_ROUTING, NF_IP_PRI_NAT_DST, Policy::accept});
  batch.rule("intercept", {nft::from(kUplink), nft::accept()});
  // This chain sees the first packet of every connection and no other.
  batch.rule("intercept", {nft::source_has_more_than(kCountersSet, kMaxConnections), nft::drop()});
  batch.rule("intercept", {nft::remember_mark(kTenantBits)});
  batch.rule("intercept", {nft::destination_is(kGateway), nft::accept()});
  const auto to_proxy = nft::redirect_to(kGateway, kProxyPort);
  // The server's own hosts, by name: for every sandbox, the proxy decides.
  batch.rule("intercept", {nft::destination_is(runtime::kOwnIngressAddress), nft::tcp(), to_proxy});
  batch.rule("intercept", {nft::destination_in(kNeverSet), nft::accept()});
  batch.rule("intercept", {nft::tcp_port(kDnsPort), nft::accept()});
  batch.rule("intercept", {nft::mark_has(kTcpProxy), nft::tcp(), to_proxy});
  for (std::uint16_t port : {80, 443})
    batch.rule("intercept", {nft::mark_has(kWebProxy), nft::tcp_port(port), to_proxy});
}

// To the router itself: the resolver, and the proxy for connections that were sent there by us.
void add_input(NftBatch& batch) {
  batch.add_base_chain("input", {"filter", NF_INET_LOCAL_IN, NF_IP_PRI_FILTER, Policy::drop});
  batch.rule("input", {nft::from(kUplink), nft::drop()});
  batch.rule("input", {nft::tracked(nft::kInvalid), nft::drop()});
  batch.rule("input", {nft::tracked(nft::kEstablished | nft::kRelated),
                       nft::source_remembered(kTenantsSet), nft::accept()});
  batch.rule("input", {nft::tracked(nft::kEstablished | nft::kRelated), nft::drop()});
  batch.rule("input", {nft::destination_is(kGateway), nft::udp_port(kDnsPort), nft::accept()});
  batch.rule("input", {nft::destination_is(kGateway), nft::tcp_port(kDnsPort), nft::accept()});
  batch.rule("input", {nft::tcp_port(kProxyPort), nft::redirected(), nft::accept()});
  batch.rule("input", {nft::go_to(kRefuse)});
}

void add_forward(NftBatch& batch) {
  batch.add_base_chain("forward", {"filter", NF_INET_FORWARD, NF_IP_PRI_FILTER, Policy::drop});
  // Packets that tracking cannot place would leave with their own source address.
  batch.rule("forward", {nft::tracked(nft::kInvalid), nft::drop()});
  batch.rule("forward", {nft::from(kUplink), nft::tracked(nft::kEstablished | nft::kRelated),
                         nft::destination_remembered(kTenantsSet), nft::accept()});
  batch.rule("forward", {nft::from(kUplink), nft::drop()});
  batch.rule("forward", {nft::not_to(kUplink), nft::go_to(kRefuse)});
  batch.rule("forward", {nft::tracked(nft::kEstablished | nft::kRelated),
                         nft::source_remembered(kTenantsSet), nft::accept()});
  batch.rule("forward", {nft::tracked(nft::kEstablished | nft::kRelated), nft::drop()});
  batch.rule("forward", {nft::destination_in(kNeverSet), nft::go_to(kRefuse)});
  batch.rule("forward", {nft::udp_port(kDnsPort), nft::go_to(kRefuse)});
  batch.rule("forward", {nft::tcp_port(kDnsPort), nft::go_to(kRefuse)});
  batch.rule("forward", {nft::mark_has(kTcpProxy), nft::go_to(kRefuse)});
  batch.rule("forward", {nft::mark_has(kOpen), nft::accept()});
  batch.rule("forward", {nft::mark_has(kListed), nft::verdict_by_source(kListsMap)});
  batch.rule("forward", {nft::go_to(kRefuse)});
}

}  // namespace

std::uint32_t rights_of(const runtime::NetworkPolicy& policy) {
  const auto allow = merge_ranges(policy.allow);
  const auto deny = merge_ranges(policy.deny);
  std::uint32_t rights = kMember;
  if (deny.empty() || covers_all(allow)) {
    rights |= kOpen;
  } else if (!allow.empty() || !covers_all(deny)) {
    rights |= kListed;
  }
  if (policy.intercept == runtime::Intercept::web) rights |= kWebProxy;
  if (policy.intercept == runtime::Intercept::tcp) rights |= kTcpProxy;
  return rights;
}

sys::NetlinkBatch router_rules() {
  NftBatch batch(Family::ip, kRouterTable);
  batch.add_table();
  batch.add_range_set(kNeverSet, merge_ranges(never_reachable_blocks()));
  batch.add_mark_map(kRightsMap);
  batch.add_verdict_map(kListsMap);
  batch.add_pair_set(kTenantsSet);
  batch.add_counter_set(kCountersSet, kMaxCounters);
  // A refusal is told at once, so that programs do not wait for nothing.
  batch.add_chain(kRefuse);
  batch.rule(kRefuse, {nft::tcp(), nft::reset_connection()});
  batch.rule(kRefuse, {nft::answer_prohibited()});
  add_ingress(batch);
  add_intercept(batch);
  add_input(batch);
  add_forward(batch);
  batch.add_base_chain("masquerade",
                       {"nat", NF_INET_POST_ROUTING, NF_IP_PRI_NAT_SRC, Policy::accept});
  batch.rule("masquerade", {nft::to(kUplink), nft::masquerade()});

  batch.switch_to(Family::ip6, kRouterTable);
  batch.add_table();
  batch.add_base_chain("input", {"filter", NF_INET_LOCAL_IN, NF_IP_PRI_FILTER, Policy::drop});
  batch.add_base_chain("forward", {"filter", NF_INET_FORWARD, NF_IP_PRI_FILTER, Policy::drop});
  batch.add_base_chain("output", {"filter", NF_INET_LOCAL_OUT, NF_IP_PRI_FILTER, Policy::drop});
  return std::move(batch).finish();
}

sys::NetlinkBatch host_rules(const Link& link) {
  const std::string name = link.name();
  NftBatch batch(Family::ip, name);
  batch.add_table();  // or the next one would fail where there is none
  batch.delete_table();
  batch.add_table();
  // Before the host's own rules can send a packet elsewhere: to none of its addresses, published
  // ports included.
  batch.add_base_chain("ingress",
                       {"filter", NF_INET_PRE_ROUTING, NF_IP_PRI_MANGLE, Policy::accept});
  batch.rule("ingress", {nft::from(name), nft::source_is_not(link.router()), nft::drop()});
  batch.rule("ingress", {nft::from(name), nft::not_unicast(), nft::drop()});
  batch.add_base_chain("input", {"filter", NF_INET_LOCAL_IN, NF_IP_PRI_FILTER, Policy::accept});
  batch.rule("input", {nft::from(name), nft::drop()});
  batch.add_base_chain("forward", {"filter", NF_INET_FORWARD, NF_IP_PRI_FILTER, Policy::accept});
  batch.rule("forward",
             {nft::to(name), nft::tracked(nft::kEstablished | nft::kRelated), nft::accept()});
  batch.rule("forward", {nft::to(name), nft::drop()});
  batch.add_base_chain("masquerade",
                       {"nat", NF_INET_POST_ROUTING, NF_IP_PRI_NAT_SRC, Policy::accept});
  batch.rule("masquerade", {nft::source_is(link.router()), nft::not_to(name), nft::masquerade()});
  return std::move(batch).finish();
}

sys::NetlinkBatch remove_host_rules(const Link& link) {
  NftBatch batch(Family::ip, link.name());
  batch.delete_table();
  return std::move(batch).finish();
}

namespace {

void remove_installed(NftBatch& batch, std::uint32_t slot, std::uint32_t installed) {
  if (installed == 0) return;
  batch.delete_element(kRightsMap, sandbox_address(slot));
  batch.delete_pair(kTenantsSet, sandbox_address(slot), installed & kTenantBits);
  if ((installed & kListed) == 0) return;
  batch.delete_element(kListsMap, sandbox_address(slot));
  batch.delete_chain(chain_of(slot));
}

void add_lists(NftBatch& batch, std::uint32_t slot, const runtime::NetworkPolicy& policy) {
  const std::string chain = chain_of(slot);
  const auto allow = merge_ranges(policy.allow);
  const auto deny = merge_ranges(policy.deny);
  batch.add_chain(chain);
  if (!allow.empty()) {
    const std::uint32_t set = batch.add_unnamed_range_set(allow);
    batch.rule(chain, {nft::destination_in(set), nft::accept()});
  }
  if (!covers_all(deny)) {
    const std::uint32_t set = batch.add_unnamed_range_set(deny);
    batch.rule(chain, {nft::destination_in(set), nft::go_to(kRefuse)});
    batch.rule(chain, {nft::accept()});
  } else {
    batch.rule(chain, {nft::go_to(kRefuse)});
  }
  batch.add_go_to(kListsMap, sandbox_address(slot), chain);
}

}  // namespace

sys::NetlinkBatch install_policy(std::uint32_t slot, const runtime::NetworkPolicy& policy,
                                 std::uint32_t tenant, std::uint32_t installed) {
  const std::uint32_t rights = rights_of(policy);
  NftBatch batch(Family::ip, kRouterTable);
  remove_installed(batch, slot, installed);
  if ((rights & kListed) != 0) add_lists(batch, slot, policy);
  batch.add_pair(kTenantsSet, sandbox_address(slot), tenant & kTenantBits);
  batch.add_mark(kRightsMap, sandbox_address(slot), rights | (tenant & kTenantBits));
  return std::move(batch).finish();
}

sys::NetlinkBatch remove_policy(std::uint32_t slot, std::uint32_t installed) {
  NftBatch batch(Family::ip, kRouterTable);
  remove_installed(batch, slot, installed);
  return std::move(batch).finish();
}

}  // namespace atl::jail
