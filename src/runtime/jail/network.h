// Network: the router of one warden, through which all traffic of its sandboxes passes.
//
// Theory of operation. The router is a network namespace without processes. Every sandbox has a
// pair of virtual interfaces: `eth0` inside, `sSLOT` in the router, where a route for its one
// address leads to it. Neither end speaks ARP and both have the same hardware address, so there is
// nobody to ask and nothing to forge. The gateway's address is the router's own; behind it are the
// sockets that the server answers DNS and intercepted connections on. One more pair, the uplink,
// joins the router with the network namespace in which the warden was started. The rules are those
// of network_rules.h.
//
// The router outlives the warden: a bind mount below /run/atoll/net, in the host's mount namespace,
// keeps it. The next warden of the same home and instance finds it there, with all policies in
// force. It goes when a warden ends and leaves no sandbox. Single thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "runtime/jail/network_rules.h"
#include "runtime/jail/ranges.h"
#include "runtime/spec.h"
#include "sys/fd.h"
#include "sys/netlink.h"

namespace atl::jail {

inline constexpr const char* kPinsDir = "/run/atoll/net";
inline constexpr const char* kLinksDir = "/run/atoll/links";

struct NetworkPlace {
  std::string home;
  std::string instance;
  std::string name;                  // of the pin, unique for home and instance
  const sys::UniqueFd& host_mounts;  // the host's mount namespace
};

class Network {
 public:
  // Finds the router of an earlier warden or makes one. Preconditions: the caller holds the lock of
  // home and instance and is in the network namespace that the uplink is to end in.
  static Result<std::unique_ptr<Network>> open(const NetworkPlace& place);

  // Puts a policy in force, the first one or another one. On failure nothing has changed.
  // Connections that exist go on under `same`; those of an earlier tenant of the slot end.
  enum class Tenant : std::uint8_t { fresh, same };
  Result<void> apply(std::uint32_t slot, const runtime::NetworkPolicy& policy, Tenant tenant);
  // Makes the interfaces of a sandbox whose first process is `pid`. Its own end is down.
  Result<void> connect(std::uint32_t slot, pid_t pid);
  // Takes the policy away, after which the slot reaches nothing; fine if there is none. The
  // interfaces go with the sandbox's namespace.
  Result<void> remove(std::uint32_t slot);
  // The same, and removes the interfaces now.
  Result<void> disconnect(std::uint32_t slot);
  bool has(std::uint32_t slot) const { return installed_.contains(slot); }
  // Removes what belongs to no sandbox.
  Result<void> keep_only(const std::set<std::uint32_t>& slots);

  // DNS by UDP and by TCP, proxy; new ones with every call.
  Result<std::array<sys::UniqueFd, 3>> egress_sockets();

  // Removes the router and all that belongs to it.
  Result<void> close_down();

 private:
  Network(std::string name, sys::UniqueFd mounts, Ranges links, sys::UniqueFd host_netns,
          sys::UniqueFd netns, sys::NetlinkSocket host_route, sys::NetlinkSocket host_filter,
          sys::NetlinkSocket route, sys::NetlinkSocket filter, Link link);

  Result<bool> load_installed();  // false: the router is not complete
  Result<void> set_up_uplink();
  Result<void> delete_interfaces(std::uint32_t slot);

  std::string name_;
  sys::UniqueFd mounts_;
  Ranges links_;
  sys::UniqueFd host_netns_;
  sys::UniqueFd netns_;
  sys::NetlinkSocket host_route_;
  sys::NetlinkSocket host_filter_;
  sys::NetlinkSocket route_;
  sys::NetlinkSocket filter_;
  Link link_;
  std::map<std::uint32_t, std::uint32_t> installed_;  // slot -> mark
};

// Run by the new process of a launch in its own network namespace: address, routes, interface up.
Result<void> bring_up_inside(Ipv4 address);
// In the network namespace of a copy while its sockets are made again: some may have been bound to
// the address of the sandbox that it is a copy of.
Result<void> allow_foreign_addresses(bool allowed);

}  // namespace atl::jail
