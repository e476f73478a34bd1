// Which sandbox has which address, and what it may reach. Written by the engine, read by the
// resolver and the egress proxy; thread-safe. An address that is not in it may reach nothing.
#pragma once

#include <memory>
#include <optional>
#include <shared_mutex>
#include <unordered_map>

#include "base/ids.h"
#include "base/ipv4.h"
#include "egress/policy.h"

namespace atl::egress {

struct Entry {
  SandboxId sandbox;
  Policy policy;
};

class Table {
 public:
  void set(Ipv4 address, SandboxId sandbox, Policy policy);
  void remove(Ipv4 address, const SandboxId& sandbox);  // only if it is still that sandbox's
  std::shared_ptr<const Entry> find(Ipv4 address) const;

 private:
  mutable std::shared_mutex mutex_;
  std::unordered_map<std::uint32_t, std::shared_ptr<const Entry>> entries_;
};

}  // namespace atl::egress
