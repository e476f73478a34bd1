#include "runtime/jail/network.h"

#include <fcntl.h>
#include <linux/netlink.h>
#include <sched.h>

#include <cerrno>
#include <cstring>

#include "base/ids.h"
#include "base/log.h"
#include "sys/files.h"
#include "sys/interfaces.h"
#include "sys/namespaces.h"

namespace atl::jail {
namespace {

constexpr unsigned kLoopback = 1;
constexpr unsigned kUplinkIndex = 2;
constexpr unsigned kInnerIndex = 2;
constexpr int kBacklog = 1024;
// Both ends of a pair have the same: frames are sent to the address of the sender.
constexpr sys::MacAddress kUplinkMac = {0x02, 0x61, 0x74, 0xff, 0xff, 0xff};
sys::MacAddress mac_of(std::uint32_t slot) {
  return {0x02, 0x61, 0x74, std::uint8_t(slot >> 16), std::uint8_t(slot >> 8), std::uint8_t(slot)};
}

std::string pin_path(const std::string& name) { return std::string(kPinsDir) + "/" + name; }

Result<void> set_sysctl(const std::string& path, const std::string& value) {
  ATOLL_TRY_ASSIGN(sys::UniqueFd file, sys::open_trusted("/proc/sys/net/" + path, O_WRONLY));
  return sys::write_value(file, value);
}

// Where the kernel has no IPv6 there is nothing to switch off.
Result<void> disable_ipv6(const std::string& interface) {
  auto done = set_sysctl("ipv6/conf/" + interface + "/disable_ipv6", "1");
  if (!done && done.error().sys_errno == ENOENT) return {};
  return done;
}

// Preconditions: in the router's namespace.
Result<void> set_router_sysctls() {
  for (const char* scope : {"all", "default"}) {
    ATOLL_TRY(disable_ipv6(scope));
    const std::string conf = "ipv4/conf/" + std::string(scope) + "/";
    ATOLL_TRY(set_sysctl(conf + "rp_filter", "1"));
    ATOLL_TRY(set_sysctl(conf + "send_redirects", "0"));
    ATOLL_TRY(set_sysctl(conf + "accept_redirects", "0"));
    ATOLL_TRY(set_sysctl(conf + "accept_source_route", "0"));
  }
  return set_sysctl("ipv4/ip_forward", "1");
}

Result<void> forward_on_the_host() {
  ATOLL_TRY_ASSIGN(std::string now, sys::read_trusted("/proc/sys/net/ipv4/ip_forward"));
  if (now.starts_with("1")) return {};
  ATOLL_TRY(set_sysctl("ipv4/ip_forward", "1"));
  log::info("net.ipv4.ip_forward was off and is on now: sandboxes reach the internet by it");
  return {};
}

Result<void> ignoring(Result<void> result, std::initializer_list<int> numbers) {
  if (result) return result;
  for (int number : numbers) {
    if (result.error().sys_errno == number) return {};
  }
  return result;
}

Result<void> delete_interface(sys::NetlinkSocket& socket, const std::string& name) {
  sys::NetlinkBatch batch;
  sys::delete_link(batch, name);
  return ignoring(socket.send(batch), {ENODEV});
}

// What servers whose home is gone have left in this network namespace and on this machine.
void sweep_orphans(Ranges& links, const sys::UniqueFd& mounts, sys::NetlinkSocket& route,
                   sys::NetlinkSocket& filter) {
  for (const OrphanSlot& orphan : links.orphans()) {
    const Link link{orphan.slot};
    auto swept = [&]() -> Result<void> {
      ATOLL_TRY(ignoring(filter.send(remove_host_rules(link)), {ENOENT}));
      ATOLL_TRY(delete_interface(route, link.name()));
      ATOLL_TRY_ASSIGN(auto there, sys::InNamespace::enter(mounts, CLONE_NEWNS));
      ATOLL_TRY(
          sys::unpin_namespace(pin_path(instance_name(orphan.owner.home, orphan.owner.instance))));
      return links.give_back(orphan.slot);
    }();
    if (!swept)
      log::warn("cannot remove the network of a server whose home is gone",
                {{"home", orphan.owner.home}, {"error", swept.error().message}});
  }
}

}  // namespace

Network::Network(std::string name, sys::UniqueFd mounts, Ranges links, sys::UniqueFd host_netns,
                 sys::UniqueFd netns, sys::NetlinkSocket host_route, sys::NetlinkSocket host_filter,
                 sys::NetlinkSocket route, sys::NetlinkSocket filter, Link link)
    : name_(std::move(name)),
      mounts_(std::move(mounts)),
      links_(std::move(links)),
      host_netns_(std::move(host_netns)),
      netns_(std::move(netns)),
      host_route_(std::move(host_route)),
      host_filter_(std::move(host_filter)),
      route_(std::move(route)),
      filter_(std::move(filter)),
      link_(link) {}

Result<std::unique_ptr<Network>> Network::open(const NetworkPlace& place) {
  ATOLL_TRY_ASSIGN(Ranges links,
                   Ranges::open(kLinksDir, place.home, place.instance, {kFirstLink, kEndLink}));
  ATOLL_TRY_ASSIGN(sys::UniqueFd host_netns, sys::own_namespace("net"));
  ATOLL_TRY_ASSIGN(sys::NetlinkSocket host_route, sys::NetlinkSocket::open(NETLINK_ROUTE));
  ATOLL_TRY_ASSIGN(sys::NetlinkSocket host_filter, sys::NetlinkSocket::open(NETLINK_NETFILTER));
  sweep_orphans(links, place.host_mounts, host_route, host_filter);

  // In this order: whatever exists is found again by its slot after a crash at any point.
  ATOLL_TRY_ASSIGN(std::vector<TakenSlot> mine, links.mine());
  Link link;
  if (!mine.empty()) {
    link.number = mine.front().slot;
  } else {
    ATOLL_TRY_ASSIGN(link.number, links.take("router"));
  }
  sys::UniqueFd netns;
  {
    ATOLL_TRY_ASSIGN(auto there, sys::InNamespace::enter(place.host_mounts, CLONE_NEWNS));
    auto found = sys::open_pinned(pin_path(place.name));
    if (found) {
      netns = std::move(*found);
    } else if (found.error().code != Errc::not_found) {
      return std::move(found).error();
    }
  }
  if (!netns) {
    ATOLL_TRY_ASSIGN(netns, sys::new_network_namespace());
    ATOLL_TRY_ASSIGN(auto there, sys::InNamespace::enter(place.host_mounts, CLONE_NEWNS));
    ATOLL_TRY(sys::unpin_namespace(pin_path(place.name)));
    ATOLL_TRY(sys::pin_namespace(netns, pin_path(place.name)));
  }
  auto sockets = [&]() -> Result<std::pair<sys::NetlinkSocket, sys::NetlinkSocket>> {
    ATOLL_TRY_ASSIGN(auto inside, sys::InNamespace::enter(netns, CLONE_NEWNET));
    ATOLL_TRY(set_router_sysctls());
    ATOLL_TRY_ASSIGN(sys::NetlinkSocket route, sys::NetlinkSocket::open(NETLINK_ROUTE));
    ATOLL_TRY_ASSIGN(sys::NetlinkSocket filter, sys::NetlinkSocket::open(NETLINK_NETFILTER));
    return std::pair(std::move(route), std::move(filter));
  }();
  if (!sockets) return std::move(sockets).error();
  std::unique_ptr<Network> network(new Network(
      place.name, sys::duplicate(place.host_mounts), std::move(links), std::move(host_netns),
      std::move(netns), std::move(host_route), std::move(host_filter), std::move(sockets->first),
      std::move(sockets->second), link));
  ATOLL_TRY_ASSIGN(bool complete, network->load_installed());
  ATOLL_TRY(network->set_up_uplink());
  if (!complete) {
    ATOLL_TRY(network->filter_.send(router_rules()));
  }
  return network;
}

// A router without its table was being made when its warden ended. Nothing but the table tells a
// sandbox's packets from others, and it comes last, so there is no sandbox yet.
Result<bool> Network::load_installed() {
  auto dumped = filter_.dump(dump_elements(NftBatch::Family::ip, kRouterTable, kRightsMap),
                             [this](std::uint16_t /*type*/, std::span<const std::byte> body) {
                               for (const MarkElement& element : parse_marks(body))
                                 installed_[element.key.value - sandbox_address(0).value] =
                                     element.mark;
                             });
  if (dumped) return true;
  if (dumped.error().sys_errno == ENOENT) return false;
  return std::move(dumped).error();
}

Result<void> Network::set_up_uplink() {
  const unsigned there = sys::interface_index(link_.name());
  unsigned here = 0;
  {
    ATOLL_TRY_ASSIGN(auto inside, sys::InNamespace::enter(netns_, CLONE_NEWNET));
    here = sys::interface_index(kUplink);
  }
  if (there == 0 || here == 0) {
    ATOLL_TRY(delete_interface(host_route_, link_.name()));
    ATOLL_TRY(delete_interface(route_, kUplink));
    sys::NetlinkBatch batch;
    sys::add_veth(
        batch, {kUplink, kUplinkIndex, kUplinkMac, sys::Arp::no, sys::LinkState::up},
        {link_.name(), 0, kUplinkMac, sys::Arp::no, sys::LinkState::down, 0, host_netns_.get()});
    ATOLL_TRY(route_.send(batch));
  }
  // The rules first: no packet passes without them.
  ATOLL_TRY(host_filter_.send(host_rules(link_)));
  ATOLL_TRY(disable_ipv6(link_.name()));
  const unsigned index = sys::interface_index(link_.name());
  sys::NetlinkBatch outside;
  sys::add_address(outside, index, link_.host(), 30);
  sys::set_link_up(outside, index);
  ATOLL_TRY(host_route_.send(outside));
  ATOLL_TRY(forward_on_the_host());

  sys::NetlinkBatch inside;
  sys::set_link_up(inside, kLoopback);
  sys::add_address(inside, kLoopback, kGateway, 32);
  sys::add_address(inside, kUplinkIndex, link_.router(), 30);
  sys::add_route(inside, Cidr4{Ipv4{0}, 0}, link_.host(), kUplinkIndex);
  return route_.send(inside);
}

Result<void> Network::apply(std::uint32_t slot, const runtime::NetworkPolicy& policy,
                            Tenant tenant) {
  const auto known = installed_.find(slot);
  const std::uint32_t before = known == installed_.end() ? 0 : known->second;
  std::uint32_t bits = before & kTenantBits;
  if (tenant == Tenant::fresh || before == 0) {
    const std::string random = random_bytes(sizeof(bits));
    std::memcpy(&bits, random.data(), sizeof(bits));
    bits &= kTenantBits;
  }
  ATOLL_TRY(filter_.send(install_policy(slot, policy, bits, before)));
  installed_[slot] = rights_of(policy) | bits;
  return {};
}

Result<void> Network::connect(std::uint32_t slot, pid_t pid) {
  sys::NetlinkBatch batch;
  // The number of the slot is the interface's too, so that nobody has to ask for it.
  sys::add_veth(
      batch, {"s" + std::to_string(slot), slot, mac_of(slot), sys::Arp::no, sys::LinkState::up},
      {kInnerInterface, kInnerIndex, mac_of(slot), sys::Arp::no, sys::LinkState::down, pid});
  sys::add_route(batch, Cidr4{sandbox_address(slot), 32}, std::nullopt, slot);
  auto made = route_.send(batch);
  if (made || (made.error().sys_errno != EEXIST && made.error().sys_errno != EBUSY)) return made;
  // Of a sandbox that ended in this slot a moment ago: the kernel removes namespaces in its own
  // time.
  ATOLL_TRY(delete_interfaces(slot));
  return route_.send(batch);
}

Result<void> Network::delete_interfaces(std::uint32_t slot) {
  sys::NetlinkBatch batch;
  sys::delete_link(batch, slot);
  return ignoring(route_.send(batch), {ENODEV});
}

Result<void> Network::remove(std::uint32_t slot) {
  const auto known = installed_.find(slot);
  if (known == installed_.end()) return {};
  ATOLL_TRY(filter_.send(remove_policy(slot, known->second)));
  installed_.erase(known);
  return {};
}

Result<void> Network::disconnect(std::uint32_t slot) {
  ATOLL_TRY(remove(slot));
  return delete_interfaces(slot);
}

Result<void> Network::keep_only(const std::set<std::uint32_t>& slots) {
  const auto installed = installed_;
  for (const auto& [slot, rights] : installed) {
    if (slots.contains(slot)) continue;
    ATOLL_TRY(disconnect(slot));
  }
  return {};
}

Result<std::array<sys::UniqueFd, 3>> Network::egress_sockets() {
  ATOLL_TRY_ASSIGN(auto inside, sys::InNamespace::enter(netns_, CLONE_NEWNET));
  std::array<sys::UniqueFd, 3> out;
  ATOLL_TRY_ASSIGN(out[0], sys::bound_udp_socket(kGateway, kDnsPort));
  ATOLL_TRY_ASSIGN(out[1], sys::listening_tcp_socket(kGateway, kDnsPort, kBacklog));
  ATOLL_TRY_ASSIGN(out[2], sys::listening_tcp_socket(kGateway, kProxyPort, kBacklog));
  return out;
}

Result<void> Network::close_down() {
  ATOLL_TRY(delete_interface(host_route_, link_.name()));
  ATOLL_TRY(ignoring(host_filter_.send(remove_host_rules(link_)), {ENOENT}));
  {
    ATOLL_TRY_ASSIGN(auto there, sys::InNamespace::enter(mounts_, CLONE_NEWNS));
    ATOLL_TRY(sys::unpin_namespace(pin_path(name_)));
  }
  return links_.give_back(link_.number);
}

Result<void> bring_up_inside(Ipv4 address) {
  ATOLL_TRY_ASSIGN(sys::NetlinkSocket route, sys::NetlinkSocket::open(NETLINK_ROUTE));
  sys::NetlinkBatch batch;
  sys::add_address(batch, kInnerIndex, address, 32);
  sys::set_link_up(batch, kInnerIndex);
  sys::add_route(batch, Cidr4{kGateway, 32}, std::nullopt, kInnerIndex);
  sys::add_route(batch, Cidr4{Ipv4{0}, 0}, kGateway, kInnerIndex);
  return route.send(batch);
}

Result<void> allow_foreign_addresses(bool allowed) {
  ATOLL_TRY_ASSIGN(sys::NetlinkSocket route, sys::NetlinkSocket::open(NETLINK_ROUTE));
  sys::NetlinkBatch batch;
  allowed ? sys::add_local_block(batch, kSandboxBlock)
          : sys::delete_local_block(batch, kSandboxBlock);
  return route.send(batch);
}

}  // namespace atl::jail
