// The server dies at every step of what moves memory to files and back: what comes out is the state
// before or after, whole, and can be used.
#include <gtest/gtest.h>

#include "engine/testing/memory.h"

namespace atl::engine {
namespace {

using runtime::Condition;
using std::chrono::seconds;
using store::MemoryTier;
using store::SandboxState;
using testing::ManualClock;
using testing::MemoryFixture;

struct Step {
  const char* operation;
  bool after;
};

class DumpCrash : public ::testing::Test {
 protected:
  static void stop_at(MemoryFixture& f, const Step& step, const std::function<void()>& begin) {
    (step.after ? f.runtime.hangs_after : f.runtime.hangs_before) = step.operation;
    begin();
    ASSERT_TRUE(f.eventually([&] { return f.runtime.hung() > 0; })) << step.operation;
    f.restart();
  }
  static std::string name(const Step& step) {
    return std::string(step.after ? "after " : "before ") + step.operation;
  }
  static void expect_whole(MemoryFixture& f, const SandboxId& id) {
    const auto record = f.record(id);
    if (record.state == SandboxState::running) {
      EXPECT_EQ(f.runtime.condition(id), Condition::running);
      EXPECT_NE(f.engine->route(id), nullptr);
    } else {
      ASSERT_EQ(record.state, SandboxState::paused);
      EXPECT_TRUE(record.memory_kept) << "nothing was lost";
      EXPECT_TRUE(f.eventually([&] { return f.tier(id) == MemoryTier::dumped; }));
      EXPECT_EQ(f.runtime.condition(id), Condition::dumped);
      EXPECT_EQ(f.engine->route(id), nullptr);
    }
    const auto connected = f.connect(id);
    ASSERT_TRUE(connected.ok()) << connected.error().message;
    EXPECT_EQ(f.runtime.condition(id), Condition::running);
    EXPECT_EQ(**f.store->find_sandbox(id), f.record(id));
    ASSERT_TRUE(f.pause(id).ok());
    ASSERT_TRUE(f.run(f.engine->kill(f.caller(), id)).ok());
    EXPECT_TRUE(f.runtime.alive().empty());
  }
};

TEST_F(DumpCrash, Pause) {
  for (const Step& step : {Step{"suspend", false},
                           {"suspend", true},
                           {"freeze", false},
                           {"freeze", true},
                           {"dump", false},
                           {"dump", true}}) {
    SCOPED_TRACE(name(step));
    MemoryFixture f;
    const SandboxId id = f.make();
    stop_at(f, step, [&] { f.begin(f.engine->pause(f.caller(), id, true)); });
    const bool frozen = std::string(step.operation) == "dump" ||
                        (std::string(step.operation) == "freeze" && step.after);
    EXPECT_EQ(f.state(id), frozen ? SandboxState::paused : SandboxState::running);
    expect_whole(f, id);
  }
}

TEST_F(DumpCrash, Restore) {
  for (const Step& step :
       {Step{"create", false}, {"create", true}, {"wake", false}, {"wake", true}}) {
    SCOPED_TRACE(name(step));
    MemoryFixture f;
    const SandboxId id = f.make([](CreateCommand& command) { command.secure = true; });
    ASSERT_TRUE(f.pause(id).ok());
    stop_at(f, step, [&] { f.begin(f.engine->connect(f.caller(), id, seconds(60))); });
    const bool there = std::string(step.operation) == "wake" || step.after;
    EXPECT_EQ(f.state(id), there ? SandboxState::running : SandboxState::paused);
    if (there) EXPECT_FALSE(f.runtime.wakes().empty()) << "it never runs without being told";
    expect_whole(f, id);
  }
}

TEST_F(DumpCrash, RestoreThatIsNeverTold) {
  MemoryFixture f;
  const SandboxId id = f.make();
  ASSERT_TRUE(f.pause(id).ok());
  f.runtime.failing["wake"] = 1;
  stop_at(f, {"create", true}, [&] { f.begin(f.engine->connect(f.caller(), id, seconds(60))); });
  EXPECT_EQ(f.state(id), SandboxState::paused);
  expect_whole(f, id);
}

TEST_F(DumpCrash, ColdBootOfADumpedOne) {
  for (const Step& step : {Step{"kill", false}, {"kill", true}, {"create", false}}) {
    SCOPED_TRACE(name(step));
    MemoryFixture f;
    const SandboxId id = f.make();
    ASSERT_TRUE(f.pause(id).ok());
    stop_at(f, step,
            [&] { f.begin(f.engine->connect(f.caller(), id, seconds(60), Revive::cold)); });
    EXPECT_EQ(f.state(id), SandboxState::paused);
    const bool kept = std::string(step.operation) == "kill" && !step.after;
    EXPECT_EQ(f.record(id).memory_kept, kept);
    EXPECT_EQ(f.tier(id), kept ? MemoryTier::dumped : MemoryTier::none);
    EXPECT_TRUE(f.connect(id).ok());
  }
}

TEST_F(DumpCrash, LaterDump) {
  for (const Step& step : {Step{"thaw", false},
                           {"thaw", true},
                           {"suspend", false},
                           {"suspend", true},
                           {"freeze", false},
                           {"freeze", true},
                           {"dump", false},
                           {"dump", true}}) {
    SCOPED_TRACE(name(step));
    ManualClock clock;
    MemoryFixture f({.keep_frozen = seconds(30), .clock = [&] { return clock.now(); }});
    const SandboxId id = f.make();
    ASSERT_TRUE(f.pause(id).ok());
    stop_at(f, step, [&] { clock.advance(seconds(31)); });
    EXPECT_EQ(f.state(id), SandboxState::paused) << "all the while";
    clock.advance(seconds(31));
    EXPECT_TRUE(f.eventually([&] { return f.tier(id) == MemoryTier::dumped; }));
    EXPECT_TRUE(f.connect(id).ok());
  }
}

TEST_F(DumpCrash, AfterARebootOfTheHostDumpedOnesComeBack) {
  MemoryFixture f;
  const SandboxId dumped = f.make();
  const SandboxId running = f.make();
  ASSERT_TRUE(f.pause(dumped).ok());
  f.run(f.engine->shutdown(std::chrono::milliseconds(1'000), AtShutdown::leave_sandboxes));
  f.runtime.set_condition(running, Condition::dead);
  f.restart();
  EXPECT_EQ(f.tier(dumped), MemoryTier::dumped);
  EXPECT_FALSE(f.record(running).memory_kept);
  EXPECT_TRUE(f.connect(dumped).ok());
  EXPECT_EQ(f.runtime.wakes().size(), 1u);
}

}  // namespace
}  // namespace atl::engine
