// Pause, resume, connect, auto-pause, waking by traffic.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "engine/engine.h"
#include "engine/testing/fixture.h"

namespace atl::engine {
namespace {

using runtime::Condition;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Fixture;
using testing::ManualClock;

SandboxState state_of(Fixture& f, const SandboxId& id) {
  const auto info = f.engine->info(f.caller(), id);
  return info.ok() ? info->record.state : SandboxState::killed;
}

SandboxId make(Fixture& f, const std::function<void(CreateCommand&)>& change = {}) {
  auto command = f.command();
  if (change) change(command);
  auto made = f.run(f.engine->create(command));
  EXPECT_TRUE(made.ok()) << made.error().message;
  return made->record.id;
}

TEST(Pause, FrozenAndThawedWithTheSameAgent) {
  ManualClock clock;
  Fixture f({.clock = [&] { return clock.now(); }});
  auto made = f.run(f.engine->create(f.command()));
  ASSERT_TRUE(made.ok());
  const SandboxId id = made->record.id;
  auto route = f.engine->route(id);
  clock.advance(seconds(7));
  ASSERT_TRUE(f.run(f.engine->pause(f.caller(), id, true)).ok());
  EXPECT_EQ(f.runtime.condition(id), Condition::frozen);
  EXPECT_EQ(f.engine->route(id), nullptr);
  EXPECT_TRUE(route->dead()) << "connections of clients are broken";
  auto info = f.engine->info(f.caller(), id);
  EXPECT_EQ(info->record.state, SandboxState::paused);
  EXPECT_EQ(info->record.end_at, clock.now()) << "the moment of pausing";
  EXPECT_TRUE(info->record.memory_kept);
  EXPECT_EQ(**f.store->find_sandbox(id), info->record);

  auto again = f.run(f.engine->pause(f.caller(), id, true));
  EXPECT_EQ(again.error().code, Errc::failed_precondition);
  EXPECT_EQ(again.error().message,
            "Error pausing sandbox - sandbox '" + id.str() + "' is already paused");
  EXPECT_EQ(f.engine->set_timeout(f.caller(), id, seconds(5)).error().code, Errc::not_found);
  EXPECT_EQ(f.engine->refresh(f.caller(), id, seconds(50)).error().code, Errc::not_found);
  EXPECT_EQ(f.run(f.engine->update_network(f.caller(), id, {})).error().code, Errc::not_found);

  // Its timer does not run.
  clock.advance(std::chrono::hours(100));
  f.engine->clock_changed();
  std::this_thread::sleep_for(milliseconds(30));
  EXPECT_EQ(state_of(f, id), SandboxState::paused);

  auto connected = f.run(f.engine->connect(f.caller(), id, seconds(30)));
  ASSERT_TRUE(connected.ok()) << connected.error().message;
  EXPECT_TRUE(connected->resumed);
  EXPECT_EQ(connected->info.record.state, SandboxState::running);
  EXPECT_EQ(connected->info.record.started_at, clock.now());
  EXPECT_EQ(connected->info.record.end_at, clock.now() + seconds(30));
  EXPECT_EQ(connected->info.record.boot_id, made->record.boot_id);
  EXPECT_EQ(connected->info.access_token, made->access_token);
  EXPECT_EQ(f.runtime.condition(id), Condition::running);
  EXPECT_EQ(f.runtime.inits().size(), 1u) << "it knows who it is";
  ASSERT_NE(f.engine->route(id), nullptr);
  EXPECT_NE(f.engine->route(id), route) << "a new route";
  EXPECT_EQ(**f.store->find_sandbox(id), connected->info.record);
}

TEST(Pause, WithoutMemoryItBootsAgainFromItsDisk) {
  Fixture f;
  auto command = f.command();
  command.secure = true;
  command.envs = {{"A", "1"}};
  auto made = f.run(f.engine->create(command));
  ASSERT_TRUE(made.ok());
  const SandboxId id = made->record.id;
  const Ipv4 address = f.runtime.address(id);
  ASSERT_NE(f.engine->egress().find(address), nullptr);
  ASSERT_TRUE(f.run(f.engine->pause(f.caller(), id, false)).ok());
  EXPECT_EQ(f.runtime.condition(id), Condition::dead);
  EXPECT_EQ(f.engine->egress().find(address), nullptr) << "its address may be another's";
  EXPECT_FALSE(f.engine->info(f.caller(), id)->record.memory_kept);
  auto connected = f.run(f.engine->connect(f.caller(), id, seconds(30)));
  ASSERT_TRUE(connected.ok()) << connected.error().message;
  EXPECT_TRUE(connected->resumed);
  EXPECT_NE(connected->info.record.boot_id, made->record.boot_id);
  EXPECT_EQ(connected->info.access_token, made->access_token);
  EXPECT_EQ(f.runtime.specs().back().disk, runtime::Disk::kept);
  EXPECT_EQ(f.runtime.specs().back().boot_id, connected->info.record.boot_id);
  ASSERT_EQ(f.runtime.inits().size(), 2u);
  const auto init = parse_json(f.runtime.inits()[1]).value();
  EXPECT_EQ(init.at("accessToken").as_string(), *made->access_token);
  EXPECT_EQ(init.at("envVars").at("A").as_string(), "1");
  ASSERT_NE(f.engine->egress().find(f.runtime.address(id)), nullptr);
  EXPECT_EQ(f.engine->egress().find(f.runtime.address(id))->sandbox, id);
}

TEST(Pause, AFrozenOneCanBeBootedCold) {
  Fixture f;
  const SandboxId id = make(f);
  const std::string boot = f.engine->info(f.caller(), id)->record.boot_id;
  ASSERT_TRUE(f.run(f.engine->pause(f.caller(), id, true)).ok());
  auto connected = f.run(f.engine->connect(f.caller(), id, seconds(30), Revive::cold));
  ASSERT_TRUE(connected.ok()) << connected.error().message;
  EXPECT_NE(connected->info.record.boot_id, boot);
  EXPECT_EQ(f.runtime.condition(id), Condition::running);
}

TEST(Pause, TwoAtOnceAreOne) {
  Fixture f;
  const SandboxId id = make(f);
  std::atomic<int> good = 0;
  const auto pause = [](Fixture& f, SandboxId id, std::atomic<int>& good) -> net::Task<void> {
    auto pausing = f.engine->pause(f.caller(), id, true);
    if ((co_await std::move(pausing)).ok()) ++good;
  };
  f.runtime.freeze_takes = milliseconds(50);
  std::vector<std::future<void>> all;
  for (int i = 0; i < 4; ++i) {
    all.push_back(net::asio::co_spawn(net::asio::make_strand(f.threads.io), pause(f, id, good),
                                      net::asio::use_future));
  }
  for (auto& one : all) one.get();
  EXPECT_EQ(good, 4);
  EXPECT_THAT(f.runtime.calls(), ::testing::Contains("freeze").Times(1));
}

TEST(Pause, ConnectsJoinOneResume) {
  Fixture f;
  const SandboxId id = make(f);
  ASSERT_TRUE(f.run(f.engine->pause(f.caller(), id, true)).ok());
  std::atomic<int> good = 0;
  const auto connect = [](Fixture& f, SandboxId id, std::atomic<int>& good) -> net::Task<void> {
    auto connecting = f.engine->connect(f.caller(), id, seconds(60));
    auto done = co_await std::move(connecting);
    if (done.ok() && done->resumed) ++good;
  };
  f.runtime.thaw_takes = milliseconds(50);
  std::vector<std::future<void>> all;
  for (int i = 0; i < 5; ++i) {
    all.push_back(net::asio::co_spawn(net::asio::make_strand(f.threads.io), connect(f, id, good),
                                      net::asio::use_future));
  }
  for (auto& one : all) one.get();
  EXPECT_EQ(good, 5);
  EXPECT_THAT(f.runtime.calls(), ::testing::Contains("thaw").Times(1));
}

TEST(Pause, WhilePausingItIsUnreachableAndConnectsWait) {
  Fixture f;
  const SandboxId id = make(f);
  f.runtime.freeze_takes = milliseconds(100);
  f.begin(f.engine->pause(f.caller(), id, true));
  ASSERT_TRUE(Fixture::eventually([&] { return state_of(f, id) == SandboxState::pausing; }));
  EXPECT_EQ(f.engine->route(id), nullptr);
  EXPECT_EQ(f.engine->set_timeout(f.caller(), id, seconds(5)).error().code,
            Errc::failed_precondition);
  EXPECT_EQ(f.run(f.engine->update_network(f.caller(), id, {})).error().code,
            Errc::failed_precondition);
  ResumeCommand resume{.caller = f.caller(), .id = id};
  EXPECT_EQ(f.run(f.engine->resume(resume)).error().code, Errc::failed_precondition);
  EXPECT_TRUE(f.engine->list({.team_id = f.caller().team_id, .paused = false}).items.empty());
  EXPECT_EQ(f.engine->list({.team_id = f.caller().team_id, .running = false}).items.size(), 1u);
  auto connected = f.run(f.engine->connect(f.caller(), id, seconds(30)));
  ASSERT_TRUE(connected.ok()) << connected.error().message;
  EXPECT_TRUE(connected->resumed);
  EXPECT_EQ(state_of(f, id), SandboxState::running);
}

TEST(Pause, AFreezeThatFailsLeavesItRunning) {
  Fixture f;
  const SandboxId id = make(f);
  const auto end = f.engine->info(f.caller(), id)->record.end_at;
  f.runtime.failing["freeze"] = 1;
  auto failed = f.run(f.engine->pause(f.caller(), id, true));
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, Errc::internal);
  EXPECT_EQ(state_of(f, id), SandboxState::running);
  EXPECT_NE(f.engine->route(id), nullptr);
  EXPECT_EQ(f.runtime.condition(id), Condition::running);
  EXPECT_EQ(f.engine->info(f.caller(), id)->record.end_at, end);
  EXPECT_EQ((*f.store->find_sandbox(id))->state, SandboxState::running);
  ASSERT_TRUE(f.run(f.engine->pause(f.caller(), id, true)).ok());

