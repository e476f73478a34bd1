// What the packet filter does with the traffic of sandboxes, as transactions for nf_tables. Pure.
//
// Two tables. The one of the router namespace decides what a sandbox reaches: a map gives every
// source address its rights as the packet's mark, so that a new sandbox costs one element however
// many there are; only a policy with lists has a chain of its own. An address that is not in the
// map reaches nothing. The one of the host's namespace hides the router behind an address of the
// host and keeps the host's own addresses out of reach.
#pragma once

#include <cstdint>
#include <string>

#include "base/ipv4.h"
#include "runtime/jail/nft.h"
#include "runtime/spec.h"

namespace atl::jail {

// Addresses. All of them belong to a block that is never routed on the internet and that no sandbox
// reaches (198.18.0.0/15): sandboxes by their slot in the first half, links between routers and
// host namespaces in the second.
inline constexpr Ipv4 kGateway{198u << 24 | 18u << 16 | 1};  // of every sandbox
constexpr Ipv4 sandbox_address(std::uint32_t slot) { return {(198u << 24 | 18u << 16) + slot}; }
inline constexpr Cidr4 kSandboxBlock{{198u << 24 | 18u << 16}, 16};
inline constexpr const char* kInnerInterface = "eth0";
inline constexpr std::uint16_t kDnsPort = 53;
inline constexpr std::uint16_t kProxyPort = 3128;

// Of one sandbox at a time. The tables of router and host are shared by all.
inline constexpr std::uint32_t kMaxConnections = 4096;

// The link between one router and the host's namespace.
inline constexpr std::uint32_t kFirstLink = 1, kEndLink = 16384;
struct Link {
  std::uint32_t number = 0;
  std::string name() const { return "atoll" + std::to_string(number); }  // interface and table
  Ipv4 host() const { return {(198u << 24 | 19u << 16) + number * 4 + 1}; }
  Ipv4 router() const { return {host().value + 1}; }
};

inline constexpr const char* kRouterTable = "atoll";
inline constexpr const char* kUplink = "uplink";        // the router's end of the link
inline constexpr const char* kRightsMap = "sandboxes";  // address -> rights and tenant

// Rights of a sandbox, as bits of the mark of its packets.
inline constexpr std::uint32_t kMember = 1;  // has a policy: may ask for names
inline constexpr std::uint32_t kOpen = 2;    // reaches everything that can be reached
inline constexpr std::uint32_t kListed = 4;  // its own chain decides
inline constexpr std::uint32_t kWebProxy = 8;
inline constexpr std::uint32_t kTcpProxy = 16;
std::uint32_t rights_of(const runtime::NetworkPolicy& policy);
// The other bits tell one tenant of an address from the next: connections are those of the tenant
// who made them and end with him.
inline constexpr std::uint32_t kTenantBits = 0xffffff00;

// Everything of the router, as one transaction: its presence shows that the router is complete.
sys::NetlinkBatch router_rules();
// Replaces what is there.
sys::NetlinkBatch host_rules(const Link& link);
sys::NetlinkBatch remove_host_rules(const Link& link);
// `installed`: the mark (rights and tenant) that the slot has now, 0 = none.
sys::NetlinkBatch install_policy(std::uint32_t slot, const runtime::NetworkPolicy& policy,
                                 std::uint32_t tenant, std::uint32_t installed);
sys::NetlinkBatch remove_policy(std::uint32_t slot, std::uint32_t installed);

}  // namespace atl::jail
