// Every step of a dump, a revive and a snapshot fails, and the warden dies at every one of them:
// the state is always the old or the new, never neither, and nothing is left.
#include <unistd.h>

#include "memory_fixture.h"

namespace atl::testing {
namespace {

using runtime::Condition;
using std::chrono::milliseconds;

class JailMemoryCrash : public MemoryTest {
 protected:
  static std::vector<std::string> moments(const std::vector<std::string>& steps) {
    std::vector<std::string> out;
    for (const std::string& step : steps) {
      out.push_back(step);
      out.push_back(step + "+");
    }
    return out;
  }

  std::vector<std::string> dump_steps() {
    std::vector<std::string> steps = operation_steps("dump");
    steps.insert(steps.end(), {"kill.cgroup", "kill.layers", "kill.unmounted", "kill.seal"});
    return steps;
  }

  // The warden has died by itself; this side puts its things away.
  void expect_warden_dead(const std::string& moment) {
    const std::string proc = "/proc/" + std::to_string(runtime_->warden_pid()) + "/status";
    for (int i = 0; i < 1000; ++i) {
      const std::string status = read_text(proc);
      if (status.empty() || status.find("State:\tZ") != std::string::npos) break;
      pause_for(milliseconds(10));
      if (i == 999) ADD_FAILURE() << "the warden survived " << moment;
    }
    stop();
  }

  // Whatever it is now, it goes on with what it knew.
  void expect_goes_on(const SandboxId& id, int expected, const std::string& moment) {
    const auto now = condition(id);
    ASSERT_TRUE(now.has_value()) << moment << ": lost";
    if (*now == Condition::frozen) {
      auto thawed = await(runtime_->thaw(id));
      ASSERT_TRUE(thawed.ok()) << moment << ": " << thawed.error().message;
    } else if (*now == Condition::dumped) {
      auto created = revive(id);
      ASSERT_TRUE(created.ok()) << moment << ": " << created.error().message;
    } else {
      ASSERT_EQ(*now, Condition::running) << moment;
    }
    EXPECT_EQ(count(id), std::to_string(expected) + "\n") << moment;
  }
};

TEST_F(JailMemoryCrash, AnyStepOfADumpFails) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const SandboxId id = create();
  start_counter(id);
  stop();
  int expected = 0;
  // What fails after the end of the tree cannot take it back.
  for (const std::string& step : operation_steps("dump")) {
    ASSERT_NO_FATAL_FAILURE(begin({"--fail-at", step}));
    auto written = freeze_and_dump(id);
    ASSERT_FALSE(written.ok()) << step;
    EXPECT_EQ(written.error().sys_errno, EIO) << step << ": " << written.error().message;
    EXPECT_EQ(condition(id), Condition::frozen) << step;
    // The first step fails before there is even a lock.
    EXPECT_EQ(host("find " + directory(id) + " -maxdepth 1 -name 'memory*'"),
              expected == 0 ? "" : directory(id) + "/memory.lock\n")
        << step;
    ASSERT_NO_FATAL_FAILURE(expect_goes_on(id, ++expected, step));
    stop();
  }
  ASSERT_NO_FATAL_FAILURE(begin());
}

TEST_F(JailMemoryCrash, AnyStepOfAReviveFails) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const SandboxId id = create();
  start_counter(id);
  ASSERT_TRUE(freeze_and_dump(id).ok());
  stop();
  const std::vector<std::string> names = step_names("--kept-memory");
  ASSERT_GE(names.size(), 18u);
  for (const std::string& name : names) {
    ASSERT_NO_FATAL_FAILURE(begin({"--fail-at", name}));
    auto created = revive(id);
    ASSERT_FALSE(created.ok()) << name;
    EXPECT_EQ(created.error().sys_errno, EIO) << name << ": " << created.error().message;
    EXPECT_EQ(condition(id), Condition::dumped) << name;
    EXPECT_EQ(cgroup_dir("pids", id), "") << name;
    EXPECT_EQ(init_pid(id), 0) << name;
    stop();
  }
  ASSERT_NO_FATAL_FAILURE(begin());
  ASSERT_NO_FATAL_FAILURE(expect_goes_on(id, 1, "the end"));
}

TEST_F(JailMemoryCrash, InEveryStepOfADump) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const SandboxId id = create();
  start_counter(id);
  stop();
  int expected = 0;
  for (const std::string& moment : moments(dump_steps())) {
    ASSERT_NO_FATAL_FAILURE(begin({"--die-at", moment}));
    auto written = freeze_and_dump(id);
    EXPECT_FALSE(written.ok()) << moment;
    expect_warden_dead(moment);
    ASSERT_NO_FATAL_FAILURE(begin());
    ASSERT_NO_FATAL_FAILURE(expect_goes_on(id, ++expected, moment));
    stop();
  }
  ASSERT_NO_FATAL_FAILURE(begin());
}