  const SandboxId other = make(f);
  f.runtime.failing["kill"] = 1;
  EXPECT_FALSE(f.run(f.engine->pause(f.caller(), other, false)).ok());
  EXPECT_EQ(state_of(f, other), SandboxState::running);
  EXPECT_TRUE(f.run(f.engine->pause(f.caller(), other, false)).ok());
}

TEST(Pause, AResumeThatFailsLeavesItPaused) {
  Fixture f;
  const SandboxId id = make(f);
  ASSERT_TRUE(f.run(f.engine->pause(f.caller(), id, true)).ok());
  const auto paused = f.engine->info(f.caller(), id)->record;
  for (const char* step : {"thaw"}) {
    f.runtime.failing[step] = 1;
    EXPECT_FALSE(f.run(f.engine->connect(f.caller(), id, seconds(30))).ok()) << step;
    EXPECT_EQ(f.engine->info(f.caller(), id)->record, paused) << step;
    EXPECT_EQ(f.runtime.condition(id), Condition::frozen) << step;
    EXPECT_EQ(f.engine->route(id), nullptr);
  }
  // A cold boot that ends half-way keeps the disk.
  f.runtime.failing["init"] = 1;
  EXPECT_FALSE(f.run(f.engine->connect(f.caller(), id, seconds(30), Revive::cold)).ok());
  EXPECT_EQ(f.runtime.condition(id), Condition::dead) << "never left running without its token";
  EXPECT_EQ(state_of(f, id), SandboxState::paused);
  EXPECT_FALSE(f.engine->info(f.caller(), id)->record.memory_kept);
  f.runtime.failing["create"] = 1;
  EXPECT_FALSE(f.run(f.engine->connect(f.caller(), id, seconds(30))).ok());
  EXPECT_TRUE(f.run(f.engine->connect(f.caller(), id, seconds(30))).ok());
}

TEST(Pause, KillIsPossibleInEveryState) {
  for (const bool memory : {true, false}) {
    Fixture f;
    // Paused.
    SandboxId id = make(f);
    ASSERT_TRUE(f.run(f.engine->pause(f.caller(), id, memory)).ok());
    ASSERT_TRUE(f.run(f.engine->kill(f.caller(), id)).ok());
    EXPECT_FALSE(f.runtime.condition(id));
    EXPECT_EQ(f.run(f.engine->connect(f.caller(), id, seconds(1))).error().code, Errc::not_found);
    // Pausing.
    id = make(f);
    f.runtime.freeze_takes = f.runtime.kill_takes = milliseconds(100);
    f.begin(f.engine->pause(f.caller(), id, memory));
    ASSERT_TRUE(Fixture::eventually([&] { return state_of(f, id) == SandboxState::pausing; }));
    ASSERT_TRUE(f.run(f.engine->kill(f.caller(), id)).ok());
    EXPECT_FALSE(f.runtime.condition(id));
    EXPECT_EQ((*f.store->find_sandbox(id))->state, SandboxState::killed);
    // Resuming.
    f.runtime.freeze_takes = f.runtime.kill_takes = milliseconds(0);
    id = make(f);
    ASSERT_TRUE(f.run(f.engine->pause(f.caller(), id, memory)).ok());
    f.runtime.thaw_takes = f.runtime.create_takes = milliseconds(100);
    f.begin(f.engine->connect(f.caller(), id, seconds(30)));
    ASSERT_TRUE(Fixture::eventually([&] { return state_of(f, id) == SandboxState::resuming; }));
    ASSERT_TRUE(f.run(f.engine->kill(f.caller(), id)).ok());
    EXPECT_FALSE(f.runtime.condition(id));
    EXPECT_EQ(f.engine->route(id), nullptr);
    EXPECT_EQ(f.engine->live(), 0u);
  }
}

TEST(Pause, AtItsEndWhenAskedFor) {
  for (const bool memory : {true, false}) {
    ManualClock clock;
    Fixture f({.clock = [&] { return clock.now(); }});
    const SandboxId id = make(f, [&](CreateCommand& command) {
      command.auto_pause = true;
      command.auto_pause_memory = memory;
    });
    clock.advance(seconds(60));
    f.engine->clock_changed();
    ASSERT_TRUE(Fixture::eventually([&] { return state_of(f, id) == SandboxState::paused; }));
    EXPECT_EQ(f.runtime.condition(id), memory ? Condition::frozen : Condition::dead);
    EXPECT_EQ(f.engine->info(f.caller(), id)->record.memory_kept, memory);
  }
}

TEST(Pause, ZeroTimeoutTakesEffectAtOnce) {
  Fixture f;
  const SandboxId kept = make(f, [](CreateCommand& command) { command.auto_pause = true; });
  const SandboxId lost = make(f);
  ASSERT_TRUE(f.engine->set_timeout(f.caller(), kept, seconds(0)).ok());
  EXPECT_EQ(f.engine->route(kept), nullptr);
  ASSERT_TRUE(f.engine->set_timeout(f.caller(), lost, seconds(0)).ok());
  EXPECT_EQ(f.engine->info(f.caller(), lost).error().code, Errc::not_found);
  ASSERT_TRUE(Fixture::eventually([&] { return state_of(f, kept) == SandboxState::paused; }));
}

TEST(Pause, AnAutoPauseThatFailsIsTriedAgain) {
  ManualClock clock;
  Fixture f({.clock = [&] { return clock.now(); }});
  const SandboxId id = make(f, [](CreateCommand& command) { command.auto_pause = true; });
  f.runtime.failing["freeze"] = 1;
  clock.advance(seconds(61));
  f.engine->clock_changed();
  ASSERT_TRUE(Fixture::eventually([&] {
    return state_of(f, id) == SandboxState::running && !f.runtime.calls().empty() &&
           f.runtime.calls().back() == "thaw";
  }));
  clock.advance(seconds(6));
  f.engine->clock_changed();
  ASSERT_TRUE(Fixture::eventually([&] { return state_of(f, id) == SandboxState::paused; }));
}

TEST(Resume, OnlyOfWhatIsPaused) {
  Fixture f;
  const SandboxId id = make(f);
  ResumeCommand command{.caller = f.caller(), .id = id, .timeout = seconds(40)};
  auto running = f.run(f.engine->resume(command));
  EXPECT_EQ(running.error().code, Errc::failed_precondition);
  EXPECT_EQ(running.error().message, "Sandbox " + id.str() + " is already running");
  ASSERT_TRUE(f.run(f.engine->pause(f.caller(), id, true)).ok());
  command.auto_pause = true;
  auto resumed = f.run(f.engine->resume(command));
  ASSERT_TRUE(resumed.ok()) << resumed.error().message;
  EXPECT_TRUE(resumed->record.auto_pause);
  EXPECT_TRUE((*f.store->find_sandbox(id))->auto_pause);
  EXPECT_EQ(resumed->record.end_at - resumed->record.started_at, seconds(40));
  command.id = *SandboxId::parse("iunknown");
  EXPECT_EQ(f.run(f.engine->resume(command)).error().code, Errc::not_found);
  command.id = id;
  command.caller.team_id = "another";
  EXPECT_EQ(f.run(f.engine->resume(command)).error().code, Errc::not_found);
  command.caller = f.caller();
  command.timeout = std::chrono::hours(25);
  EXPECT_EQ(f.run(f.engine->resume(command)).error().code, Errc::invalid_argument);
}

TEST(Wake, OnlyWithAutoResumeMemoryAndTheRightToken) {
  ManualClock clock;
  Fixture f({.clock = [&] { return clock.now(); }});
  const auto paused = [&](bool auto_resume, bool memory) {
    const SandboxId id = make(f, [&](CreateCommand& command) {
      command.auto_resume = auto_resume;
      command.secure = true;
      command.allow_public_traffic = false;
      command.timeout = seconds(20);
    });
    EXPECT_TRUE(f.run(f.engine->pause(f.caller(), id, memory)).ok());
    return id;
  };
  EXPECT_EQ(f.run(f.engine->wake({.id = paused(false, true)})).error().code, Errc::not_found);
  EXPECT_EQ(f.run(f.engine->wake({.id = paused(true, false)})).error().code, Errc::not_found);
  EXPECT_EQ(f.run(f.engine->wake({.id = *SandboxId::parse("iunknown")})).error().code,
            Errc::not_found);

  const SandboxId id = paused(true, true);
  const auto info = f.engine->info(f.caller(), id);
  const std::string access = *info->access_token;
  const std::string traffic = *info->traffic_token;
  for (const WakeRequest& wrong : {
           WakeRequest{.id = id},
           WakeRequest{.id = id, .agent_port = true},
           WakeRequest{.id = id, .agent_port = true, .access_token = traffic},
           WakeRequest{.id = id, .agent_port = true, .access_token = "x", .traffic_token = traffic},
           WakeRequest{.id = id, .access_token = access},
           WakeRequest{.id = id, .traffic_token = access},
       }) {
    EXPECT_EQ(f.run(f.engine->wake(wrong)).error().code, Errc::permission_denied);
    EXPECT_EQ(state_of(f, id), SandboxState::paused);
  }
  auto route = f.run(f.engine->wake({.id = id, .traffic_token = traffic}));
  ASSERT_TRUE(route.ok()) << route.error().message;
  EXPECT_EQ((*route)->id(), id);
  EXPECT_EQ(f.engine->info(f.caller(), id)->record.end_at, clock.now() + seconds(300))
      << "at least five minutes";
  ASSERT_TRUE(f.run(f.engine->pause(f.caller(), id, true)).ok());
  EXPECT_TRUE(f.run(f.engine->wake({.id = id, .agent_port = true, .access_token = access})).ok());
  // One that runs is just there.
  EXPECT_TRUE(f.run(f.engine->wake({.id = id})).ok());
}

TEST(Wake, WaitsForAPauseAndGivesUpInTheEnd) {
  Fixture f({.transition_deadline = milliseconds(300)});
  const SandboxId id = make(f, [](CreateCommand& command) {
    command.auto_resume = true;
    command.timeout = std::chrono::hours(1);
  });
  f.runtime.freeze_takes = milliseconds(50);
  f.begin(f.engine->pause(f.caller(), id, true));
  ASSERT_TRUE(Fixture::eventually([&] { return state_of(f, id) == SandboxState::pausing; }));
  auto woken = f.run(f.engine->wake({.id = id}));
  ASSERT_TRUE(woken.ok()) << woken.error().message;
  const auto record = f.engine->info(f.caller(), id)->record;
  EXPECT_EQ(record.end_at - record.started_at, std::chrono::hours(1)) << "as given at creation";
  f.runtime.freeze_takes = milliseconds(1'000);
  f.begin(f.engine->pause(f.caller(), id, true));
  ASSERT_TRUE(Fixture::eventually([&] { return state_of(f, id) == SandboxState::pausing; }));
  EXPECT_EQ(f.run(f.engine->wake({.id = id})).error().code, Errc::deadline_exceeded);
  EXPECT_EQ(f.run(f.engine->connect(f.caller(), id, seconds(1))).error().code,
            Errc::failed_precondition);
}

TEST(Pause, ConnectionsStandStillWhereTrafficWakes) {
  Fixture f;
  auto command = f.command();
  command.auto_resume = true;
  const SandboxId id = f.run(f.engine->create(std::move(command)))->record.id;
  const auto route = f.engine->route(id);
  ASSERT_TRUE(f.run(f.engine->pause(f.caller(), id, true)).ok());
  EXPECT_EQ(f.engine->route(id), nullptr) << "new requests do not find it";
  EXPECT_FALSE(route->dead());
  ASSERT_TRUE(f.run(f.engine->connect(f.caller(), id, seconds(30))).ok());
  EXPECT_EQ(f.engine->route(id), route) << "they go on";

  // A cold boot ends what they led to.
  ASSERT_TRUE(f.run(f.engine->pause(f.caller(), id, true)).ok());
  ASSERT_TRUE(f.run(f.engine->connect(f.caller(), id, seconds(30), Revive::cold)).ok());
  EXPECT_TRUE(route->dead());
  const auto second = f.engine->route(id);
  ASSERT_NE(second, nullptr);
  EXPECT_NE(second, route);

  // Without memory there is nothing to stand still.
  ASSERT_TRUE(f.run(f.engine->pause(f.caller(), id, false)).ok());
  EXPECT_TRUE(second->dead());
  ASSERT_TRUE(f.run(f.engine->connect(f.caller(), id, seconds(30))).ok());

  const auto third = f.engine->route(id);
  ASSERT_TRUE(f.run(f.engine->pause(f.caller(), id, true)).ok());
  EXPECT_FALSE(third->dead());
  ASSERT_TRUE(f.run(f.engine->kill(f.caller(), id)).ok());
  EXPECT_TRUE(third->dead());
}

TEST(Pause, AFrozenSandboxThatLosesItsProcessesKeepsItsDisk) {
  Fixture f;
  const SandboxId id = make(f);
  ASSERT_TRUE(f.run(f.engine->pause(f.caller(), id, true)).ok());
  f.runtime.set_condition(id, Condition::dead);
  f.runtime.exit(id);
  EXPECT_EQ(state_of(f, id), SandboxState::paused);
  EXPECT_FALSE((*f.store->find_sandbox(id))->memory_kept);
  ASSERT_TRUE(f.run(f.engine->connect(f.caller(), id, seconds(30))).ok());
  EXPECT_EQ(f.runtime.specs().back().disk, runtime::Disk::kept);
}

}  // namespace
}  // namespace atl::engine
