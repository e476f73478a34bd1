// What the executor's operator may choose, and how those choices are written on a command line.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace atl::executor {

// So many in such a time, per client address.
struct Rate {
  std::uint32_t count = 0;
  std::chrono::seconds per{1};
  bool operator==(const Rate&) const = default;
};

struct Settings {
  std::string key;                            // empty: nobody is asked for one
  std::chrono::milliseconds time{10'000};     // of one run
  std::uint64_t memory_bytes = 256ull << 20;  // of one run
  std::size_t pool = 4;                       // runs at once, of each language
  std::size_t line = 64;                      // waiting, of each language; more are "busy" at once
  std::chrono::milliseconds wait{10'000};     // in line no longer than this
  std::optional<Rate> rate;
  std::string template_name = "code-interpreter-v1";
  bool static_check = false;
  bool offline = false;  // runs have no network
};

inline constexpr std::chrono::milliseconds kLeastTime{1'000};
inline constexpr std::chrono::milliseconds kMostTime{3'600'000};
inline constexpr std::uint64_t kLeastMemory = 64ull << 20;
inline constexpr std::uint64_t kMostMemory = 1ull << 40;

// "90s", "2m", "1m30s", "1h"; a number alone is seconds. invalid_argument: anything else, or out of
// kLeastTime..kMostTime.
Result<std::chrono::milliseconds> parse_time(std::string_view text);
// "256m", "1g", "262144k", bytes without a letter (what Docker takes for --memory); a unit may be
// followed by "b" or "ib". invalid_argument as above.
Result<std::uint64_t> parse_memory(std::string_view text);
// "5/s", "100/m", "5/second", "100/minute"; "off" is none.
Result<std::optional<Rate>> parse_rate(std::string_view text);

}  // namespace atl::executor
