// Restart and crash: the table, and a walk that stops every transition at every step.
#include "engine/adoption.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "engine/testing/fixture.h"

namespace atl::engine {
namespace {

using runtime::Condition;
using std::chrono::milliseconds;
using std::chrono::seconds;
using store::SandboxState;
using testing::Fixture;
using testing::ManualClock;
using S = SandboxState;
using C = Condition;
using A = Adoption;

TEST(AdoptionTable, EveryCase) {
  using T = store::MemoryTier;
  struct Row {
    S state;
    bool memory;
    T tier;
    // By condition: nothing, running, frozen, dead, dumped, leftover.
    A expected[6];
  };
  constexpr A gone = A::lost;
  constexpr A disk = A::rest_disk;
  constexpr A frozen = A::rest_frozen;
  constexpr A dumped = A::rest_dumped;
  constexpr A none[6] = {A::remove, A::remove, A::remove, A::remove, A::remove, A::remove};
  const auto removed = [&](S state) {
    return Row{state, true, T::none, {none[0], none[1], none[2], none[3], none[4], none[5]}};
  };
  const Row rows[] = {
      removed(S::creating),
      removed(S::killing),
      removed(S::killed),
      {S::running, true, T::none, {gone, A::run, A::thaw_and_run, disk, dumped, gone}},
      {S::snapshotting, true, T::none, {gone, A::run, A::thaw_and_run, disk, dumped, gone}},
      {S::pausing, true, T::none, {gone, A::run, frozen, disk, dumped, gone}},
      {S::pausing, false, T::none, {gone, A::stop, A::stop, disk, dumped, gone}},
      {S::paused, true, T::frozen, {gone, A::freeze, frozen, disk, dumped, gone}},
      {S::paused, true, T::dumped, {gone, A::freeze, frozen, disk, dumped, gone}},
      {S::paused, false, T::none, {gone, A::stop, A::stop, disk, dumped, gone}},
      {S::resuming, true, T::frozen, {gone, A::run, frozen, disk, dumped, gone}},
      {S::resuming, true, T::dumped, {gone, A::wake_and_run, frozen, disk, dumped, gone}},
      {S::resuming, false, T::none, {gone, A::init_and_run, frozen, disk, dumped, gone}},
      {S::resuming, false, T::frozen, {gone, A::init_and_run, frozen, disk, dumped, gone}},
      {S::resuming, false, T::dumped, {gone, A::init_and_run, frozen, disk, dumped, gone}},
  };
  const std::optional<C> conditions[] = {std::nullopt, C::running, C::frozen,
                                         C::dead,      C::dumped,  C::leftover};
  for (const Row& row : rows) {
    for (int i = 0; i < 6; ++i) {
      const A decided = decide_adoption({row.state, row.memory, row.tier, false}, conditions[i]);
      EXPECT_EQ(decided, row.expected[i])
          << store::to_string(row.state) << " memory " << row.memory << " tier "
          << store::to_string(row.tier) << " condition " << i << ": " << to_string(decided);
    }
  }
  EXPECT_EQ(decide_adoption({S::running, true, T::none, true}, C::dead), A::remove)
      << "its time is over";
}

SandboxId make(Fixture& f, const std::function<void(CreateCommand&)>& change = {}) {
  auto command = f.command();
  if (change) change(command);
  auto made = f.run(f.engine->create(command));
  EXPECT_TRUE(made.ok());
  return made->record.id;
}

SandboxState state_of(Fixture& f, const SandboxId& id) {
  const auto info = f.engine->info(f.caller(), id);
  return info.ok() ? info->record.state : S::killed;
}

TEST(Adoption, EverythingIsAsItWas) {
  Fixture f;
  const SandboxId running = make(f, [](CreateCommand& command) {
    command.secure = true;
    command.metadata = {{"k", "v"}};
    command.envs = {{"A", "1"}};
    command.network = R"({"denyOut":["0.0.0.0/0"],"allowOut":["1.1.1.1"]})";
    command.mask_request_host = "masked.example";
  });
  const SandboxId frozen = make(f);
  ASSERT_TRUE(f.run(f.engine->pause(f.caller(), frozen, true)).ok());
  const SandboxId disk = make(f);
  ASSERT_TRUE(f.run(f.engine->pause(f.caller(), disk, false)).ok());
  std::map<std::string, SandboxInfo> before;
  for (const auto& id : {running, frozen, disk})
    before.emplace(id.str(), *f.engine->info(f.caller(), id));
  const std::size_t inits = f.runtime.inits().size();

  f.restart();
  for (const auto& id : {running, frozen, disk}) {
    const auto now = f.engine->info(f.caller(), id);
    ASSERT_TRUE(now.ok());
    EXPECT_EQ(now->record, before.at(id.str()).record);
    EXPECT_EQ(now->access_token, before.at(id.str()).access_token);
  }
  ASSERT_NE(f.engine->route(running), nullptr);
  EXPECT_EQ(f.engine->route(running)->spec().mask_request_host, "masked.example");
  EXPECT_EQ(f.engine->route(frozen), nullptr);
  EXPECT_EQ(f.engine->route(disk), nullptr);
  ASSERT_TRUE(Fixture::eventually([&] { return f.runtime.inits().size() == inits + 1; }))
      << "the running one was told again";
  const auto init = parse_json(f.runtime.inits().back()).value();
  EXPECT_EQ(init.at("accessToken").as_string(), *before.at(running.str()).access_token);
  EXPECT_EQ(init.at("envVars").at("A").as_string(), "1");
  EXPECT_EQ(f.runtime.network(running).deny.size(), 1u);
  const auto entry = f.engine->egress().find(f.runtime.address(running));
  ASSERT_NE(entry, nullptr);
  EXPECT_TRUE(entry->policy.allows(*Ipv4::parse("1.1.1.1")));
  EXPECT_FALSE(entry->policy.allows(*Ipv4::parse("8.8.8.8")));
  EXPECT_EQ(f.engine->statistics().adopted, 3u);

  EXPECT_TRUE(f.run(f.engine->connect(f.caller(), frozen, seconds(30))).ok());
  EXPECT_TRUE(f.run(f.engine->connect(f.caller(), disk, seconds(30))).ok());
  EXPECT_TRUE(f.run(f.engine->kill(f.caller(), running)).ok());
}

TEST(Adoption, EndsThatPassedMeanwhileTakeEffect) {
  ManualClock clock;
  Fixture f({.clock = [&] { return clock.now(); }});
  const SandboxId killed = make(f);
  const SandboxId paused = make(f, [](CreateCommand& command) { command.auto_pause = true; });
  const SandboxId alive = make(f, [](CreateCommand& command) { command.timeout = seconds(900); });
  f.run(f.engine->shutdown(milliseconds(1'000), AtShutdown::leave_sandboxes));
  clock.advance(seconds(100));
  f.restart();
  EXPECT_TRUE(Fixture::eventually([&] { return !f.runtime.condition(killed); }));
  EXPECT_TRUE(Fixture::eventually([&] { return state_of(f, paused) == S::paused; }));
  EXPECT_EQ(state_of(f, alive), S::running);
}

TEST(Adoption, WhatIsGoneIsLostAndWhatIsUnknownIsRemoved) {
  Fixture f;
  const SandboxId gone = make(f);
  f.run(f.engine->shutdown(milliseconds(1'000), AtShutdown::leave_sandboxes));
  ASSERT_TRUE(f.run(f.runtime.destroy(gone)).ok());
  const SandboxId unknown = *SandboxId::parse("iunknown");
  f.runtime.add_leftover(unknown);
  f.restart();
  EXPECT_EQ(f.engine->info(f.caller(), gone).error().code, Errc::not_found);
  EXPECT_EQ((*f.store->find_sandbox(gone))->state, S::killed);
  EXPECT_EQ(f.engine->statistics().lost, 1u);
  EXPECT_FALSE(f.runtime.condition(unknown));
}

TEST(Adoption, AfterAHostRestartTheDisksAreKept) {
  Fixture f;
  const SandboxId running = make(f);
  const SandboxId frozen = make(f);
  ASSERT_TRUE(f.run(f.engine->pause(f.caller(), frozen, true)).ok());
  for (const auto& id : {running, frozen}) ASSERT_TRUE(f.run(f.runtime.kill(id)).ok());
  f.restart();
  for (const auto& id : {running, frozen}) {
    EXPECT_EQ(state_of(f, id), S::paused);
    EXPECT_FALSE(f.engine->info(f.caller(), id)->record.memory_kept);
    EXPECT_TRUE(f.run(f.engine->connect(f.caller(), id, seconds(30))).ok());
  }
}

TEST(Adoption, AnAgentThatDoesNotAnswerIsNotThrownAway) {
  Fixture f;
  const SandboxId id = make(f);
  f.runtime.failing["init"] = 1;
  f.restart();
  EXPECT_EQ(state_of(f, id), S::running);
}

TEST(Adoption, RemainsThatCannotBeRemovedHoldUpNobody) {
  Fixture f;
  const SandboxId id = make(f);
  f.runtime.hangs_before = "destroy";
  f.begin(f.engine->kill(f.caller(), id));
  ASSERT_TRUE(Fixture::eventually([&] { return f.runtime.hung() == 1; }));
  f.runtime.failing["destroy"] = 2;
  const auto before = std::chrono::steady_clock::now();
  f.restart();
  EXPECT_LT(std::chrono::steady_clock::now() - before, milliseconds(200));
  EXPECT_EQ(f.engine->info(f.caller(), id).error().code, Errc::not_found);
  ASSERT_TRUE(Fixture::eventually([&] { return f.runtime.alive().empty(); }));
  ASSERT_TRUE(Fixture::eventually([&] { return f.store->live_sandboxes()->empty(); }));
}

// ---- the walk ----

struct Step {
  const char* operation;
  bool after;  // the effect had happened
};

// Stops a transition at one step, lets another engine start, and checks that what comes out is
// whole: nothing is lost that a client was told of, nothing is there that no row names, and it can
// be used.
class CrashWalk : public ::testing::Test {
 protected:
  void stop_at(Fixture& f, const Step& step, const std::function<void()>& begin) {
    (step.after ? f.runtime.hangs_after : f.runtime.hangs_before) = step.operation;
    const int before = f.runtime.hung();
    begin();
    ASSERT_TRUE(Fixture::eventually([&] { return f.runtime.hung() > before; }))
        << step.operation << " was not reached";
    f.restart();
  }

  static std::string name(const Step& step) {
    return std::string(step.after ? "after " : "before ") + step.operation;
  }

  void expect_consistent(Fixture& f) {
    const auto rows = f.store->live_sandboxes();
    ASSERT_TRUE(rows.ok());
    std::set<std::string> recorded;
    for (const auto& row : *rows) {
      recorded.insert(row.id.str());
      EXPECT_TRUE(row.state == S::running || row.state == S::paused) << store::to_string(row.state);
      const auto info = f.engine->info(f.caller(), row.id);
      ASSERT_TRUE(info.ok());
      EXPECT_EQ(info->record, row) << "memory and store agree";
      const auto condition = f.runtime.condition(row.id);
      ASSERT_TRUE(condition);
      if (row.state == S::running) {
        EXPECT_EQ(*condition, C::running);
        EXPECT_NE(f.engine->route(row.id), nullptr);
      } else {
        EXPECT_EQ(*condition, row.memory_kept ? C::frozen : C::dead);
        EXPECT_EQ(f.engine->route(row.id), nullptr);
      }
    }
    EXPECT_EQ(f.runtime.alive(), recorded);
  }

  // Whatever state it is in, a client gets it back and can end it.
  void expect_usable(Fixture& f, const SandboxId& id) {
    auto connected = f.run(f.engine->connect(f.caller(), id, seconds(60)));
    ASSERT_TRUE(connected.ok()) << connected.error().message;
    EXPECT_EQ(f.runtime.condition(id), C::running);
    ASSERT_TRUE(f.run(f.engine->pause(f.caller(), id, true)).ok());
    ASSERT_TRUE(f.run(f.engine->kill(f.caller(), id)).ok());
    EXPECT_TRUE(f.runtime.alive().empty());
    EXPECT_TRUE(f.store->live_sandboxes()->empty());
  }
};

TEST_F(CrashWalk, Create) {
  for (const Step& step :
       {Step{"create", false}, {"create", true}, {"init", false}, {"init", true}}) {
    SCOPED_TRACE(name(step));
    Fixture f;
    stop_at(f, step, [&] { f.begin(f.engine->create(f.command())); });
    expect_consistent(f);
    EXPECT_TRUE(f.runtime.alive().empty()) << "no client was told of it";
    EXPECT_EQ(f.engine->live(), 0u);
  }
}

TEST_F(CrashWalk, Kill) {
  for (const Step& step : {Step{"destroy", false}, {"destroy", true}}) {
    SCOPED_TRACE(name(step));
    Fixture f;
    const SandboxId id = make(f);
    stop_at(f, step, [&] { f.begin(f.engine->kill(f.caller(), id)); });
    expect_consistent(f);
    EXPECT_TRUE(f.runtime.alive().empty());
    EXPECT_EQ(f.engine->info(f.caller(), id).error().code, Errc::not_found);
  }
}

TEST_F(CrashWalk, PauseWithMemory) {
  for (const Step& step : {Step{"freeze", false}, {"freeze", true}}) {
    SCOPED_TRACE(name(step));
    Fixture f;
    const SandboxId id = make(f);
    stop_at(f, step, [&] { f.begin(f.engine->pause(f.caller(), id, true)); });
    expect_consistent(f);
    EXPECT_EQ(state_of(f, id), step.after ? S::paused : S::running);
    expect_usable(f, id);
  }
}

TEST_F(CrashWalk, PauseWithoutMemory) {
  for (const Step& step : {Step{"kill", false}, {"kill", true}}) {
    SCOPED_TRACE(name(step));
    Fixture f;
    const SandboxId id = make(f);
    stop_at(f, step, [&] { f.begin(f.engine->pause(f.caller(), id, false)); });
    expect_consistent(f);
    EXPECT_EQ(state_of(f, id), S::paused);
    expect_usable(f, id);
  }
}

TEST_F(CrashWalk, Thaw) {
  for (const Step& step : {Step{"thaw", false}, {"thaw", true}}) {
    SCOPED_TRACE(name(step));
    Fixture f;
    const SandboxId id = make(f);
    ASSERT_TRUE(f.run(f.engine->pause(f.caller(), id, true)).ok());
    stop_at(f, step, [&] { f.begin(f.engine->connect(f.caller(), id, seconds(60))); });
    expect_consistent(f);
    EXPECT_EQ(state_of(f, id), step.after ? S::running : S::paused);
    if (step.after) {
      const auto record = f.engine->info(f.caller(), id)->record;
      EXPECT_GT(record.end_at, now() + seconds(50)) << "with the end that was asked for";
    }
    expect_usable(f, id);
  }
}

TEST_F(CrashWalk, BootFromDisk) {
  for (const Step& step : {Step{"kill", false},
                           {"kill", true},
                           {"create", false},
                           {"create", true},
                           {"init", false},
                           {"init", true}}) {
    SCOPED_TRACE(name(step));
    Fixture f;
    const SandboxId id = make(f, [](CreateCommand& command) { command.secure = true; });
    ASSERT_TRUE(f.run(f.engine->pause(f.caller(), id, false)).ok());
    stop_at(f, step, [&] { f.begin(f.engine->connect(f.caller(), id, seconds(60))); });
    expect_consistent(f);
    if (state_of(f, id) == S::running) {
      const auto init = parse_json(f.runtime.inits().back()).value();
      EXPECT_TRUE(init.as_object().contains("accessToken")) << "it never runs without its token";
    }
    expect_usable(f, id);
  }
}

TEST_F(CrashWalk, ColdBootOfAFrozenOne) {
  for (const Step& step : {Step{"kill", false},
                           {"kill", true},
                           {"create", false},
                           {"create", true},
                           {"init", false},
                           {"init", true}}) {
    SCOPED_TRACE(name(step));
    Fixture f;
    const SandboxId id = make(f);
    ASSERT_TRUE(f.run(f.engine->pause(f.caller(), id, true)).ok());
    stop_at(f, step,
            [&] { f.begin(f.engine->connect(f.caller(), id, seconds(60), Revive::cold)); });
    expect_consistent(f);
    expect_usable(f, id);
  }
}

TEST_F(CrashWalk, NetworkUpdate) {
  for (const Step& step : {Step{"set_network", false}, {"set_network", true}}) {
    SCOPED_TRACE(name(step));
    Fixture f;
    const SandboxId id = make(f);
    stop_at(f, step, [&] {
      f.begin(f.engine->update_network(f.caller(), id, {.egress = R"({"denyOut":["0.0.0.0/0"]})"}));
    });
    expect_consistent(f);
    EXPECT_EQ(f.runtime.network(id).deny.size(), 1u) << "what the row says is in force";
    expect_usable(f, id);
  }
}

}  // namespace
}  // namespace atl::engine
