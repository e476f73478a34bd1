// When frozen sandboxes are dumped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/testing/memory.h"

namespace atl::engine {
namespace {

using runtime::Condition;
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using store::MemoryTier;
using store::SandboxState;
using testing::ManualClock;
using testing::MemoryFixture;

struct TiersTest : ::testing::Test {
  ManualClock clock;
  EngineOptions options(seconds keep) {
    EngineOptions out;
    out.keep_frozen = keep;
    out.clock = [this] { return clock.now(); };
    return out;
  }
};

TEST_F(TiersTest, KeptFrozenForAWhileThenDumped) {
  MemoryFixture f(options(seconds(30)));
  const SandboxId id = f.make();
  ASSERT_TRUE(f.pause(id).ok());
  EXPECT_EQ(f.tier(id), MemoryTier::frozen);
  EXPECT_EQ(f.record(id).memory_reason, "");
  EXPECT_EQ(f.runtime.suspends(), 0);
  clock.advance(seconds(29));
  f.engine->clock_changed();
  std::this_thread::sleep_for(milliseconds(30));
  EXPECT_EQ(f.tier(id), MemoryTier::frozen);
  const auto end = f.record(id).end_at;
  clock.advance(seconds(2));
  ASSERT_TRUE(f.eventually([&] { return f.tier(id) == MemoryTier::dumped; }));
  EXPECT_EQ(f.count("thaw"), 1u) << "its agent has to let go";
  EXPECT_EQ(f.runtime.suspends(), 1);
  EXPECT_EQ(f.record(id).end_at, end) << "it was paused then";
  EXPECT_TRUE(f.eventually([&] { return **f.store->find_sandbox(id) == f.record(id); }));
  EXPECT_TRUE(f.connect(id).ok());
  EXPECT_EQ(f.runtime.wakes().size(), 1u);
}

TEST_F(TiersTest, AResumeInTimeIsAThawAndConnectionsGoOn) {
  MemoryFixture f(options(seconds(30)));
  const SandboxId id = f.make([](CreateCommand& command) { command.auto_resume = true; });
  const auto route = f.engine->route(id);
  ASSERT_TRUE(f.pause(id).ok());
  EXPECT_FALSE(route->held());
  ASSERT_TRUE(f.connect(id).ok());
  EXPECT_EQ(f.engine->route(id), route);
  clock.advance(seconds(31));
  f.engine->clock_changed();
  std::this_thread::sleep_for(milliseconds(30));
  EXPECT_EQ(f.state(id), SandboxState::running) << "no dump of an earlier pause";
  EXPECT_EQ(f.count("dump"), 0u);
}

TEST_F(TiersTest, ALaterDumpHoldsTheRoute) {
  MemoryFixture f(options(seconds(30)));
  const SandboxId id = f.make([](CreateCommand& command) { command.auto_resume = true; });
  const auto route = f.engine->route(id);
  ASSERT_TRUE(f.pause(id).ok());
  clock.advance(seconds(31));
  ASSERT_TRUE(f.eventually([&] { return f.tier(id) == MemoryTier::dumped; }));
  EXPECT_TRUE(route->held());
  EXPECT_FALSE(route->dead());
  const auto woken = f.run(f.engine->wake({.id = id}));
  ASSERT_TRUE(woken.ok());
  EXPECT_NE(*woken, route);
  EXPECT_TRUE(f.eventually([&] { return route->dead(); }));
}

TEST_F(TiersTest, ALaterDumpIsCancelledByConnectResumeTrafficAndKill) {
  for (int way = 0; way < 4; ++way) {
    SCOPED_TRACE(way);
    MemoryFixture f(options(seconds(30)));
    const SandboxId id = f.make([](CreateCommand& command) { command.auto_resume = true; });
    ASSERT_TRUE(f.pause(id).ok());
    f.runtime.dump_takes = seconds(60);
    clock.advance(seconds(31));
    ASSERT_TRUE(f.dumping());
    EXPECT_EQ(f.state(id), SandboxState::paused);
    EXPECT_EQ(f.pause(id).error().code, Errc::failed_precondition) << "paused already";
    if (way == 0) EXPECT_TRUE(f.connect(id).ok());
    if (way == 1) EXPECT_TRUE(f.run(f.engine->resume({f.caller(), id})).ok());
    if (way == 2) EXPECT_TRUE(f.run(f.engine->wake({.id = id})).ok());
    if (way == 3) EXPECT_TRUE(f.run(f.engine->kill(f.caller(), id)).ok());
    EXPECT_EQ(f.count("dump cancelled"), 1u);
    if (way == 3) {
      EXPECT_TRUE(f.runtime.alive().empty());
    } else {
      EXPECT_EQ(f.state(id), SandboxState::running);
      EXPECT_EQ(f.runtime.condition(id), Condition::running);
      EXPECT_EQ(f.tier(id), MemoryTier::none);
    }
  }
}

TEST_F(TiersTest, ACancelledOneThatIsNotResumedAfterAllIsDumpedLater) {
  MemoryFixture f(options(seconds(0)));
  const SandboxId id = f.make();
  f.runtime.dump_takes = seconds(60);
  f.runtime.failing["thaw"] = 1;
  auto pause = f.later(f.engine->pause(f.caller(), id, true));
  ASSERT_TRUE(f.dumping());
  EXPECT_FALSE(f.connect(id).ok());
  EXPECT_TRUE(pause.get().ok());
  EXPECT_EQ(f.tier(id), MemoryTier::frozen);
  f.runtime.dump_takes = milliseconds(0);
  clock.advance(seconds(6));
  EXPECT_TRUE(f.eventually([&] { return f.tier(id) == MemoryTier::dumped; }));
}

TEST_F(TiersTest, AboveTheCapTheOldestGoFirst) {
  auto capped = options(hours(1));
  capped.max_frozen_memory = 100 << 20;
  MemoryFixture f(capped);
  f.runtime.usage_bytes = 60 << 20;
  std::vector<SandboxId> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(f.make());
  ASSERT_TRUE(f.pause(ids[1]).ok());
  clock.advance(seconds(1));
  EXPECT_EQ(f.tier(ids[1]), MemoryTier::frozen);
  ASSERT_TRUE(f.pause(ids[0]).ok());
  clock.advance(seconds(1));
  EXPECT_TRUE(f.eventually([&] { return f.tier(ids[1]) == MemoryTier::dumped; }));
  EXPECT_EQ(f.tier(ids[0]), MemoryTier::frozen);
  ASSERT_TRUE(f.pause(ids[2]).ok());
  EXPECT_TRUE(f.eventually([&] { return f.tier(ids[0]) == MemoryTier::dumped; }));
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(f.tier(ids[2]), MemoryTier::frozen);
  EXPECT_EQ(f.engine->statistics().frozen_bytes, f.runtime.usage_bytes);
}

TEST_F(TiersTest, WhatIsRefusedIsNotTriedAgainAndFailuresAFewTimes) {
  MemoryFixture f(options(seconds(30)));
  const SandboxId refused = f.make();
  ASSERT_TRUE(f.pause(refused).ok());
  f.runtime.failing_with = Errc::failed_precondition;
  f.runtime.failing["dump"] = 1;
  clock.advance(seconds(31));
  ASSERT_TRUE(f.eventually([&] { return f.record(refused).memory_reason == "dump fails"; }));
  clock.advance(hours(10));
  std::this_thread::sleep_for(milliseconds(30));
  EXPECT_EQ(f.count("dump"), 1u);
  EXPECT_EQ(f.tier(refused), MemoryTier::frozen);

  const SandboxId unlucky = f.make();
  ASSERT_TRUE(f.pause(unlucky).ok());
  f.runtime.failing_with = Errc::internal;
  f.runtime.failing["dump"] = 100;
  for (std::size_t i = 0; i < 4; ++i) {
    // A minute after each failure, whenever the engine has taken note of that.
    ASSERT_TRUE(f.eventually([&] {
      clock.advance(seconds(5));
      return f.count("dump") == i + 2;
    })) << i;
  }
  ASSERT_TRUE(f.eventually([&] { return f.record(unlucky).memory_reason != ""; }));
  clock.advance(hours(10));
  std::this_thread::sleep_for(milliseconds(30));
  EXPECT_EQ(f.count("dump"), 5u);
  EXPECT_TRUE(f.connect(unlucky).ok());
}

TEST_F(TiersTest, AThawBeforeALaterDumpThatFailsKeepsItFrozen) {
  MemoryFixture f(options(seconds(30)));
  const SandboxId id = f.make();
  ASSERT_TRUE(f.pause(id).ok());
  f.runtime.failing["thaw"] = 1;
  f.runtime.failing["freeze"] = 2;
  clock.advance(seconds(31));
  ASSERT_TRUE(f.eventually([&] { return f.record(id).memory_reason != ""; }));
  EXPECT_EQ(f.runtime.condition(id), Condition::frozen);
  clock.advance(seconds(61));
  EXPECT_TRUE(f.eventually([&] { return f.tier(id) == MemoryTier::dumped; }));
}

TEST_F(TiersTest, FrozenOnesOfAnEarlierRunAreDumped) {
  MemoryFixture f;
  f.runtime.failing_with = Errc::failed_precondition;
  f.runtime.failing["dump"] = 1;
  const SandboxId id = f.make();
  ASSERT_TRUE(f.pause(id).ok());
  ASSERT_EQ(f.tier(id), MemoryTier::frozen);
  f.restart();
  EXPECT_TRUE(f.eventually([&] { return f.tier(id) == MemoryTier::dumped; }));
  EXPECT_TRUE(f.connect(id).ok());
}

}  // namespace
}  // namespace atl::engine
