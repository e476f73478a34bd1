// Network interfaces, addresses and routes: requests for a NetlinkSocket of NETLINK_ROUTE, and
// sockets that are made in a namespace. IPv4 only.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "base/ipv4.h"
#include "sys/netlink.h"

namespace atl::sys {

using MacAddress = std::array<std::uint8_t, 6>;

enum class Arp : std::uint8_t { yes, no };
enum class LinkState : std::uint8_t { down, up };

// One end of a pair of virtual interfaces. Without `pid` or `netns` it is in the namespace of the
// socket that carries the request.
struct VethEnd {
  std::string name;
  unsigned index = 0;  // 0: the kernel chooses
  MacAddress mac{};
  Arp arp = Arp::no;
  LinkState state = LinkState::down;
  pid_t pid = 0;   // in the network namespace of this process
  int netns = -1;  // in this one
};
// If `here` has an index, `there` may have one.
void add_veth(NetlinkBatch& batch, const VethEnd& here, const VethEnd& there);
void set_link_up(NetlinkBatch& batch, unsigned index);
void delete_link(NetlinkBatch& batch, unsigned index);
void delete_link(NetlinkBatch& batch, const std::string& name);
// Fine if it is there already.
void add_address(NetlinkBatch& batch, unsigned index, Ipv4 address, std::uint8_t bits);
// Replaces a route to the same block.
void add_route(NetlinkBatch& batch, const Cidr4& to, std::optional<Ipv4> via, unsigned index);
// All addresses of a block are this machine's own, or no more.
void add_local_block(NetlinkBatch& batch, const Cidr4& block);
void delete_local_block(NetlinkBatch& batch, const Cidr4& block);

// In the caller's namespace; 0 = there is none of that name.
unsigned interface_index(const std::string& name);

// Bound sockets of the caller's network namespace. Several may have the same address.
Result<UniqueFd> bound_udp_socket(Ipv4 address, std::uint16_t port);
Result<UniqueFd> listening_tcp_socket(Ipv4 address, std::uint16_t port, int backlog);

}  // namespace atl::sys
