#include "engine/pool_size.h"

#include <gtest/gtest.h>

namespace atl::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;

TEST(PoolSize, FollowsBurstsAndForgetsThem) {
  Demand demand;
  const auto start = PoolClock::now();
  EXPECT_FALSE(demand.last());
  EXPECT_EQ(demand.burst(start), 0u);
  for (int i = 0; i < 12; ++i) demand.note(start + milliseconds(i * 10));
  EXPECT_EQ(demand.burst(start + milliseconds(200)), 12u);
  EXPECT_EQ(demand.burst(start + minutes(1)), 6u);
  EXPECT_EQ(demand.burst(start + minutes(10)), 0u);
  // Twelve in twelve seconds are no burst.
  Demand slow;
  for (int i = 0; i < 12; ++i) slow.note(start + std::chrono::seconds(i));
  EXPECT_EQ(slow.burst(start + std::chrono::seconds(12)), 1u);
}

TEST(PoolSize, StaysBetweenFloorAndCeiling) {
  EXPECT_EQ(pool_target(4, 4, 0), 4u);
  EXPECT_EQ(pool_target(4, 4, 9), 9u);
  EXPECT_EQ(pool_target(4, 4, 100), 16u);
  EXPECT_EQ(pool_target(4, 0, 100), 4u);
  EXPECT_EQ(pool_target(0, 4, 100), 0u);
}

TEST(PoolSize, LeavesATenthOfTheMemory) {
  constexpr std::uint64_t kGib = 1ull << 30;
  EXPECT_EQ(judge({.available = 4 * kGib, .total = 10 * kGib}, 8 << 20), MemoryVerdict::plenty);
  EXPECT_EQ(judge({.available = kGib, .total = 10 * kGib}, 8 << 20), MemoryVerdict::tight);
  EXPECT_EQ(judge({.available = kGib / 3, .total = 10 * kGib}, 0), MemoryVerdict::short_);
  EXPECT_EQ(judge({}, 0), MemoryVerdict::short_) << "unknown is none";
  const Memory here = machine_memory();
  EXPECT_GT(here.total, here.available);
  EXPECT_GT(here.available, 0u);
}

TEST(PoolSize, BacksOff) {
  EXPECT_EQ(back_off(1), milliseconds(1'000));
  EXPECT_EQ(back_off(3), milliseconds(4'000));
  EXPECT_EQ(back_off(100), milliseconds(300'000));
}

}  // namespace
}  // namespace atl::engine
