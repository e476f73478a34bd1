#include "store/blobs/slots.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "store/blobs/conformance.h"

namespace atl::blobs {
namespace {

using std::chrono::milliseconds;

TEST(Slots, AreGivenOnInTheOrderOfComing) {
  Slots slots(2);
  testing::Runner runner;
  auto first = runner.run(slots.take(milliseconds(0)));
  std::optional<Result<Slots::Slot>> second(runner.run(slots.take(milliseconds(0))));
  ASSERT_TRUE(first.ok() && second->ok());
  const auto refused = runner.run(slots.take(milliseconds(1)));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::deadline_exceeded);
  auto third = std::async(std::launch::async, [&] {
    testing::Runner other;
    return other.run(slots.take(milliseconds(60'000))).ok();
  });
  second.reset();
  EXPECT_TRUE(third.get());
  EXPECT_TRUE(runner.run(slots.take(milliseconds(0))).ok()) << "and back";
}

net::Task<int> work(Slots& slots, std::atomic<int>& inside, std::atomic<int>& most) {
  auto taking = slots.take(milliseconds(60'000));
  const auto slot = co_await std::move(taking);
  if (!slot.ok()) co_return 1;
  const int now = ++inside;
  for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
  }
  --inside;
  co_return 0;
}

TEST(Slots, HoldWhenManyCome) {
  Slots slots(3);
  std::atomic<int> inside = 0;
  std::atomic<int> most = 0;
  std::vector<std::future<int>> all;
  for (int i = 0; i < 8; ++i) {
    all.push_back(std::async(std::launch::async, [&] {
      testing::Runner own;
      int failed = 0;
      for (int round = 0; round < 50; ++round) failed += own.run(work(slots, inside, most));
      return failed;
    }));
  }
  for (auto& each : all) EXPECT_EQ(each.get(), 0);
  EXPECT_LE(most, 3);
}

}  // namespace
}  // namespace atl::blobs