TEST_F(JailMemoryCrash, InEveryStepOfARevive) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const SandboxId id = create();
  start_counter(id);
  ASSERT_TRUE(freeze_and_dump(id).ok());
  stop();
  int expected = 0;
  for (const std::string& moment : moments(step_names("--kept-memory"))) {
    ASSERT_NO_FATAL_FAILURE(begin({"--die-at", moment}));
    auto created = revive(id);
    EXPECT_FALSE(created.ok()) << moment;
    expect_warden_dead(moment);
    ASSERT_NO_FATAL_FAILURE(begin());
    ASSERT_NO_FATAL_FAILURE(expect_goes_on(id, ++expected, moment));
    ASSERT_TRUE(freeze_and_dump(id).ok()) << moment;
    stop();
  }
  ASSERT_NO_FATAL_FAILURE(begin());
}

TEST_F(JailMemoryCrash, SnapshotsAreWholeOrRemains) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const SandboxId id = create();
  start_counter(id);
  stop();
  int expected = 0;
  for (const bool dies : {false, true}) {
    for (const std::string& moment :
         dies ? moments(operation_steps("snapshot")) : operation_steps("snapshot")) {
      ASSERT_NO_FATAL_FAILURE(begin({dies ? "--die-at" : "--fail-at", moment}));
      ASSERT_TRUE(await(runtime_->freeze(id)).ok());
      const runtime::SnapshotId snapshot = runtime::new_snapshot_id();
      EXPECT_FALSE(await(runtime_->snapshot(id, snapshot)).ok()) << moment;
      if (dies) {
        expect_warden_dead(moment);
        ASSERT_NO_FATAL_FAILURE(begin());
      }
      ASSERT_NO_FATAL_FAILURE(expect_goes_on(id, ++expected, moment));
      auto list = await(runtime_->list_snapshots());
      ASSERT_TRUE(list.ok()) << moment;
      if (!dies) EXPECT_TRUE(list->empty()) << moment;
      for (const runtime::ListedSnapshot& found : *list) {
        if (found.whole) {
          const runtime::SandboxSpec wanted = copy_of(found.id);
          create(wanted);
          EXPECT_EQ(count(wanted.id), std::to_string(expected) + "\n") << moment;
          destroy(wanted.id);
        }
        EXPECT_TRUE(await(runtime_->remove_snapshot(found.id)).ok()) << moment;
      }
      stop();
    }
  }
  ASSERT_NO_FATAL_FAILURE(begin());
}

TEST_F(JailMemoryCrash, AReplacedOneIsTheOldOrTheNew) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const SandboxId id = create();
  start_counter(id);
  const runtime::SnapshotId snapshot = runtime::new_snapshot_id();
  ASSERT_TRUE(await(runtime_->freeze(id)).ok());
  ASSERT_TRUE(await(runtime_->snapshot(id, snapshot)).ok());
  ASSERT_TRUE(await(runtime_->thaw(id)).ok());
  for (int i = 0; i < 10; ++i) count(id);
  ASSERT_TRUE(freeze_and_dump(id).ok());
  stop();
  std::vector<std::string> steps = step_names("--snapshot-memory " + snapshot);
  steps.insert(steps.begin(), "replace.aside");
  for (const std::string& moment : moments(steps)) {
    ASSERT_NO_FATAL_FAILURE(begin({"--die-at", moment}));
    runtime::SandboxSpec back = copy_of(snapshot);
    back.id = id;
    back.replace = true;
    EXPECT_FALSE(await(runtime_->create(back)).ok()) << moment;
    expect_warden_dead(moment);
    ASSERT_NO_FATAL_FAILURE(begin());
    EXPECT_EQ(host("ls " + home_ + "/sandboxes/test"), id.str() + "\n") << moment;
    EXPECT_EQ(host("grep -l " + id.str() + " /run/atoll/ranges/* | wc -l"), "1\n") << moment;
    if (moment == "mark+") break;
    EXPECT_EQ(condition(id), Condition::dumped) << moment;
    stop();
  }
  EXPECT_EQ(condition(id), Condition::running);
  EXPECT_EQ(count(id), "1\n");
  destroy(id);
  EXPECT_TRUE(await(runtime_->remove_snapshot(snapshot)).ok());
}

}  // namespace
}  // namespace atl::testing
