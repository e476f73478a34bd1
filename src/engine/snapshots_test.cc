// Snapshots, forks and rollback, with races and restarts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "base/json.h"
#include "engine/testing/fixture.h"

namespace atl::engine {
namespace {

using runtime::Condition;
using std::chrono::milliseconds;
using std::chrono::seconds;
using store::SandboxState;
using testing::Fixture;
using ::testing::HasSubstr;

struct SnapshotTest : ::testing::Test {
  SnapshotTest() { f.runtime.durable = true; }
  Fixture f;

  SandboxId make(const std::function<void(CreateCommand&)>& change = {}) {
    auto command = f.command();
    if (change) change(command);
    auto made = f.run(f.engine->create(command));
    EXPECT_TRUE(made.ok()) << made.error().message;
    return made->record.id;
  }
  Result<SnapshotInfo> take(const SandboxId& id, const std::string& name = {}) {
    return f.run(f.engine->snapshot({.caller = f.caller(), .id = id, .name = name}));
  }
  std::string taken(const SandboxId& id, const std::string& name = {}) {
    auto made = take(id, name);
    EXPECT_TRUE(made.ok()) << made.error().message;
    return public_id(made->record);
  }
  Result<std::vector<Result<SandboxInfo>>> fork(const SandboxId& id, std::int64_t count = 1) {
    return f.run(
        f.engine->fork({.caller = f.caller(), .id = id, .timeout = seconds(60), .count = count}));
  }
  Result<SandboxInfo> rollback(const SandboxId& id, const std::string& snapshot) {
    return f.run(f.engine->rollback(f.caller(), id, snapshot));
  }
  store::SandboxRecord record(const SandboxId& id) {
    auto info = f.engine->info(f.caller(), id);
    EXPECT_TRUE(info.ok()) << info.error().message;
    return info->record;
  }
  std::vector<store::SnapshotRecord> rows() { return *f.store->list_snapshots(); }
  bool eventually_no_snapshots() {
    return Fixture::eventually([&] { return f.runtime.snapshots() == 0 && rows().empty(); });
  }
  template <class T>
  std::future<T> later(net::Task<T> task) {
    return std::async(std::launch::async,
                      [this, task = std::make_shared<net::Task<T>>(std::move(task))] {
                        return f.run(std::move(*task));
                      });
  }
};

TEST_F(SnapshotTest, ACopyWakesAsSomebodyElse) {
  const SandboxId source = make([](CreateCommand& c) {
    c.envs = {{"A", "source"}, {"B", "source"}};
    c.secure = true;
  });
  const std::string name = taken(source);
  EXPECT_EQ(f.runtime.condition(source), Condition::running);
  EXPECT_EQ(f.runtime.suspends(), 1);
  const SandboxId copy = make([&](CreateCommand& c) {
    c.template_reference = name;
    c.envs = {{"A", "copy"}};
    c.secure = true;
  });
  const runtime::SandboxSpec spec = f.runtime.specs().back();
  EXPECT_EQ(spec.memory, runtime::Memory::snapshot);
  EXPECT_EQ(spec.disk, runtime::Disk::fresh);
  EXPECT_EQ(spec.snapshot, rows().front().id);
  EXPECT_EQ(spec.template_id, record(source).template_dir);
  ASSERT_EQ(f.runtime.wakes().size(), 1u);
  const auto wake = *parse_json(f.runtime.wakes().front());
  EXPECT_TRUE(wake.at("forked").as_bool());
  EXPECT_EQ(wake.at("seed").as_string().size(), 64u);
  EXPECT_EQ(wake.at("sandboxId").as_string(), copy.str());
  EXPECT_EQ(spec.hostname, "e2b-" + copy.str().substr(1, 8));
  EXPECT_EQ(wake.at("hostname").as_string(), spec.hostname);
  EXPECT_EQ(wake.at("envVars").at("A").as_string(), "copy");
  EXPECT_EQ(wake.at("envVars").at("B").as_string(), "source") << "memory has it";
  EXPECT_NE(f.engine->info(f.caller(), copy)->access_token,
            f.engine->info(f.caller(), source)->access_token);
  EXPECT_EQ(record(copy).boot_id, record(source).boot_id) << "nothing booted";
}

TEST_F(SnapshotTest, AgentsThatDoNotWakeAreNoSandboxes) {
  const std::string name = taken(make());
  f.runtime.failing["wake"] = 1;
  auto command = f.command();
  command.template_reference = name;
  EXPECT_FALSE(f.run(f.engine->create(command)).ok());
  EXPECT_EQ(f.runtime.alive().size(), 1u);
  EXPECT_TRUE(f.run(f.engine->create(command)).ok());
}

TEST_F(SnapshotTest, ADeletedOneStaysWhileOthersLieOverIt) {
  const SandboxId source = make();
  const std::string name = taken(source);
  f.runtime.failing["remove_snapshot"] = 1;
  f.runtime.failing_with = Errc::failed_precondition;  // another snapshot lies over it
  EXPECT_TRUE(f.run(f.engine->delete_template(f.caller(), name)).ok());
  EXPECT_EQ(f.run(f.engine->delete_template(f.caller(), name)).error().code, Errc::not_found);
  EXPECT_TRUE(f.engine->list_snapshots({.team_id = f.caller().team_id}).items.empty());
  EXPECT_EQ(f.runtime.snapshots(), 1u);
  f.restart();
  EXPECT_TRUE(eventually_no_snapshots()) << "looked at again at the next start";
}

TEST_F(SnapshotTest, PausesAndKillsWaitForIt) {
  f.runtime.dump_takes = milliseconds(100);
  const SandboxId one = make();
  auto taking = later(f.engine->snapshot({.caller = f.caller(), .id = one}));
  ASSERT_TRUE(Fixture::eventually([&] { return record(one).state == SandboxState::snapshotting; }));
  EXPECT_EQ(take(one).error().code, Errc::failed_precondition);
  EXPECT_EQ(fork(one).error().code, Errc::failed_precondition);
  EXPECT_TRUE(f.run(f.engine->pause(f.caller(), one, true)).ok());
  EXPECT_TRUE(taking.get().ok());
  EXPECT_EQ(record(one).state, SandboxState::paused);

  const SandboxId two = make();
  auto again = later(f.engine->snapshot({.caller = f.caller(), .id = two}));
  ASSERT_TRUE(Fixture::eventually([&] { return record(two).state == SandboxState::snapshotting; }));
  EXPECT_TRUE(f.run(f.engine->kill(f.caller(), two)).ok());
  (void)again.get();
  EXPECT_EQ(f.runtime.condition(two), std::nullopt);
}

TEST_F(SnapshotTest, FailuresLeaveNothing) {
  const SandboxId source = make();
  for (const char* step : {"freeze", "snapshot"}) {
    f.runtime.failing[step] = 1;
    EXPECT_FALSE(take(source).ok()) << step;
    EXPECT_EQ(record(source).state, SandboxState::running) << step;
    EXPECT_EQ(f.runtime.condition(source), Condition::running) << step;
    EXPECT_TRUE(rows().empty()) << step;
    EXPECT_EQ(f.runtime.snapshots(), 0u) << step;
  }
  EXPECT_TRUE(take(source).ok());
  EXPECT_EQ(f.engine->statistics().snapshots_total, 1u);
  EXPECT_EQ(f.engine->statistics().snapshot_failures, 2u);
}

TEST_F(SnapshotTest, TooManyAreRefused) {
  Fixture small({.max_snapshots = 1});
  small.runtime.durable = true;
  const auto made = small.run(small.engine->create(small.command()));
  const SnapshotCommand command{.caller = small.caller(), .id = made->record.id};
  EXPECT_TRUE(small.run(small.engine->snapshot(command)).ok());
  EXPECT_EQ(small.run(small.engine->snapshot(command)).error().code, Errc::resource_exhausted);
}

TEST_F(SnapshotTest, OneThatWasCutOffIsGoneAfterARestart) {
  const SandboxId source = make();
  const std::string whole = taken(source, "whole");
  f.runtime.hangs_after = "snapshot";
  f.begin(f.engine->snapshot({.caller = f.caller(), .id = source}));
  ASSERT_TRUE(Fixture::eventually([&] { return f.runtime.hung() == 1; }));
  EXPECT_EQ(f.runtime.snapshots(), 2u);
  f.runtime.hangs_after.clear();
  f.restart();
  EXPECT_EQ(f.runtime.snapshots(), 1u);
  ASSERT_EQ(rows().size(), 1u);
  EXPECT_EQ(public_id(rows().front()), whole);
  EXPECT_EQ(record(source).state, SandboxState::running);
  EXPECT_EQ(f.runtime.condition(source), Condition::running) << "thawed";
  make([&](CreateCommand& c) { c.template_reference = whole; });
}

TEST_F(SnapshotTest, ThoseOfNobodyAndTheLostGoAtTheStart) {
  const SandboxId source = make();
  taken(source, "kept");
  taken(source, "lost");
  (void)f.run(f.runtime.remove_snapshot(rows().back().id));
  (void)f.run(f.runtime.snapshot_disk(source, runtime::new_snapshot_id()));
  EXPECT_EQ(f.runtime.snapshots(), 2u);
  f.restart();
  EXPECT_EQ(f.runtime.snapshots(), 1u);
  ASSERT_EQ(rows().size(), 1u);
  EXPECT_EQ(rows().front().alias, "kept");
}

TEST_F(SnapshotTest, ForksInheritAndTheirSnapshotGoesWithTheLast) {
  const SandboxId source = make([](CreateCommand& c) {
    c.metadata = {{"m", "1"}};
    c.envs = {{"E", "1"}};
    c.auto_pause = true;
    c.secure = true;
    c.network = R"({"denyOut":["8.8.8.8/32"]})";
  });
  auto forks = fork(source, 3);
  ASSERT_TRUE(forks.ok()) << forks.error().message;
  ASSERT_EQ(forks->size(), 3u);
  std::set<std::string> ids;
  for (const auto& one : *forks) {
    ASSERT_TRUE(one.ok()) << one.error().message;
    const store::SandboxRecord& r = one->record;
    ids.insert(r.id.str());
    EXPECT_EQ(r.template_id, record(source).template_id);
    EXPECT_EQ(r.metadata, record(source).metadata);
    EXPECT_EQ(r.envs, record(source).envs);
    EXPECT_EQ(r.network, record(source).network);
    EXPECT_TRUE(r.auto_pause && r.secure);
    EXPECT_EQ(r.end_at - r.started_at, seconds(60));
    EXPECT_EQ(f.runtime.network(r.id).deny.size(), f.runtime.network(source).deny.size());
  }
  EXPECT_EQ(ids.size(), 3u);
  EXPECT_EQ(f.runtime.snapshots(), 1u) << "captured once";
  std::set<std::string> seeds;
  for (const std::string& wake : f.runtime.wakes())
    seeds.insert(std::string(parse_json(wake)->at("seed").as_string()));
  EXPECT_EQ(seeds.size(), 3u);
  EXPECT_TRUE(f.engine->list_snapshots({.team_id = f.caller().team_id}).items.empty());
  EXPECT_TRUE(f.run(f.engine->kill(f.caller(), source)).ok());
  int left = 3;
  for (const auto& one : *forks) {
    EXPECT_EQ(f.runtime.snapshots(), 1u) << left;
    EXPECT_TRUE(f.run(f.engine->kill(f.caller(), one->record.id)).ok());
    --left;
  }
  EXPECT_TRUE(eventually_no_snapshots());
  EXPECT_EQ(f.engine->statistics().forks_total, 3u);
}

TEST_F(SnapshotTest, WhenNoForkIsMadeNothingStays) {
  const SandboxId source = make();
  f.runtime.failing_creates = 2;
  auto forks = fork(source, 2);
  ASSERT_TRUE(forks.ok());
  for (const auto& one : *forks) EXPECT_FALSE(one.ok());
  EXPECT_TRUE(eventually_no_snapshots());
  EXPECT_EQ(f.runtime.alive().size(), 1u);
}

TEST_F(SnapshotTest, ForksCountAgainstLimits) {
  Fixture small({.max_sandboxes = 3});
  small.runtime.durable = true;
  const SandboxId source = small.run(small.engine->create(small.command()))->record.id;
  (void)small.run(small.engine->create(small.command()));
  const auto fork = [&](std::int64_t count) {
    return small.run(small.engine->fork(
        {.caller = small.caller(), .id = source, .timeout = seconds(60), .count = count}));
  };
  EXPECT_EQ(fork(3).error().code, Errc::invalid_argument);
  EXPECT_EQ(fork(0).error().code, Errc::invalid_argument);
  EXPECT_EQ(fork(101).error().code, Errc::invalid_argument);
  auto forks = fork(2);
  ASSERT_TRUE(forks.ok());
  int made = 0;
  for (const auto& one : *forks) {
    if (one.ok()) {
      ++made;
    } else {
      EXPECT_EQ(one.error().code, Errc::resource_exhausted);
    }
  }
  EXPECT_EQ(made, 1);
}

TEST_F(SnapshotTest, AForkOutlivesARestart) {
  const SandboxId source = make();
  auto forks = fork(source, 1);
  ASSERT_TRUE(forks.ok() && forks->front().ok());
  const SandboxId copy = forks->front()->record.id;
  f.restart();
  EXPECT_EQ(record(copy).state, SandboxState::running);
  EXPECT_EQ(f.runtime.snapshots(), 1u);
  EXPECT_TRUE(f.run(f.engine->kill(f.caller(), copy)).ok());
  EXPECT_TRUE(eventually_no_snapshots());
}

TEST_F(SnapshotTest, ForksThatWereBeingMadeAreRemovedAtTheStart) {
  const SandboxId source = make();
  f.runtime.hangs_after = "create";
  f.begin(f.engine->fork({.caller = f.caller(), .id = source, .timeout = seconds(60), .count = 2}));
  ASSERT_TRUE(Fixture::eventually([&] { return f.runtime.hung() == 2; }));
  f.runtime.hangs_after.clear();
  f.restart();
  EXPECT_EQ(f.runtime.alive(), std::set<std::string>{source.str()});
  EXPECT_TRUE(eventually_no_snapshots());
}

TEST_F(SnapshotTest, RollbackPutsItBackInPlace) {
  const SandboxId id = make([](CreateCommand& c) { c.secure = true; });
  const std::string name = taken(id);
  const store::SandboxRecord before = record(id);
  auto done = rollback(id, name);
  ASSERT_TRUE(done.ok()) << done.error().message;
  const store::SandboxRecord after = record(id);
  EXPECT_EQ(after.state, SandboxState::running);
  EXPECT_EQ(after.end_at, before.end_at);
  EXPECT_EQ(after.started_at, before.started_at);
  EXPECT_EQ(after.snapshot_id, rows().front().id);
  EXPECT_TRUE(after.rollback_id.empty());
  EXPECT_EQ(*f.store->find_sandbox(id), after);
  const runtime::SandboxSpec spec = f.runtime.specs().back();
  EXPECT_TRUE(spec.replace);
  EXPECT_EQ(spec.id, id);
  EXPECT_EQ(spec.memory, runtime::Memory::snapshot);
  EXPECT_NE(f.engine->route(id), nullptr);
  EXPECT_EQ(f.run(f.engine->delete_template(f.caller(), name)).error().code,
            Errc::invalid_argument);
  EXPECT_TRUE(f.run(f.engine->kill(f.caller(), id)).ok());
  EXPECT_TRUE(f.run(f.engine->delete_template(f.caller(), name)).ok());
}

TEST_F(SnapshotTest, ARollbackThatFailsGoesOnWhereItWas) {
  const SandboxId id = make();
  const std::string name = taken(id);
  for (const char* step : {"freeze", "dump", "create"}) {
    const std::size_t wakes = f.runtime.wakes().size();
    f.runtime.failing[step] = 1;
    f.runtime.failing_with = Errc::failed_precondition;
    EXPECT_EQ(rollback(id, name).error().code, Errc::failed_precondition) << step;
    EXPECT_EQ(record(id).state, SandboxState::running) << step;
    EXPECT_EQ(f.runtime.condition(id), Condition::running) << step;
    EXPECT_TRUE(record(id).snapshot_id.empty()) << step;
    EXPECT_TRUE(record(id).rollback_id.empty()) << step;
    EXPECT_NE(f.engine->route(id), nullptr) << step;
    const bool from_files = std::string(step) == "create";
    EXPECT_EQ(f.runtime.wakes().size(), wakes + (from_files ? 1 : 0));
    if (from_files) EXPECT_FALSE(parse_json(f.runtime.wakes().back())->at("forked").as_bool());
  }
  EXPECT_EQ(f.engine->statistics().rollback_failures, 3u);
  EXPECT_TRUE(rollback(id, name).ok());
}

TEST_F(SnapshotTest, AnAgentThatIsLateToLetGoIsToldAgain) {
  const SandboxId id = make();
  f.runtime.failing["suspend"] = 1;
  const std::string name = taken(id);
  f.runtime.failing["suspend"] = 1;
  EXPECT_TRUE(rollback(id, name).ok());
  EXPECT_EQ(record(id).state, SandboxState::running);
}

TEST_F(SnapshotTest, ARollbackThatLosesTheMemoryLeavesTheDisk) {
  const SandboxId id = make();
  const std::string name = taken(id);
  f.runtime.failing["create"] = 1;
  f.runtime.restores_use_up = true;
  EXPECT_FALSE(rollback(id, name).ok());
  EXPECT_EQ(record(id).state, SandboxState::paused);
  EXPECT_FALSE(record(id).memory_kept);
  ASSERT_TRUE(f.run(f.engine->connect(f.caller(), id, seconds(60))).ok());
  EXPECT_EQ(f.runtime.specs().back().memory, runtime::Memory::none);
}

TEST_F(SnapshotTest, WhatCannotBeRolledBack) {
  const SandboxId id = make();
  const std::string name = taken(id);
  EXPECT_EQ(rollback(id, "nothing").error().code, Errc::not_found);
  EXPECT_EQ(rollback(id, "a b").error().code, Errc::invalid_argument);
  EXPECT_EQ(rollback(*SandboxId::parse("inone"), name).error().code, Errc::not_found);
  f.home.add_template("base-1", testing::kTemplateId, "base", 2);
  const SandboxId newer = make();
  EXPECT_THAT(rollback(newer, name).error().message, HasSubstr("another template"));
  EXPECT_TRUE(f.run(f.engine->pause(f.caller(), id, true)).ok());
  EXPECT_EQ(rollback(id, name).error().code, Errc::failed_precondition);
}

TEST_F(SnapshotTest, AKillEndsARollback) {
  const SandboxId id = make();
  const std::string name = taken(id);
  f.runtime.dump_takes = milliseconds(100);
  auto rolling = later(f.engine->rollback(f.caller(), id, name));
  ASSERT_TRUE(Fixture::eventually([&] { return record(id).state == SandboxState::pausing; }));
  EXPECT_TRUE(f.run(f.engine->kill(f.caller(), id)).ok());
  EXPECT_EQ(rolling.get().error().code, Errc::not_found);
  EXPECT_EQ(f.runtime.condition(id), std::nullopt);
}

TEST_F(SnapshotTest, ARollbackCutOffKeepsBothSnapshots) {
  const SandboxId id = make();
  const std::string name = taken(id);
  f.runtime.hangs_before = "create";
  f.begin(f.engine->rollback(f.caller(), id, name));
  ASSERT_TRUE(Fixture::eventually([&] { return f.runtime.hung() == 1; }));
  f.runtime.hangs_before.clear();
  f.restart();
  EXPECT_NE(record(id).state, SandboxState::killed);
  EXPECT_EQ(record(id).rollback_id, rows().front().id);
  EXPECT_EQ(f.run(f.engine->delete_template(f.caller(), name)).error().code,
            Errc::invalid_argument);
}

TEST(SnapshotNames, SlugsOfTeams) {
  EXPECT_EQ(team_slug("default"), "default");
  EXPECT_EQ(team_slug("My Team!"), "my-team");
  EXPECT_EQ(team_slug("  "), "team");
}

}  // namespace
}  // namespace atl::engine
