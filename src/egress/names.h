// Names: which addresses DNS gave a sandbox for which name. The proxy lets a connection pass by
// name only to such an address. Thread-safe; bounded per sandbox, the pair that expires first makes
// room.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/ids.h"
#include "base/ipv4.h"

namespace atl::egress {

class Names {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Names(std::size_t most_per_sandbox = 4096) : most_(most_per_sandbox) {}

  // `name` in lower case. Programs keep addresses for longer than they were told to, so an answer
  // counts for its TTL and `kGrace`.
  // `peer` is the sandbox's own address.
  void remember(const SandboxId& sandbox, Ipv4 peer, std::string_view name, Ipv4 address,
                std::chrono::seconds ttl, Clock::time_point now = Clock::now());
  bool gave(const SandboxId& sandbox, std::string_view name, Ipv4 address,
            Clock::time_point now = Clock::now()) const;
  // Forgets the sandboxes that `gone` names.
  void forget_if(const std::function<bool(const SandboxId&, Ipv4 peer)>& gone);
  std::size_t size(const SandboxId& sandbox) const;

  static constexpr std::chrono::minutes kGrace{10};
  static constexpr std::chrono::hours kMaxTtl{24};

 private:
  struct Known {
    Ipv4 peer;
    std::map<std::pair<std::string, std::uint32_t>, Clock::time_point> until;
    std::multimap<Clock::time_point, std::pair<std::string, std::uint32_t>> by_end;
  };
  const std::size_t most_;
  mutable std::mutex mutex_;
  std::unordered_map<SandboxId, Known> sandboxes_;
};

}  // namespace atl::egress
