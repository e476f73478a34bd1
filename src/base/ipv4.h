// IPv4 addresses and blocks of them as plain values. Sandboxes have no IPv6 beyond loopback, so
// nothing here knows it.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace atl {

struct Ipv4 {
  std::uint32_t value = 0;  // in host order: 10.0.0.1 is 0x0a000001

  static std::optional<Ipv4> parse(std::string_view text);
  std::string str() const;
  auto operator<=>(const Ipv4&) const = default;
};

// A block of addresses; bits of `network` beyond `bits` are zero.
struct Cidr4 {
  Ipv4 network;
  std::uint8_t bits = 32;

  // "10.0.0.0/8", or a single address. Host bits are cut off.
  static std::optional<Cidr4> parse(std::string_view text);
  std::string str() const;
  bool contains(Ipv4 address) const {
    return bits == 0 || ((address.value ^ network.value) >> (32 - bits)) == 0;
  }
  auto operator<=>(const Cidr4&) const = default;
};

// Addresses that no sandbox ever reaches, whatever its policy says: this network, private,
// carrier-grade NAT, loopback, link-local (cloud metadata), benchmarking,
// multicast and reserved ones.
bool is_never_reachable(Ipv4 address);
std::span<const Cidr4> never_reachable_blocks();

}  // namespace atl
