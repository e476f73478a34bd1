// Pauses whose memory goes to files, and what comes in between.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/post.hpp>

#include "base/json.h"
#include "engine/testing/memory.h"

namespace atl::engine {
namespace {

using runtime::Condition;
using std::chrono::milliseconds;
using std::chrono::seconds;
using store::MemoryTier;
using store::SandboxState;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ManualClock;
using testing::MemoryFixture;

void auto_resume(CreateCommand& command) { command.auto_resume = true; }

std::vector<std::string> calls_since(MemoryFixture& f, std::size_t from) {
  const auto all = f.runtime.calls();
  return {all.begin() + std::ptrdiff_t(from), all.end()};
}

TEST(Dump, APauseEndsInFilesAndAResumeComesFromThem) {
  MemoryFixture f;
  const SandboxId id = f.make([](CreateCommand& command) { command.secure = true; });
  const auto route = f.engine->route(id);
  const Ipv4 address = f.runtime.address(id);
  ASSERT_NE(f.engine->egress().find(address), nullptr);
  const std::size_t from = f.runtime.calls().size();
  ASSERT_TRUE(f.pause(id).ok());
  EXPECT_THAT(calls_since(f, from), ElementsAre("suspend", "freeze", "dump"));
  EXPECT_EQ(f.runtime.condition(id), Condition::dumped);
  const auto paused = f.record(id);
  EXPECT_EQ(paused.state, SandboxState::paused);
  EXPECT_TRUE(paused.memory_kept);
  EXPECT_EQ(paused.memory_tier, MemoryTier::dumped);
  EXPECT_EQ(paused.memory_bytes, f.runtime.kMemoryBytes);
  EXPECT_EQ(paused.memory_reason, "");
  EXPECT_EQ(**f.store->find_sandbox(id), paused);
  EXPECT_TRUE(route->dead());
  EXPECT_EQ(f.engine->egress().find(address), nullptr) << "the address is free";
  auto figures = f.engine->statistics();
  EXPECT_EQ(figures.paused_dumped, 1u);
  EXPECT_EQ(figures.dumped_bytes, f.runtime.kMemoryBytes);
  EXPECT_EQ(figures.dumps, 1u);
  EXPECT_EQ(figures.dump_seconds.size(), 1u);

  const auto connected = f.connect(id);
  ASSERT_TRUE(connected.ok()) << connected.error().message;
  EXPECT_TRUE(connected->resumed);
  const auto spec = f.runtime.specs().back();
  EXPECT_EQ(spec.disk, runtime::Disk::kept);
  EXPECT_EQ(spec.memory, runtime::Memory::kept);
  EXPECT_EQ(spec.boot_id, paused.boot_id) << "it is the same boot";
  ASSERT_EQ(f.runtime.wakes().size(), 1u);
  const auto wake = parse_json(f.runtime.wakes().back()).value();
  EXPECT_FALSE(wake.at("forked").as_bool());
  EXPECT_EQ(wake.at("accessToken").as_string(), *connected->info.access_token);
  EXPECT_EQ(f.record(id).memory_tier, MemoryTier::none);
  EXPECT_EQ(f.record(id).memory_bytes, 0u);
  ASSERT_NE(f.engine->route(id), nullptr);
  EXPECT_NE(f.engine->egress().find(f.runtime.address(id)), nullptr);
  figures = f.engine->statistics();
  EXPECT_EQ(figures.restores, 1u);
  EXPECT_EQ(figures.paused_dumped, 0u);
}

TEST(Dump, ATreeThatCannotBeDumpedStaysFrozenWithTheReason) {
  MemoryFixture f;
  const SandboxId id = f.make();
  f.runtime.failing["dump"] = 1;
  f.runtime.failing_with = Errc::failed_precondition;
  ASSERT_TRUE(f.pause(id).ok()) << "the API answers as for any pause";
  EXPECT_EQ(f.runtime.condition(id), Condition::frozen);
  EXPECT_EQ(f.tier(id), MemoryTier::frozen);
  EXPECT_EQ(f.record(id).memory_reason, "dump fails");
  EXPECT_EQ((**f.store->find_sandbox(id)).memory_reason, "dump fails");
  const auto lines = f.run(f.engine->logs(f.caller(), id, {.search = "RAM"}));
  ASSERT_EQ(lines->size(), 1u);
  EXPECT_EQ(lines->front().fields.at("reason"), "dump fails");
  EXPECT_EQ(f.engine->statistics().paused_frozen, 1u);
  EXPECT_EQ(f.engine->statistics().frozen_bytes, f.runtime.usage_bytes);
  std::this_thread::sleep_for(milliseconds(30));
  EXPECT_EQ(f.count("dump"), 1u) << "the same tree would be refused again";
  ASSERT_TRUE(f.connect(id).ok());
  EXPECT_EQ(f.count("thaw"), 1u);
  EXPECT_EQ(f.record(id).memory_reason, "");
  ASSERT_TRUE(f.pause(id).ok());
  EXPECT_EQ(f.tier(id), MemoryTier::dumped) << "another pause, another tree";
}

TEST(Dump, WhereItIsNotPossibleThereIsOnlyTheFrozenTier) {
  testing::Fixture f;
  const auto id = f.run(f.engine->create(f.command()))->record.id;
  ASSERT_TRUE(f.run(f.engine->pause(f.caller(), id, true)).ok());
  const auto record = f.engine->info(f.caller(), id)->record;
  EXPECT_EQ(record.memory_tier, MemoryTier::frozen);
  EXPECT_EQ(record.memory_reason, "there is no CRIU");
  EXPECT_EQ(f.runtime.suspends(), 0) << "connections need not go";
}

TEST(Dump, AFullDiskLeavesItRunningWithATypedError) {
  MemoryFixture f;
  const SandboxId id = f.make(auto_resume);
  const auto route = f.engine->route(id);
  f.runtime.failing["dump"] = 1;
  f.runtime.failing_with = Errc::resource_exhausted;
  const auto done = f.pause(id);
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().code, Errc::resource_exhausted);
  EXPECT_EQ(done.error().sys_errno, ENOSPC);
  EXPECT_EQ(f.state(id), SandboxState::running);
  EXPECT_EQ(f.runtime.condition(id), Condition::running);
  ASSERT_NE(f.engine->route(id), nullptr);
  EXPECT_NE(f.engine->route(id), route);
  EXPECT_TRUE(f.eventually([&] { return route->dead(); })) << "what it led to is gone";
  ASSERT_TRUE(f.pause(id).ok()) << "and once there is space";
}

TEST(Dump, AtTheEndOfATimeoutAFullDiskLeavesItFrozen) {
  ManualClock clock;
  MemoryFixture f({.clock = [&] { return clock.now(); }});
  const SandboxId id = f.make([](CreateCommand& command) { command.auto_pause = true; });
  f.runtime.failing_with = Errc::resource_exhausted;
  f.runtime.failing["dump"] = 1;
  clock.advance(seconds(61));
  f.engine->clock_changed();
  ASSERT_TRUE(f.eventually([&] { return f.state(id) == SandboxState::paused; }));
  EXPECT_EQ(f.tier(id), MemoryTier::frozen);
  EXPECT_EQ(f.record(id).memory_reason, "dump fails");
  clock.advance(seconds(61));
  EXPECT_TRUE(f.eventually([&] { return f.tier(id) == MemoryTier::dumped; })) << "tried again";
  EXPECT_EQ(f.record(id).memory_reason, "");
}

TEST(Dump, AnAgentThatIsLateToLetGoIsToldAgain) {
  MemoryFixture f;
  const SandboxId id = f.make();
  f.runtime.failing["suspend"] = 1;
  const std::size_t from = f.runtime.calls().size();
  ASSERT_TRUE(f.pause(id).ok());
  EXPECT_EQ(f.tier(id), MemoryTier::dumped);
  EXPECT_THAT(calls_since(f, from),
              ElementsAre("suspend", "freeze", "thaw", "suspend", "freeze", "dump"));
  EXPECT_TRUE(f.connect(id).ok());
}

TEST(Dump, WhatCameFromOutsideIsWaitedForOnce) {
  MemoryFixture f;
  const SandboxId id = f.make();
  f.runtime.failing_with = Errc::failed_precondition;
  f.runtime.failing_says = "dump.write: outside_process: process 7 (sh) is no descendant";
  f.runtime.failing["dump"] = 1;
  ASSERT_TRUE(f.pause(id).ok());
  EXPECT_EQ(f.tier(id), MemoryTier::dumped);
  EXPECT_EQ(f.count("dump"), 2u);
  EXPECT_EQ(f.runtime.suspends(), 2);
}

TEST(Dump, AnAgentThatDoesNotLetGoIsNotFatal) {
  ManualClock clock;
  MemoryFixture f({.clock = [&] { return clock.now(); }});
  const SandboxId id = f.make();
  f.runtime.failing["suspend"] = 2;
  ASSERT_TRUE(f.pause(id).ok());
  EXPECT_EQ(f.tier(id), MemoryTier::frozen);
  EXPECT_EQ(f.runtime.condition(id), Condition::frozen);
  EXPECT_THAT(f.record(id).memory_reason, HasSubstr("outside_socket"));
  clock.advance(seconds(61));
  EXPECT_TRUE(f.eventually([&] { return f.tier(id) == MemoryTier::dumped; })) << "tried again";
  EXPECT_EQ(f.record(id).memory_reason, "");
  ASSERT_TRUE(f.connect(id).ok());
}

TEST(Dump, MemoryThatIsInFilesIsThereWhateverWasSaid) {
  MemoryFixture f;
  const SandboxId id = f.make();
  f.runtime.fails_after = "dump";
  ASSERT_TRUE(f.pause(id).ok());
  EXPECT_EQ(f.tier(id), MemoryTier::dumped);
  EXPECT_EQ(f.record(id).memory_reason, "");
  EXPECT_EQ(f.count("thaw"), 0u);
  EXPECT_TRUE(f.connect(id).ok());
}

TEST(Dump, AConnectCancelsItAndThaws) {
  MemoryFixture f;
  const SandboxId id = f.make();
  f.runtime.dump_takes = seconds(60);
  auto pause = f.later(f.engine->pause(f.caller(), id, true));
  ASSERT_TRUE(f.dumping());
  const auto connected = f.connect(id);
  ASSERT_TRUE(connected.ok()) << connected.error().message;
  EXPECT_TRUE(connected->resumed);
  EXPECT_TRUE(pause.get().ok()) << "it was paused, for a moment";
  EXPECT_EQ(f.count("dump cancelled"), 1u);
  EXPECT_EQ(f.count("thaw"), 1u);
  EXPECT_EQ(f.state(id), SandboxState::running);
  EXPECT_EQ(f.runtime.condition(id), Condition::running);
  EXPECT_EQ(f.engine->statistics().dumps_cancelled, 1u);
}

TEST(Dump, TrafficCancelsItIfItMay) {
  MemoryFixture f;
  const SandboxId id = f.make([](CreateCommand& command) {
    command.auto_resume = true;
    command.allow_public_traffic = false;
  });
  f.runtime.dump_takes = seconds(60);
  auto pause = f.later(f.engine->pause(f.caller(), id, true));
  ASSERT_TRUE(f.dumping());
  EXPECT_EQ(f.run(f.engine->wake({.id = id})).error().code, Errc::permission_denied);
  EXPECT_EQ(f.count("cancel_dump"), 0u);
  const auto token = f.engine->info(f.caller(), id)->traffic_token;
  const auto woken = f.run(f.engine->wake({.id = id, .traffic_token = *token}));
  ASSERT_TRUE(woken.ok()) << woken.error().message;
  EXPECT_NE(*woken, nullptr);
  EXPECT_TRUE(pause.get().ok());
  EXPECT_EQ(f.state(id), SandboxState::running);
}

TEST(Dump, AResumeIsRefusedWhilePausing) {
  MemoryFixture f;
  const SandboxId id = f.make();
  f.runtime.hold("dump");
  auto pause = f.later(f.engine->pause(f.caller(), id, true));
  ASSERT_TRUE(f.eventually([&] { return f.count("dump") == 1; }));
  EXPECT_EQ(f.run(f.engine->resume({f.caller(), id})).error().code, Errc::failed_precondition);
  EXPECT_EQ(f.run(f.engine->update_network(f.caller(), id, {})).error().code,
            Errc::failed_precondition);
  EXPECT_EQ(f.engine->set_timeout(f.caller(), id, seconds(9)).error().code,
            Errc::failed_precondition);
  const auto strand = net::asio::make_strand(f.threads.io);
  auto second =
      net::asio::co_spawn(strand, f.engine->pause(f.caller(), id, true), net::asio::use_future);
  net::asio::post(strand, [&] { f.runtime.release(); });  // comes when the second one waits
  EXPECT_TRUE(second.get().ok()) << "joins";
  EXPECT_TRUE(pause.get().ok());
  EXPECT_EQ(f.tier(id), MemoryTier::dumped);
  EXPECT_EQ(f.run(f.engine->update_network(f.caller(), id, {})).error().code, Errc::not_found);
}

TEST(Dump, AKillCancelsIt) {
  MemoryFixture f;
  const SandboxId id = f.make();
  f.runtime.dump_takes = seconds(60);
  auto pause = f.later(f.engine->pause(f.caller(), id, true));
  ASSERT_TRUE(f.dumping());
  EXPECT_TRUE(f.run(f.engine->kill(f.caller(), id)).ok());
  EXPECT_EQ(pause.get().error().code, Errc::not_found);
  EXPECT_TRUE(f.runtime.alive().empty());
  EXPECT_EQ(f.count("dump cancelled"), 1u);
  EXPECT_TRUE(f.store->live_sandboxes()->empty());
}

TEST(Dump, ADumpedOneIsKilledAndBootedCold) {
  MemoryFixture f;
  const SandboxId killed = f.make();
  const SandboxId cold = f.make();
  ASSERT_TRUE(f.pause(killed).ok());
  ASSERT_TRUE(f.pause(cold).ok());
  EXPECT_TRUE(f.run(f.engine->kill(f.caller(), killed)).ok());
  EXPECT_FALSE(f.runtime.condition(killed));
  ASSERT_TRUE(f.run(f.engine->connect(f.caller(), cold, seconds(60), Revive::cold)).ok());
  EXPECT_EQ(f.runtime.specs().back().memory, runtime::Memory::none);
  EXPECT_EQ(f.runtime.specs().back().disk, runtime::Disk::kept);
  EXPECT_EQ(f.tier(cold), MemoryTier::none);
}

TEST(Dump, ConnectsJoinOneRestore) {
  MemoryFixture f;
  const SandboxId id = f.make(auto_resume);
  ASSERT_TRUE(f.pause(id).ok());
  f.runtime.create_takes = milliseconds(100);
  const std::size_t before = f.runtime.specs().size();
  auto first = f.later(f.engine->connect(f.caller(), id, seconds(60)));
  auto second = f.later(f.engine->connect(f.caller(), id, seconds(60)));
  auto third = f.later(f.engine->wake({.id = id}));
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(second.get().ok());
  EXPECT_TRUE(third.get().ok());
  EXPECT_EQ(f.runtime.specs().size(), before + 1);
}

TEST(Dump, ARestoreThatFailsLeavesItAsItWas) {
  MemoryFixture f;
  const SandboxId id = f.make();
  ASSERT_TRUE(f.pause(id).ok());
  const auto before = f.record(id);
  f.runtime.failing["create"] = 1;
  EXPECT_EQ(f.connect(id).error().code, Errc::internal);
  EXPECT_EQ(f.record(id), before);
  EXPECT_EQ(f.runtime.condition(id), Condition::dumped);
  EXPECT_EQ(f.engine->statistics().restore_failures, 1u);
  f.runtime.failing["create"] = 1;
  f.runtime.failing_with = Errc::data_loss;
  EXPECT_EQ(f.connect(id).error().code, Errc::data_loss) << "it will not get better";
  EXPECT_NE(f.record(id).memory_reason.find("create fails"), std::string::npos);
  EXPECT_EQ(f.tier(id), MemoryTier::dumped);
  EXPECT_TRUE(f.connect(id).ok());
}

TEST(Dump, ARestoreThatUsesUpTheFilesLeavesTheDisk) {
  MemoryFixture f;
  const SandboxId id = f.make();
  ASSERT_TRUE(f.pause(id).ok());
  f.runtime.restores_use_up = true;
  EXPECT_EQ(f.connect(id).error().code, Errc::data_loss);
  const auto left = f.record(id);
  EXPECT_EQ(left.state, SandboxState::paused);
  EXPECT_FALSE(left.memory_kept);
  EXPECT_EQ(left.memory_tier, MemoryTier::none);
  EXPECT_EQ(left.memory_bytes, 0u);
  EXPECT_EQ(**f.store->find_sandbox(id), left);
  EXPECT_EQ(
      f.run(f.engine->logs(f.caller(), id, {.search = "memory of the sandbox is lost"}))->size(),
      1u);
  EXPECT_EQ(f.engine->statistics().restore_failures, 1u);
  ASSERT_TRUE(f.connect(id).ok());
  EXPECT_EQ(f.runtime.specs().back().memory, runtime::Memory::none);
  EXPECT_EQ(f.runtime.specs().back().disk, runtime::Disk::kept);
}

TEST(Dump, ARestoredAgentThatCannotBeToldIsFrozen) {
  MemoryFixture f;
  const SandboxId id = f.make();
  ASSERT_TRUE(f.pause(id).ok());
  f.runtime.failing["wake"] = 1;
  EXPECT_FALSE(f.connect(id).ok());
  EXPECT_EQ(f.state(id), SandboxState::paused);
  EXPECT_EQ(f.tier(id), MemoryTier::frozen) << "its files are used up, its processes are there";
  EXPECT_EQ(f.runtime.condition(id), Condition::frozen);
  EXPECT_TRUE(f.connect(id).ok());
  EXPECT_EQ(f.runtime.condition(id), Condition::running);
}

TEST(Dump, AShortTimeoutBeginsAfterTheRestore) {
  ManualClock clock;
  MemoryFixture f({.clock = [&] { return clock.now(); }});
  const SandboxId id = f.make([](CreateCommand& command) { command.auto_pause = true; });
  ASSERT_TRUE(f.pause(id).ok());
  f.runtime.hold("create");
  auto connect = f.later(f.engine->connect(f.caller(), id, seconds(5)));
  ASSERT_TRUE(f.eventually([&] { return f.state(id) == SandboxState::resuming; }));
  clock.advance(seconds(30));
  f.engine->clock_changed();
  f.runtime.release();
  ASSERT_TRUE(connect.get().ok());
  EXPECT_EQ(f.state(id), SandboxState::running);
  EXPECT_EQ(f.record(id).end_at, clock.now() + seconds(5));
  clock.advance(seconds(6));
  f.engine->clock_changed();
  EXPECT_TRUE(f.eventually([&] { return f.tier(id) == MemoryTier::dumped; }));
}

TEST(Dump, ARouteThatTrafficWakesIsHeldUntilItRunsAgain) {
  MemoryFixture f;
  const SandboxId id = f.make(auto_resume);
  const auto route = f.engine->route(id);
  std::atomic<int> held = 0;
  std::atomic<int> dead = 0;
  const auto subscription = Route::subscribe(route, [&] { ++dead; }, [&] { ++held; });
  ASSERT_TRUE(f.pause(id).ok());
  EXPECT_EQ(held, 1);
  EXPECT_EQ(dead, 0) << "clients stand still";
  const auto woken = f.run(f.engine->wake({.id = id}));
  ASSERT_TRUE(woken.ok());
  EXPECT_NE(*woken, route);
  EXPECT_TRUE(f.eventually([&] { return dead == 1; }));
  ASSERT_TRUE(f.pause(id).ok());
  int second = 0;
  const auto next = Route::subscribe(*woken, [&] { ++second; });
  ASSERT_TRUE(f.run(f.engine->kill(f.caller(), id)).ok());
  EXPECT_EQ(second, 1) << "a kill breaks them";
}

TEST(Dump, WhoIsInsideIsWaitedForBeforeTheAgentIsTold) {
  MemoryFixture f;
  const SandboxId id = f.make(auto_resume);
  auto inside = std::make_unique<Route::Inside>(Route::go_inside(f.engine->route(id)));
  auto pause = f.later(f.engine->pause(f.caller(), id, true));
  ASSERT_TRUE(f.eventually([&] { return f.state(id) == SandboxState::pausing; }));
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(f.runtime.suspends(), 0);
  inside.reset();
  EXPECT_TRUE(pause.get().ok());
  EXPECT_EQ(f.tier(id), MemoryTier::dumped);
}

TEST(Dump, SoManyAtATimeAndOneInLineCanBeHadBack) {
  MemoryFixture f({.max_dumps_in_flight = 1});
  const SandboxId a = f.make();
  const SandboxId b = f.make();
  f.runtime.dump_takes = milliseconds(500);
  auto first = f.later(f.engine->pause(f.caller(), a, true));
  ASSERT_TRUE(f.dumping());
  auto second = f.later(f.engine->pause(f.caller(), b, true));
  ASSERT_TRUE(f.eventually([&] { return f.runtime.condition(b) == Condition::frozen; }));
  EXPECT_TRUE(f.connect(b).ok());
  EXPECT_TRUE(second.get().ok());
  EXPECT_EQ(f.state(b), SandboxState::running);
  EXPECT_TRUE(first.get().ok());
  EXPECT_EQ(f.runtime.most_dumping(), 1);
  EXPECT_EQ(f.tier(a), MemoryTier::dumped);
}

TEST(Dump, AnEndThatIsPartOfTheDumpIsNoLoss) {
  MemoryFixture f;
  const SandboxId id = f.make();
  f.runtime.dump_takes = milliseconds(100);
  auto pause = f.later(f.engine->pause(f.caller(), id, true));
  ASSERT_TRUE(f.dumping());
  f.runtime.exit(id);
  ASSERT_TRUE(pause.get().ok());
  EXPECT_EQ(f.tier(id), MemoryTier::dumped);
  EXPECT_TRUE(f.record(id).memory_kept);
  f.runtime.exit(id);
  EXPECT_TRUE(f.record(id).memory_kept);
}

}  // namespace
}  // namespace atl::engine
