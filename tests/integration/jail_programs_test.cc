// Memory in files across versions: another agent and other runners than those it was written with.
#include "memory_fixture.h"

namespace atl::testing {
namespace {

using runtime::Condition;

class JailMemoryPrograms : public MemoryTest {
 protected:
  // The next warden has an agent and runners in which every file is one byte longer.
  void upgrade() {
    stop();
    const std::string agent = home_ + "/next-agent";
    const std::string kernels = home_ + "/next-kernels";
    ASSERT_EQ(host("cp " + agent_path_ + " " + agent + " && printf x >> " + agent), "");
    ASSERT_EQ(host("cp -rL " + kernels_path_ + " " + kernels + " && chmod -R u+w " + kernels +
                   " && find " + kernels + " -type f -exec sh -c 'echo >> \"$1\"' - {} ';'"),
              "");
    agent_path_ = agent;
    kernels_path_ = kernels;
    ASSERT_NO_FATAL_FAILURE(begin());
  }
  void restart() {
    stop();
    ASSERT_NO_FATAL_FAILURE(begin());
  }

  // A process that has a file of the runners open, beside the counter.
  void hold_a_runner(const SandboxId& id) {
    start_counter(id);
    EXPECT_EQ(
        inside(id,
               "f=$(find /run/atoll/kernels -type f | sort | head -n 1); test -n \"$f\" || exit 1; "
               "(exec 9< \"$f\" > /dev/null 2>&1; while :; do sleep 1000; done) &")
            .code,
        0);
  }
  std::string programs(const SandboxId& id) {
    return inside(id,
                  "(cat /run/atoll/atoll-agent; cd /run/atoll/kernels; find . -type f | sort | "
                  "xargs cat) | sha256sum")
        .output;
  }
  std::string kept() { return host("ls " + home_ + "/programs"); }
};

TEST_F(JailMemoryPrograms, MemoryOutlivesAnUpgrade) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const std::string old_sum = kept().substr(0, 64);
  const std::string old_kept = home_ + "/programs/" + old_sum;
  const SandboxId id = create();
  const SandboxId running = create();
  hold_a_runner(id);
  hold_a_runner(running);
  EXPECT_EQ(count(id), "1\n");
  const std::string old = programs(id);
  ASSERT_TRUE(await(runtime_->freeze(id)).ok());
  const runtime::SnapshotId snapshot = runtime::new_snapshot_id();
  ASSERT_TRUE(await(runtime_->snapshot(id, snapshot)).ok());
  ASSERT_TRUE(await(runtime_->freeze(id)).ok());
  auto written = await(runtime_->dump(id));
  ASSERT_TRUE(written.ok()) << written.error().message;

  ASSERT_NO_FATAL_FAILURE(upgrade());
  EXPECT_EQ(kept().size(), 2 * 65u);
  const SandboxId fresh = create();
  EXPECT_NE(programs(fresh), old);
  destroy(fresh);
  // Again and again: what it runs stays what it was, whoever dumps it.
  for (int i = 2; i <= 4; ++i) {
    auto created = revive(id);
    ASSERT_TRUE(created.ok()) << i << ": " << created.error().message;
    EXPECT_EQ(count(id), std::to_string(i) + "\n");
    EXPECT_EQ(programs(id), old);
    EXPECT_NE(inside(id, ": >> /run/atoll/atoll-agent").code, 0);
    EXPECT_EQ(
        inside(id, "grep -c ' /run/atoll/[ak][^ ]* ro,nosuid,nodev' /proc/self/mountinfo").output,
        "2\n");
    written = freeze_and_dump(id);
    ASSERT_TRUE(written.ok()) << i << ": " << written.error().message;
    if (i == 2) {
      ASSERT_NO_FATAL_FAILURE(restart());
    }
  }
  // One that ran on meanwhile, and a copy of a snapshot.
  written = freeze_and_dump(running);
  ASSERT_TRUE(written.ok()) << written.error().message;
  auto created = revive(running);
  ASSERT_TRUE(created.ok()) << created.error().message;
  EXPECT_EQ(count(running), "1\n");
  const runtime::SandboxSpec copy = copy_of(snapshot);
  created = await(runtime_->create(copy));
  ASSERT_TRUE(created.ok()) << created.error().message;
  EXPECT_EQ(count(copy.id), "2\n");
  EXPECT_EQ(programs(copy.id), old);
  destroy(copy.id);

  // Gone, or not what they were: refused, and nothing is lost.
  stop();
  ASSERT_EQ(host("mv " + old_kept + " " + home_ + "/gone"), "");
  ASSERT_NO_FATAL_FAILURE(begin());
  created = revive(id);
  ASSERT_FALSE(created.ok());
  EXPECT_EQ(created.error().code, Errc::failed_precondition);
  EXPECT_NE(created.error().message.find("another version of Atoll"), std::string::npos)
      << created.error().message;
  EXPECT_EQ(condition(id), Condition::dumped);
  created = await(runtime_->create(copy_of(snapshot)));
  ASSERT_FALSE(created.ok());
  EXPECT_EQ(created.error().code, Errc::failed_precondition) << created.error().message;
  written = freeze_and_dump(running);
  ASSERT_FALSE(written.ok()) << "nobody could use it";
  EXPECT_EQ(written.error().code, Errc::failed_precondition) << written.error().message;
  ASSERT_TRUE(await(runtime_->thaw(running)).ok());
  EXPECT_EQ(count(running), "2\n");
  ASSERT_EQ(
      host("cp -a " + home_ + "/gone " + old_kept + " && printf x >> " + old_kept + "/atoll-agent"),
      "");
  created = revive(id);
  ASSERT_FALSE(created.ok());
  EXPECT_EQ(created.error().code, Errc::data_loss) << created.error().message;
  EXPECT_EQ(condition(id), Condition::dumped);
  ASSERT_EQ(host("rm -r " + old_kept + " && mv " + home_ + "/gone " + old_kept), "");
  created = revive(id);
  ASSERT_TRUE(created.ok()) << created.error().message;
  EXPECT_EQ(count(id), "5\n");

  // Needed by one of them only, and then by nobody.
  destroy(id);
  destroy(running);
  ASSERT_NO_FATAL_FAILURE(restart());
  EXPECT_EQ(kept().size(), 2 * 65u);
  ASSERT_TRUE(await(runtime_->remove_snapshot(snapshot)).ok());
  ASSERT_NO_FATAL_FAILURE(restart());
  EXPECT_EQ(kept().size(), 65u);
  EXPECT_EQ(kept().find(old_sum), std::string::npos);
}

// Booting from the disk takes the programs of the day.
TEST_F(JailMemoryPrograms, ABootTakesTheNewOnes) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const SandboxId id = create();
  const std::string old = programs(id);
  ASSERT_TRUE(freeze_and_dump(id).ok());
  ASSERT_NO_FATAL_FAILURE(upgrade());
  runtime::SandboxSpec boot = revived(id);
  boot.memory = runtime::Memory::none;
  create(boot);
  EXPECT_NE(programs(id), old);
  start_counter(id);
  ASSERT_TRUE(freeze_and_dump(id).ok());
  ASSERT_NO_FATAL_FAILURE(restart());
  EXPECT_EQ(kept().size(), 65u) << "nobody needs the old ones";
  auto created = revive(id);
  ASSERT_TRUE(created.ok()) << created.error().message;
  EXPECT_EQ(count(id), "1\n");
}

}  // namespace
}  // namespace atl::testing
