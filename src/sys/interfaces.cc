#include "sys/interfaces.h"

#include <arpa/inet.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sys/socket.h>

#include <cerrno>

namespace atl::sys {
namespace {

constexpr std::uint16_t kAsk = NLM_F_ACK;

ifinfomsg link_header(const VethEnd& end) {
  ifinfomsg header{};
  header.ifi_family = AF_UNSPEC;
  header.ifi_index = int(end.index);
  if (end.arp == Arp::no) header.ifi_flags |= IFF_NOARP;
  if (end.state == LinkState::up) header.ifi_flags |= IFF_UP;
  header.ifi_change = IFF_NOARP | IFF_UP;
  return header;
}

void add_common(NetlinkAttributes& attributes, const VethEnd& end) {
  attributes.add_text(IFLA_IFNAME, end.name);
  attributes.add(IFLA_ADDRESS, std::as_bytes(std::span(end.mac)));
  attributes.add_u32(IFLA_NUM_TX_QUEUES, 1);
  attributes.add_u32(IFLA_NUM_RX_QUEUES, 1);
  if (end.pid != 0) attributes.add_u32(IFLA_NET_NS_PID, std::uint32_t(end.pid));
  if (end.netns >= 0) attributes.add_u32(IFLA_NET_NS_FD, std::uint32_t(end.netns));
}

sockaddr_in to_sockaddr(Ipv4 address, std::uint16_t port) {
  sockaddr_in out{};
  out.sin_family = AF_INET;
  out.sin_port = htons(port);
  out.sin_addr.s_addr = htonl(address.value);
  return out;
}

Result<UniqueFd> bound_socket(int type, Ipv4 address, std::uint16_t port) {
  UniqueFd fd(::socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return errno_error("socket");
  const int on = 1;
  for (int option : {SO_REUSEADDR, SO_REUSEPORT}) {
    if (::setsockopt(fd.get(), SOL_SOCKET, option, &on, sizeof(on)) != 0)
      return errno_error("setsockopt");
  }
  const sockaddr_in name = to_sockaddr(address, port);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0)
    return errno_error("bind " + address.str());
  return fd;
}

}  // namespace

void add_veth(NetlinkBatch& batch, const VethEnd& here, const VethEnd& there) {
  NetlinkAttributes peer;
  const ifinfomsg peer_header = link_header(there);
  peer.add_raw(std::as_bytes(std::span(&peer_header, 1)));
  add_common(peer, there);
  NetlinkAttributes data;
  data.add_nested(VETH_INFO_PEER, peer);
  NetlinkAttributes info;
  info.add_text(IFLA_INFO_KIND, "veth");
  info.add_nested(IFLA_INFO_DATA, data);
  NetlinkAttributes attributes;
  add_common(attributes, here);
  attributes.add_nested(IFLA_LINKINFO, info);
  batch.add(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL | kAsk, link_header(here), attributes);
}

void set_link_up(NetlinkBatch& batch, unsigned index) {
  ifinfomsg header{};
  header.ifi_family = AF_UNSPEC;
  header.ifi_index = int(index);
  header.ifi_flags = IFF_UP;
  header.ifi_change = IFF_UP;
  batch.add(RTM_NEWLINK, kAsk, header);
}

void delete_link(NetlinkBatch& batch, unsigned index) {
  ifinfomsg header{};
  header.ifi_family = AF_UNSPEC;
  header.ifi_index = int(index);
  batch.add(RTM_DELLINK, kAsk, header);
}

void delete_link(NetlinkBatch& batch, const std::string& name) {
  ifinfomsg header{};
  header.ifi_family = AF_UNSPEC;
  NetlinkAttributes attributes;
  attributes.add_text(IFLA_IFNAME, name);
  batch.add(RTM_DELLINK, kAsk, header, attributes);
}

void add_address(NetlinkBatch& batch, unsigned index, Ipv4 address, std::uint8_t bits) {
  ifaddrmsg header{};
  header.ifa_family = AF_INET;
  header.ifa_prefixlen = bits;
  header.ifa_scope = RT_SCOPE_UNIVERSE;
  header.ifa_index = index;
  NetlinkAttributes attributes;
  attributes.add_be32(IFA_LOCAL, address.value);
  attributes.add_be32(IFA_ADDRESS, address.value);
  batch.add(RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE | kAsk, header, attributes);
}

void add_route(NetlinkBatch& batch, const Cidr4& to, std::optional<Ipv4> via, unsigned index) {
  rtmsg header{};
  header.rtm_family = AF_INET;
  header.rtm_dst_len = to.bits;
  header.rtm_table = RT_TABLE_MAIN;
  header.rtm_protocol = RTPROT_STATIC;
  header.rtm_scope = via ? RT_SCOPE_UNIVERSE : RT_SCOPE_LINK;
  header.rtm_type = RTN_UNICAST;
  NetlinkAttributes attributes;
  if (to.bits != 0) attributes.add_be32(RTA_DST, to.network.value);
  if (via) attributes.add_be32(RTA_GATEWAY, via->value);
  attributes.add_u32(RTA_OIF, index);
  batch.add(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE | kAsk, header, attributes);
}

namespace {

constexpr unsigned kLoopbackIndex = 1;

void change_local_block(NetlinkBatch& batch, std::uint16_t what, std::uint16_t flags,
                        const Cidr4& block) {
  rtmsg header{};
  header.rtm_family = AF_INET;
  header.rtm_dst_len = block.bits;
  header.rtm_table = RT_TABLE_LOCAL;
  header.rtm_protocol = RTPROT_STATIC;
  header.rtm_scope = RT_SCOPE_HOST;
  header.rtm_type = RTN_LOCAL;
  NetlinkAttributes attributes;
  attributes.add_be32(RTA_DST, block.network.value);
  attributes.add_u32(RTA_OIF, kLoopbackIndex);
  batch.add(what, flags | kAsk, header, attributes);
}

}  // namespace

void add_local_block(NetlinkBatch& batch, const Cidr4& block) {
  change_local_block(batch, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, block);
}
void delete_local_block(NetlinkBatch& batch, const Cidr4& block) {
  change_local_block(batch, RTM_DELROUTE, 0, block);
}

unsigned interface_index(const std::string& name) { return ::if_nametoindex(name.c_str()); }

Result<UniqueFd> bound_udp_socket(Ipv4 address, std::uint16_t port) {
  return bound_socket(SOCK_DGRAM, address, port);
}

Result<UniqueFd> listening_tcp_socket(Ipv4 address, std::uint16_t port, int backlog) {
  ATOLL_TRY_ASSIGN(UniqueFd fd, bound_socket(SOCK_STREAM, address, port));
  if (::listen(fd.get(), backlog) != 0) return errno_error("listen");
  return fd;
}

}  // namespace atl::sys
