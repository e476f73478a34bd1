// Wall-clock instants as the API shows and the store keeps them.
//
// Everything we stamp ourselves is cut to microseconds (`now()`), which is the precision of
// `to_rfc3339`: an instant that was printed, parsed and stored again is the same instant.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace atl {

using Timestamp = std::chrono::sys_time<std::chrono::nanoseconds>;

Timestamp now();
inline std::int64_t to_ns(Timestamp t) { return t.time_since_epoch().count(); }
inline Timestamp from_ns(std::int64_t ns) { return Timestamp(std::chrono::nanoseconds(ns)); }
inline Timestamp cut_to_micros(Timestamp t) {
  return std::chrono::floor<std::chrono::microseconds>(t);
}

// "2026-01-31T12:00:00.123456Z": always UTC, always six digits.
std::string to_rfc3339(Timestamp t);
// Any RFC 3339 instant of the years 1970 to 2200, with up to nine digits and any offset.
std::optional<Timestamp> parse_rfc3339(std::string_view text);

}  // namespace atl
