#include "engine/expiry.h"

#include <gtest/gtest.h>

namespace atl::engine {
namespace {

SandboxId id(const std::string& text) { return *SandboxId::parse(text); }
Timestamp at(int seconds) { return from_ns(std::int64_t(seconds) * 1'000'000'000); }

TEST(ExpiryQueue, GivesDueOnesInOrderAndOnce) {
  ExpiryQueue queue;
  queue.set(id("b"), at(20));
  queue.set(id("a"), at(10));
  queue.set(id("c"), at(30));
  EXPECT_EQ(queue.next(), at(10));
  EXPECT_TRUE(queue.pop_due(at(9)).empty());
  EXPECT_EQ(queue.pop_due(at(20)), (std::vector<SandboxId>{id("a"), id("b")}));
  EXPECT_TRUE(queue.pop_due(at(20)).empty());
  EXPECT_EQ(queue.next(), at(30));
  EXPECT_EQ(queue.size(), 1u);
}

TEST(ExpiryQueue, AMovedEndCountsOnlyAsMoved) {
  ExpiryQueue queue;
  queue.set(id("a"), at(10));
  queue.set(id("a"), at(50));
  EXPECT_TRUE(queue.pop_due(at(49)).empty());
  queue.set(id("a"), at(5));
  EXPECT_EQ(queue.pop_due(at(5)), (std::vector<SandboxId>{id("a")}));
}

TEST(ExpiryQueue, RemovedOnesNeverCome) {
  ExpiryQueue queue;
  queue.set(id("a"), at(10));
  queue.set(id("b"), at(10));
  queue.remove(id("a"));
  queue.remove(id("a"));
  queue.remove(id("unknown"));
  EXPECT_EQ(queue.pop_due(at(1000)), (std::vector<SandboxId>{id("b")}));
  EXPECT_FALSE(queue.next());
}

}  // namespace
}  // namespace atl::engine
