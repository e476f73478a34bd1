// How many sandboxes of a template to keep ahead: as many as a burst of the recent past took at
// once, between a floor and a ceiling, and never at the price of the machine's memory.
//
// Plain values without a clock or a lock of their own.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace atl::engine {

using PoolClock = std::chrono::steady_clock;

// The largest number of creates within one second, halved every minute.
class Demand {
 public:
  void note(PoolClock::time_point at);
  std::size_t burst(PoolClock::time_point at) const;
  // Nullopt: nobody has asked yet.
  std::optional<PoolClock::time_point> last() const { return last_; }

 private:
  double peak_ = 0;
  PoolClock::time_point peak_at_{};
  PoolClock::time_point second_{};  // when the current second began
  std::size_t in_second_ = 0;
  std::optional<PoolClock::time_point> last_;
};

// `floor`, more for larger bursts, at most `floor * times`. Zero stays zero.
std::size_t pool_target(std::size_t floor, std::size_t times, std::size_t burst);

struct Memory {
  std::uint64_t available = 0;
  std::uint64_t total = 0;
};
// Of this machine, from /proc/meminfo; zeros when it cannot be read, which keeps pools empty.
Memory machine_memory();

enum class MemoryVerdict {
  plenty,  // one more is fine
  tight,   // no more
  short_,  // give some back
};
MemoryVerdict judge(const Memory& memory, std::uint64_t cost);

// 1 s, 2 s, 4 s, … five minutes: how long to wait after the n-th failure in a row.
std::chrono::milliseconds back_off(int failures);

}  // namespace atl::engine
