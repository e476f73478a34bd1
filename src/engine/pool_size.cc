#include "engine/pool_size.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

namespace atl::engine {
namespace {

constexpr std::chrono::seconds kHalfLife{60};
constexpr std::uint64_t kLeastReserve = 128ull << 20;

double decayed(double peak, PoolClock::time_point from, PoolClock::time_point to) {
  const double lives = std::chrono::duration<double>(to - from) / kHalfLife;
  return lives <= 0 ? peak : peak * std::exp2(-lives);
}

}  // namespace

void Demand::note(PoolClock::time_point at) {
  if (!last_ || at - second_ >= std::chrono::seconds(1)) {
    second_ = at;
    in_second_ = 0;
  }
  last_ = at;
  ++in_second_;
  if (double(in_second_) >= decayed(peak_, peak_at_, at)) {
    peak_ = double(in_second_);
    peak_at_ = at;
  }
}

std::size_t Demand::burst(PoolClock::time_point at) const {
  return std::size_t(std::lround(decayed(peak_, peak_at_, at)));
}

std::size_t pool_target(std::size_t floor, std::size_t times, std::size_t burst) {
  return std::clamp(burst, floor, floor * std::max<std::size_t>(times, 1));
}

Memory machine_memory() {
  Memory memory;
  std::ifstream info("/proc/meminfo");
  std::string name;
  std::uint64_t kib = 0;
  std::string unit;
  while (info >> name >> kib) {
    std::getline(info, unit);
    if (name == "MemTotal:") memory.total = kib * 1024;
    if (name == "MemAvailable:") {
      memory.available = kib * 1024;
      break;
    }
  }
  return memory;
}

MemoryVerdict judge(const Memory& memory, std::uint64_t cost) {
  const std::uint64_t reserve = std::max(memory.total / 10, kLeastReserve);
  if (memory.available < reserve / 2) return MemoryVerdict::short_;
  return memory.available >= reserve + cost ? MemoryVerdict::plenty : MemoryVerdict::tight;
}

std::chrono::milliseconds back_off(int failures) {
  const int doublings = std::clamp(failures - 1, 0, 9);
  return std::min(std::chrono::milliseconds(1'000) * (1 << doublings),
                  std::chrono::milliseconds(300'000));
}

}  // namespace atl::engine
