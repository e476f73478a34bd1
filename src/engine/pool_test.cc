// Sandboxes made ahead: what a create gets, what is put back, what is thrown away.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "engine/testing/fixture.h"

namespace atl::engine {
namespace {

using std::chrono::milliseconds;
using testing::Fixture;

constexpr const char* kInterpreterId = "interpreter012345678";

EngineOptions pooled(std::size_t ready, std::size_t skeletons) {
  EngineOptions options;
  options.pool.ready = ready;
  options.pool.skeletons = skeletons;
  options.pool.zygotes = true;
  options.pool.quiet = milliseconds(1);
  options.pool.look_every = milliseconds(20);
  options.pool.memory = [] { return Memory{8ull << 30, 16ull << 30}; };
  return options;
}

PoolFigures figures(const Fixture& f, const std::string& name = "base") {
  for (const PoolFigures& one : f.engine->statistics().pool.templates) {
    if (one.name == name) return one;
  }
  return {};
}

std::size_t count(const Fixture& f, const std::string& call) {
  const auto calls = f.runtime.calls();
  return std::size_t(std::count(calls.begin(), calls.end(), call));
}

struct Interpreter : Fixture {
  explicit Interpreter(EngineOptions options) : Fixture(std::move(options), false) {
    home.add_template("ci-1", kInterpreterId, "code-interpreter-v1", 1, R"("zygote":true,)");
    runtime.warm_status = 204;
  }
  CreateCommand interpreter() const {
    CreateCommand out = command();
    out.template_reference = "code-interpreter-v1";
    return out;
  }
  bool filled(std::size_t ready, std::size_t skeletons) const {
    return eventually([&] {
      const PoolFigures now = figures(*this, "code-interpreter-v1");
      return now.ready == ready && now.skeletons == skeletons;
    });
  }
};

TEST(Pool, NothingIsMadeAheadUnlessAskedFor) {
  Fixture f;
  ASSERT_TRUE(f.run(f.engine->create(f.command())).ok());
  EXPECT_EQ(count(f, "create"), 1u);
  EXPECT_TRUE(f.engine->statistics().pool.templates.empty());
}

TEST(Pool, ACreateTakesASkeletonAndItIsReplaced) {
  Fixture f(pooled(0, 2));
  ASSERT_TRUE(f.eventually([&] { return figures(f).skeletons == 2; }));
  const auto waiting = f.runtime.alive();
  EXPECT_EQ(f.engine->live(), 0u) << "nobody's";
  EXPECT_TRUE(f.store->live_sandboxes()->empty()) << "no row names them";

  CreateCommand command = f.command();
  command.envs = {{"A", "1"}};
  auto made = f.run(f.engine->create(std::move(command)));
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_TRUE(waiting.contains(made->record.id.str()));
  EXPECT_EQ(f.engine->live(), 1u);
  // Told who it is, as any other; its row has the boot that it really has.
  ASSERT_EQ(f.runtime.inits().size(), 1u);
  EXPECT_THAT(f.runtime.inits()[0], ::testing::HasSubstr(made->record.id.str()));
  EXPECT_THAT(f.runtime.inits()[0], ::testing::HasSubstr(R"("A":"1")"));
  const auto row = f.store->find_sandbox(made->record.id);
  ASSERT_TRUE(row.ok() && *row);
  EXPECT_EQ((*row)->state, SandboxState::running);
  const auto specs = f.runtime.specs();
  const auto spec = std::find_if(specs.begin(), specs.end(),
                                 [&](const auto& one) { return one.id == made->record.id; });
  ASSERT_NE(spec, specs.end());
  EXPECT_EQ((*row)->boot_id, spec->boot_id);
  EXPECT_EQ(spec->limits.memory_bytes, 512ull << 20);
  EXPECT_EQ(count(f, "set_network"), 0u) << "the policy is the one it was made with";
  EXPECT_NE(f.engine->egress().find(f.runtime.address(made->record.id)), nullptr);

  ASSERT_TRUE(f.eventually([&] { return figures(f).skeletons == 2; }));
  EXPECT_EQ(figures(f).skeleton_hits, 1u);
  EXPECT_EQ(f.run(f.engine->kill(f.caller(), made->record.id)).ok(), true);
  ASSERT_TRUE(f.eventually([&] { return f.runtime.alive().size() == 2; }));
}

TEST(Pool, APolicyIsInForceBeforeTheAgentHearsOfAnything) {
  Fixture f(pooled(0, 1));
  ASSERT_TRUE(f.eventually([&] { return figures(f).skeletons == 1; }));
  CreateCommand command = f.command();
  command.allow_internet = false;
  auto made = f.run(f.engine->create(std::move(command)));
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(f.runtime.network(made->record.id).deny.size(), 1u);
  const auto calls = f.runtime.calls();
  const auto set = std::find(calls.begin(), calls.end(), "set_network");
  ASSERT_NE(set, calls.end());
  EXPECT_EQ(std::find(calls.begin(), set, "init"), set) << "the policy comes first";
}

TEST(Pool, APolicyThatCannotBeSetEndsThatSandbox) {
  Fixture f(pooled(0, 1));
  ASSERT_TRUE(f.eventually([&] { return figures(f).skeletons == 1; }));
  const std::string first = *f.runtime.alive().begin();
  f.runtime.failing["set_network"] = 1;
  CreateCommand command = f.command();
  command.allow_internet = false;
  auto made = f.run(f.engine->create(std::move(command)));
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_NE(made->record.id.str(), first);
  EXPECT_EQ(f.runtime.network(made->record.id).deny.size(), 1u);
  EXPECT_FALSE(f.runtime.alive().contains(first));
}

TEST(Pool, AnotherLimitOfMemoryIsInForceBeforeTheAgentHearsOfAnything) {
  Fixture f(pooled(0, 1));
  ASSERT_TRUE(f.eventually([&] { return figures(f).skeletons == 1; }));
  const std::string first = *f.runtime.alive().begin();
  CreateCommand command = f.command();
  command.memory_mb = 256;
  auto made = f.run(f.engine->create(command));
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(made->record.id.str(), first);
  EXPECT_EQ(made->record.memory_mb, 256u);
  EXPECT_EQ(f.runtime.memory(made->record.id), 256ull << 20);
  const auto calls = f.runtime.calls();
  const auto set = std::find(calls.begin(), calls.end(), "set_memory");
  ASSERT_NE(set, calls.end());
  EXPECT_EQ(std::find(calls.begin(), set, "init"), set) << "the limit comes first";

  // Where it cannot be set the next one is made with it.
  f.runtime.failing["set_memory"] = 100;
  auto booted = f.run(f.engine->create(command));
  ASSERT_TRUE(booted.ok()) << booted.error().message;
  EXPECT_EQ(f.runtime.memory(booted->record.id), 256ull << 20);

  command.memory_mb = kMinMemoryMb - 1;
  EXPECT_EQ(f.run(f.engine->create(command)).error().code, Errc::invalid_argument);
}

TEST(Pool, ReadyOnesHaveAWarmKernel) {
  Interpreter f(pooled(2, 1));
  f.start();
  ASSERT_TRUE(f.filled(2, 1));
  EXPECT_EQ(count(f, "prepare"), 1u);
  EXPECT_EQ(count(f, "warm"), 2u) << "skeletons get theirs at the hand-out";
  ASSERT_TRUE(f.run(f.engine->create(f.interpreter())).ok());
  EXPECT_EQ(figures(f, "code-interpreter-v1").ready_hits, 1u);
  const PoolStatistics pool = f.engine->statistics().pool;
  EXPECT_EQ(pool.zygotes, 1u);
  EXPECT_GE(pool.warm_seconds.size(), 2u);
  EXPECT_GE(pool.ready_seconds.size(), 2u);
}

TEST(Pool, WithoutAnInterpreterThereAreSkeletonsOnly) {
  Fixture f(pooled(2, 2));
  ASSERT_TRUE(f.eventually([&] { return figures(f).skeletons == 2; }));
  EXPECT_EQ(figures(f).ready_target, 0u) << "the first agent said so";
  EXPECT_EQ(figures(f).refill_failures, 0u);
  EXPECT_EQ(count(f, "create"), 2u);
}

TEST(Pool, SkeletonsAndBootsAreWarmedOnTheWay) {
  Interpreter f(pooled(0, 1));
  f.start();
  ASSERT_TRUE(f.filled(0, 1));
  ASSERT_TRUE(f.eventually([&] { return f.engine->statistics().pool.zygotes == 1; }));
  EXPECT_EQ(count(f, "warm"), 0u);
  ASSERT_TRUE(f.run(f.engine->create(f.interpreter())).ok());
  EXPECT_EQ(count(f, "warm"), 1u);

  Interpreter g(pooled(0, 0));
  g.start();
  ASSERT_TRUE(g.eventually([&] { return g.engine->statistics().pool.zygotes == 1; }));
  g.runtime.failing["warm"] = 1;
  ASSERT_TRUE(g.run(g.engine->create(g.interpreter())).ok()) << "a cold kernel is a kernel";
  ASSERT_TRUE(g.run(g.engine->create(g.interpreter())).ok());
  EXPECT_EQ(count(g, "warm"), 2u);
  EXPECT_EQ(g.engine->statistics().pool.warm_failures, 1u);
}

// A zygote whose fork is cut off has to be replaced.
TEST(Pool, AKillWaitsForANurseryOnItsWay) {
  Interpreter f(pooled(0, 0));
  f.runtime.durable = true;
  f.start();
  ASSERT_TRUE(f.eventually([&] { return f.engine->statistics().pool.zygotes == 1; }));
  for (const bool arrives : {true, false}) {
    auto made = f.run(f.engine->create(f.interpreter()));
    ASSERT_TRUE(made.ok());
    const SandboxId id = made->record.id;
    ASSERT_TRUE(f.run(f.engine->pause(f.caller(), id, true)).ok());
    const std::size_t before = count(f, "warm");
    f.runtime.hold("warm");
    ASSERT_TRUE(f.run(f.engine->connect(f.caller(), id, std::chrono::seconds(60))).ok());
    ASSERT_TRUE(f.eventually([&] { return count(f, "warm") > before; }));
    auto kill =
        std::async(std::launch::async, [&] { return f.run(f.engine->kill(f.caller(), id)); });
    EXPECT_EQ(kill.wait_for(milliseconds(50)), std::future_status::timeout);
    if (arrives) f.runtime.release();
    EXPECT_TRUE(kill.get().ok()) << "it does not wait for ever";
    f.runtime.release();
  }
  EXPECT_TRUE(f.runtime.alive().empty());
}

TEST(Pool, AKernelThatDoesNotWarmLeavesASkeleton) {
  Interpreter f(pooled(2, 2));
  f.runtime.warm_status = 503;
  f.start();
  ASSERT_TRUE(f.filled(0, 2));
  EXPECT_GE(figures(f, "code-interpreter-v1").refill_failures, 1u);
  ASSERT_TRUE(f.run(f.engine->create(f.interpreter())).ok());
}

TEST(Pool, ZygotesAreStartedAgain) {
  Interpreter f(pooled(1, 0));
  f.runtime.failing["prepare"] = 1;
  f.start();
  ASSERT_TRUE(f.filled(1, 0));
  EXPECT_EQ(count(f, "prepare"), 2u);
}

TEST(Pool, OneThatDiedIsReplacedAndOneThatIsNoGoodIsPassedOver) {
  Fixture f(pooled(0, 2));
  ASSERT_TRUE(f.eventually([&] { return figures(f).skeletons == 2; }));
  const std::string first = *f.runtime.alive().begin();
  f.runtime.exit(*SandboxId::parse(first));
  ASSERT_TRUE(f.eventually(
      [&] { return !f.runtime.alive().contains(first) && figures(f).skeletons == 2; }));
  EXPECT_EQ(figures(f).died, 1u);

  f.runtime.failing["init"] = 1;
  auto made = f.run(f.engine->create(f.command()));
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(f.engine->live(), 1u);
  EXPECT_EQ(f.engine->statistics().create_failures, 0u);
  EXPECT_EQ(f.store->live_sandboxes()->size(), 1u);

  // All of them are no good, and then it is booted.
  ASSERT_TRUE(f.eventually([&] { return figures(f).skeletons == 2; }));
  f.runtime.failing["init"] = 2;
  ASSERT_TRUE(f.run(f.engine->create(f.command())).ok());
}

TEST(Pool, AFailureOfEverythingIsTold) {
  Fixture f(pooled(0, 1));
  ASSERT_TRUE(f.eventually([&] { return figures(f).skeletons == 1; }));
  f.runtime.failing["init"] = 100;
  auto made = f.run(f.engine->create(f.command()));
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(f.engine->statistics().create_failures, 1u);
  EXPECT_TRUE(f.eventually([&] { return f.engine->live() == 0; }));
}

TEST(Pool, LimitsAndMemoryBoundIt) {
  EngineOptions few = pooled(0, 8);
  few.max_sandboxes = 3;
  Fixture f(few);
  ASSERT_TRUE(f.eventually([&] { return figures(f).skeletons == 3; }));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(f.run(f.engine->create(f.command())).ok());
  ASSERT_TRUE(f.eventually([&] { return figures(f).skeletons == 0; })) << "creates need the places";
  EXPECT_EQ(f.run(f.engine->create(f.command())).error().code, Errc::resource_exhausted);

  auto memory = std::make_shared<std::atomic<std::uint64_t>>(8ull << 30);
  EngineOptions tight = pooled(0, 2);
  tight.pool.memory = [memory] { return Memory{*memory, 16ull << 30}; };
  Fixture g(tight);
  ASSERT_TRUE(g.eventually([&] { return figures(g).skeletons == 2; }));
  *memory = 1 << 20;
  ASSERT_TRUE(g.eventually([&] { return g.runtime.alive().empty(); })) << "given back";
}

TEST(Pool, OldOnesAndThoseOfAnOldBuildGo) {
  EngineOptions options = pooled(0, 1);
  options.pool.max_age = milliseconds(150);
  Fixture f(options);
  ASSERT_TRUE(f.eventually([&] { return f.runtime.alive().size() == 1; }));
  const std::string first = *f.runtime.alive().begin();
  ASSERT_TRUE(f.eventually(
      [&] { return !f.runtime.alive().contains(first) && f.runtime.alive().size() == 1; }));

  Fixture g(pooled(0, 1));
  ASSERT_TRUE(g.eventually([&] { return figures(g).skeletons == 1; }));
  const std::string old = *g.runtime.alive().begin();
  g.home.add_template("base-2", testing::kTemplateId, "base", 2);
  std::filesystem::remove_all(g.home.path() / "templates" / "base-1");
  ASSERT_TRUE(g.eventually(
      [&] { return !g.runtime.alive().contains(old) && g.runtime.alive().size() == 1; }));
  EXPECT_EQ(g.runtime.specs().back().template_id, "base-2");
}

TEST(Pool, OtherTemplatesAreKeptFromTheirFirstCreateOn) {
  Fixture f(pooled(0, 1), false);
  f.home.add_template("mine-1", "mine0123456789012345", "mine", 1);
  f.start();
  ASSERT_TRUE(f.eventually([&] { return figures(f).skeletons == 1; }));
  EXPECT_EQ(figures(f, "mine").skeletons, 0u);
  CreateCommand command = f.command();
  command.template_reference = "mine";
  ASSERT_TRUE(f.run(f.engine->create(std::move(command))).ok());
  ASSERT_TRUE(f.eventually([&] { return figures(f, "mine").skeletons == 1; }));
}

TEST(Pool, ABurstMakesItGrow) {
  Fixture f(pooled(0, 2));
  ASSERT_TRUE(f.eventually([&] { return figures(f).skeletons == 2; }));
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(f.run(f.engine->create(f.command())).ok());
  EXPECT_EQ(figures(f).skeleton_target, 8u) << "four times the floor";
  ASSERT_TRUE(f.eventually([&] { return figures(f).skeletons == 8; }));
}

TEST(Pool, BootsThatFailAreTriedLater) {
  Fixture f(pooled(0, 1), false);
  f.runtime.failing["create"] = 1;
  f.start();
  ASSERT_TRUE(f.eventually([&] { return figures(f).refill_failures == 1; }));
  ASSERT_TRUE(f.eventually([&] { return figures(f).skeletons == 1; }));
  EXPECT_EQ(count(f, "create"), 2u);
}

TEST(Pool, NothingIsLeftAfterAShutdown) {
  Fixture f(pooled(0, 3));
  ASSERT_TRUE(f.eventually([&] { return figures(f).skeletons == 3; }));
  f.run(f.engine->shutdown(milliseconds(5'000), AtShutdown::leave_sandboxes));
  EXPECT_TRUE(f.runtime.alive().empty());
}

TEST(Pool, TheNextStartRemovesWhatACrashLeft) {
  Fixture f(pooled(0, 2));
  ASSERT_TRUE(f.eventually([&] { return figures(f).skeletons == 2; }));
  const auto made = f.run(f.engine->create(f.command()));
  ASSERT_TRUE(made.ok());
  ASSERT_TRUE(f.eventually([&] { return figures(f).skeletons == 2; }));
  // It dies in the middle of a hand-out, and cannot tidy up.
  f.runtime.hangs_before = "init";
  f.begin(f.engine->create(f.command()));
  ASSERT_TRUE(f.eventually([&] { return f.runtime.hung() == 1; }));
  f.runtime.failing["destroy"] = 2;
  const auto before = f.runtime.alive();
  f.restart();
  ASSERT_TRUE(f.eventually([&] {
    const auto now = f.runtime.alive();
    return std::none_of(before.begin(), before.end(), [&](const std::string& id) {
      return id != made->record.id.str() && now.contains(id);
    });
  })) << "no row names them";
  EXPECT_TRUE(f.runtime.alive().contains(made->record.id.str()));
  EXPECT_EQ(f.engine->live(), 1u);
}

}  // namespace
}  // namespace atl::engine
