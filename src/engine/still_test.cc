// A sandbox that stands still for a moment.
#include <gtest/gtest.h>

#include <future>

#include "engine/testing/fixture.h"

namespace atl::engine {

// Does what snapshots and forks do, without what they keep.
class EngineProbe {
 public:
  static net::Task<Result<std::chrono::microseconds>> hold_still(
      Engine& engine, Caller caller, SandboxId id, std::function<net::Task<Result<void>>()> work) {
    Engine::SandboxPtr sandbox;
    Engine::TransitionPtr transition;
    {
      std::lock_guard lock(engine.mutex_);
      ATOLL_CO_TRY_ASSIGN(sandbox, engine.find_locked(caller, id));
      ATOLL_CO_TRY_ASSIGN(transition, engine.begin_snapshot_locked(sandbox, caller));
    }
    auto holding = engine.hold_still(sandbox, transition, true, std::move(work));
    co_return co_await std::move(holding);
  }
};

namespace {

using runtime::Condition;
using testing::Fixture;

struct StillTest : ::testing::Test {
  Fixture f;
  SandboxId make(bool auto_pause = false) {
    auto command = f.command();
    command.auto_pause = auto_pause;
    return f.run(f.engine->create(command))->record.id;
  }
  store::SandboxState state(const SandboxId& id) {
    return f.engine->info(f.caller(), id)->record.state;
  }
  // Work that goes on until `go` is set.
  std::shared_ptr<std::atomic<bool>> go = std::make_shared<std::atomic<bool>>(false);
  std::shared_ptr<std::atomic<int>> begun = std::make_shared<std::atomic<int>>(0);
  std::function<net::Task<Result<void>>()> waiting(Result<void> outcome = {}) {
    return [go = go, begun = begun, outcome]() -> net::Task<Result<void>> {
      ++*begun;
      net::asio::steady_timer timer(co_await net::asio::this_coro::executor);
      while (!*go) {
        timer.expires_after(std::chrono::milliseconds(1));
        co_await timer.async_wait(net::asio::use_awaitable);
      }
      co_return outcome;
    };
  }
  template <class T>
  std::future<T> later(net::Task<T> task) {
    return std::async(std::launch::async,
                      [this, task = std::make_shared<net::Task<T>>(std::move(task))] {
                        return f.run(std::move(*task));
                      });
  }
};

TEST_F(StillTest, ItIsFrozenAndLetGoDuringTheWorkAndRunsAfterwards) {
  const SandboxId id = make();
  const auto before = f.engine->route(id);
  bool dead = false;
  const auto subscription = Route::subscribe(before, [&] { dead = true; });
  auto still = later(EngineProbe::hold_still(*f.engine, f.caller(), id, waiting()));
  ASSERT_TRUE(f.eventually([&] { return *begun == 1; }));
  EXPECT_EQ(state(id), store::SandboxState::snapshotting);
  EXPECT_EQ(f.runtime.condition(id), Condition::frozen);
  EXPECT_EQ(f.runtime.suspends(), 1);
  EXPECT_EQ(f.engine->route(id), nullptr);
  EXPECT_TRUE(dead) << "what led inside has ended";
  EXPECT_EQ(f.run(f.engine->resume({f.caller(), id})).error().code, Errc::failed_precondition);
  ListQuery running;
  running.team_id = f.caller().team_id;
  running.paused = false;
  EXPECT_EQ(f.engine->list(running).items.size(), 1u);
  *go = true;
  const auto took = still.get();
  ASSERT_TRUE(took.ok()) << took.error().message;
  EXPECT_GT(took->count(), 0);
  EXPECT_EQ(state(id), store::SandboxState::running);
  EXPECT_EQ(f.runtime.condition(id), Condition::running);
  ASSERT_NE(f.engine->route(id), nullptr);
  EXPECT_NE(f.engine->route(id), before);
}

TEST_F(StillTest, AnErrorOfTheWorkIsToldAndItRunsOn) {
  const SandboxId id = make();
  *go = true;
  auto done = f.run(EngineProbe::hold_still(*f.engine, f.caller(), id,
                                            waiting(make_error(Errc::failed_precondition, "no"))));
  EXPECT_EQ(done.error().code, Errc::failed_precondition);
  EXPECT_EQ(state(id), store::SandboxState::running);
  EXPECT_EQ(f.runtime.condition(id), Condition::running);
}

TEST_F(StillTest, WhoIsLateToLetGoIsWaitedForOnce) {
  const SandboxId id = make();
  const auto refused_first = [&](int times) {
    return [times, begun = begun]() -> net::Task<Result<void>> {
      if (++*begun > times) co_return Result<void>();
      co_return make_error(Errc::failed_precondition, "snapshot.write: outside_socket: process 1");
    };
  };
  EXPECT_TRUE(f.run(EngineProbe::hold_still(*f.engine, f.caller(), id, refused_first(1))).ok());
  EXPECT_EQ(*begun, 2);
  EXPECT_EQ(f.runtime.suspends(), 2);
  EXPECT_EQ(f.runtime.condition(id), Condition::running);
  *begun = 0;
  EXPECT_EQ(
      f.run(EngineProbe::hold_still(*f.engine, f.caller(), id, refused_first(2))).error().code,
      Errc::failed_precondition);
  EXPECT_EQ(*begun, 2);
  EXPECT_EQ(state(id), store::SandboxState::running);
  EXPECT_EQ(f.runtime.condition(id), Condition::running);
}

TEST_F(StillTest, AFreezeThatFailsLeavesItRunning) {
  const SandboxId id = make();
  f.runtime.failing["freeze"] = 1;
  EXPECT_FALSE(f.run(EngineProbe::hold_still(*f.engine, f.caller(), id, waiting())).ok());
  EXPECT_EQ(*begun, 0);
  EXPECT_EQ(state(id), store::SandboxState::running);
}

TEST_F(StillTest, OneThatCannotBeThawedIsPausedWithItsMemory) {
  const SandboxId id = make();
  *go = true;
  f.runtime.failing["thaw"] = 4;
  EXPECT_FALSE(f.run(EngineProbe::hold_still(*f.engine, f.caller(), id, waiting())).ok());
  EXPECT_EQ(state(id), store::SandboxState::paused);
  EXPECT_TRUE(f.run(f.engine->connect(f.caller(), id, std::chrono::seconds(60))).ok());
  EXPECT_EQ(state(id), store::SandboxState::running);
}

TEST_F(StillTest, PauseConnectTrafficWait) {
  const SandboxId id = make();
  auto still = later(EngineProbe::hold_still(*f.engine, f.caller(), id, waiting()));
  ASSERT_TRUE(f.eventually([&] { return *begun == 1; }));
  EXPECT_EQ(f.run(EngineProbe::hold_still(*f.engine, f.caller(), id, waiting())).error().code,
            Errc::failed_precondition);
  auto connect = later(f.engine->connect(f.caller(), id, std::chrono::seconds(60)));
  WakeRequest request{.id = id};
  auto wake = later(f.engine->wake(request));
  EXPECT_TRUE(f.engine->set_timeout(f.caller(), id, std::chrono::seconds(500)).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(*begun, 1);
  *go = true;
  EXPECT_TRUE(still.get().ok());
  const auto connected = connect.get();
  ASSERT_TRUE(connected.ok());
  EXPECT_FALSE(connected->resumed);
  EXPECT_TRUE(wake.get().ok());
  *go = false;
  auto third = later(EngineProbe::hold_still(*f.engine, f.caller(), id, waiting()));
  ASSERT_TRUE(f.eventually([&] { return *begun == 2; }));
  auto pause = later(f.engine->pause(f.caller(), id, true));
  *go = true;
  EXPECT_TRUE(third.get().ok());
  EXPECT_TRUE(pause.get().ok());
  EXPECT_EQ(state(id), store::SandboxState::paused);
  EXPECT_EQ(f.run(EngineProbe::hold_still(*f.engine, f.caller(), id, waiting())).error().code,
            Errc::failed_precondition);
}

TEST_F(StillTest, AKillWaitsForTheWork) {
  const SandboxId id = make();
  auto still = later(EngineProbe::hold_still(*f.engine, f.caller(), id, waiting()));
  ASSERT_TRUE(f.eventually([&] { return *begun == 1; }));
  auto kill = later(f.engine->kill(f.caller(), id));
  ASSERT_TRUE(f.eventually([&] { return !f.engine->info(f.caller(), id).ok(); }));
  EXPECT_EQ(f.runtime.condition(id), Condition::frozen) << "nobody pulls it away from the work";
  *go = true;
  EXPECT_TRUE(still.get().ok()) << "the work was done";
  EXPECT_TRUE(kill.get().ok());
  EXPECT_FALSE(f.runtime.condition(id));
}

TEST_F(StillTest, AnAgentThatEndsMeanwhileIsTheEndOfTheSandbox) {
  const SandboxId id = make();
  auto still = later(EngineProbe::hold_still(*f.engine, f.caller(), id, waiting()));
  ASSERT_TRUE(f.eventually([&] { return *begun == 1; }));
  f.runtime.exit(id);
  f.runtime.set_condition(id, Condition::frozen);  // the thaw finds nothing amiss
  *go = true;
  (void)still.get();
  EXPECT_TRUE(f.eventually([&] { return !f.runtime.condition(id); }));
}

TEST_F(StillTest, AfterARestartItRuns) {
  const SandboxId id = make();
  f.runtime.hangs_before = "thaw";
  *go = true;
  f.begin(EngineProbe::hold_still(*f.engine, f.caller(), id, waiting()));
  ASSERT_TRUE(f.eventually([&] { return f.runtime.hung() == 1; }));
  f.restart();
  EXPECT_EQ(state(id), store::SandboxState::running);
  EXPECT_EQ(f.runtime.condition(id), Condition::running);
  EXPECT_NE(f.engine->route(id), nullptr);
}

}  // namespace
}  // namespace atl::engine
