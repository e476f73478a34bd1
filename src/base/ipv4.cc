#include "base/ipv4.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace atl {
namespace {

std::optional<unsigned> parse_number(std::string_view text, unsigned most) {
  if (text.empty() || text.size() > 3 || (text.size() > 1 && text.front() == '0')) return {};
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value > most) return {};
  return value;
}

constexpr Cidr4 block(std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint8_t bits) {
  return Cidr4{Ipv4{a << 24 | b << 16 | c << 8}, bits};
}

// TEST-NET blocks are left out: they are routed nowhere, and tests use them as an "internet".
constexpr std::array kNever = {
    block(0, 0, 0, 8),      block(10, 0, 0, 8),    block(100, 64, 0, 10), block(127, 0, 0, 8),
    block(169, 254, 0, 16), block(172, 16, 0, 12), block(192, 0, 0, 24),  block(192, 168, 0, 16),
    block(198, 18, 0, 15),  block(224, 0, 0, 4),   block(240, 0, 0, 4),
};

}  // namespace

std::optional<Ipv4> Ipv4::parse(std::string_view text) {
  std::uint32_t value = 0;
  for (int part = 0; part < 4; ++part) {
    const std::size_t dot = part < 3 ? text.find('.') : text.size();
    if (dot == std::string_view::npos) return {};
    const auto number = parse_number(text.substr(0, dot), 255);
    if (!number) return {};
    value = value << 8 | *number;
    text.remove_prefix(part < 3 ? dot + 1 : dot);
  }
  return Ipv4{value};
}

std::string Ipv4::str() const {
  std::string out;
  for (int shift = 24; shift >= 0; shift -= 8) {
    if (!out.empty()) out += '.';
    out += std::to_string(value >> shift & 0xff);
  }
  return out;
}

std::optional<Cidr4> Cidr4::parse(std::string_view text) {
  const std::size_t slash = text.find('/');
  const auto address = Ipv4::parse(text.substr(0, slash));
  if (!address) return {};
  if (slash == std::string_view::npos) return Cidr4{*address, 32};
  const auto bits = parse_number(text.substr(slash + 1), 32);
  if (!bits) return {};
  const std::uint32_t mask = *bits == 0 ? 0 : ~std::uint32_t(0) << (32 - *bits);
  return Cidr4{Ipv4{address->value & mask}, std::uint8_t(*bits)};
}

std::string Cidr4::str() const {
  return bits == 32 ? network.str() : network.str() + "/" + std::to_string(bits);
}

bool is_never_reachable(Ipv4 address) {
  return std::any_of(kNever.begin(), kNever.end(),
                     [&](const Cidr4& block) { return block.contains(address); });
}

std::span<const Cidr4> never_reachable_blocks() { return kNever; }

}  // namespace atl
