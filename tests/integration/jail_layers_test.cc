// Generations of sandboxes, each made from a snapshot of the one before: what they see, and what
// becomes of the layers that they lie over.
#include <unistd.h>

#include <filesystem>

#include "memory_fixture.h"
#include "runtime/jail/compact.h"

namespace atl::testing {
namespace {

namespace fs = std::filesystem;

class JailLayers : public MemoryTest {
 protected:
  runtime::SandboxSpec boot_of(const runtime::SnapshotId& snapshot) const {
    runtime::SandboxSpec out = spec();
    out.snapshot = snapshot;
    return out;
  }
  runtime::SnapshotId snapshot_of(const SandboxId& id, bool memory) {
    const runtime::SnapshotId name = runtime::new_snapshot_id();
    EXPECT_TRUE(await(runtime_->freeze(id)).ok());
    auto made = await(memory ? runtime_->snapshot(id, name) : runtime_->snapshot_disk(id, name));
    EXPECT_TRUE(made.ok()) << made.error().message;
    thawed_ = await(runtime_->thaw(id)).ok();
    return name;
  }
  bool thawed_ = false;
  fs::path directory_of(const runtime::SnapshotId& name) const {
    return fs::path(home_) / "snapshots" / "test" / name;
  }
  bool comes(const fs::path& path) {
    for (int i = 0; i < 3000 && !fs::exists(path); ++i) pause_for(std::chrono::milliseconds(10));
    return fs::exists(path);
  }
  std::size_t layers_of(const runtime::SnapshotId& name) {
    auto all = await(runtime_->list_snapshots());
    for (const auto& one : *all) {
      if (one.id == name) return one.layers.size();
    }
    return 999;
  }
  void remove(const runtime::SnapshotId& name) {
    auto removed = await(runtime_->remove_snapshot(name));
    EXPECT_TRUE(removed.ok()) << removed.error().message;
  }
};

TEST_F(JailLayers, LongChainsBecomeOneLayer) {
  begin({"--fail-at", "compact"});  // so that there is a sandbox over the long chain first
  std::vector<runtime::SnapshotId> names;
  SandboxId box = create();
  ASSERT_EQ(inside(box, "echo 0 > /gen0; echo 0 > /latest; rm -r /opt").code, 0);
  const std::size_t generations = jail::kMaxChain + 1;
  for (std::size_t i = 1; i <= generations; ++i) {
    names.push_back(snapshot_of(box, false));
    ASSERT_TRUE(thawed_);
    ASSERT_EQ(layers_of(names.back()), i - 1);
    destroy(box);
    box = create(boot_of(names.back()));
    const std::string n = std::to_string(i);
    ASSERT_EQ(inside(box, "echo " + n + " > /gen" + n + "; echo " + n + " > /latest").code, 0);
  }
  // The last one is over more layers than there should be; the sandbox over it keeps them.
  const runtime::SnapshotId flat = names.back();
  EXPECT_FALSE(fs::exists(directory_of(flat) / "flat.img"));
  stop();
  begin();
  ASSERT_TRUE(comes(directory_of(flat) / "flat.img"));
  EXPECT_EQ(inside(box, "cat /gen* | tr '\\n' ' '; cat /latest; ls -d /opt 2>&1").output,
            "0 1 2 3 4 5 6 7 8 9 9\nls: cannot access '/opt': No such file or directory\n");
  EXPECT_EQ(layers_of(flat), jail::kMaxChain);
  EXPECT_TRUE(fs::exists(directory_of(flat) / "disk.img"));
  EXPECT_EQ(await(runtime_->remove_snapshot(names.front())).error().code,
            Errc::failed_precondition);

  // What comes later lies over the flat disk, with memory or without.
  const runtime::SnapshotId next = snapshot_of(box, true);
  EXPECT_EQ(layers_of(next), 1u);
  const SandboxId copy = create(copy_of(next));
  EXPECT_EQ(inside(copy, "cat /gen* | tr '\\n' ' '").output, "0 1 2 3 4 5 6 7 8 9 ");
  EXPECT_EQ(inside(copy, "echo c > /gen4; rm /gen5; ls -d /opt 2>/dev/null").output, "");

  // Without the last sandbox over them the old layers are let go, and can be removed.
  destroy(box);
  EXPECT_EQ(layers_of(flat), 0u);
  EXPECT_FALSE(fs::exists(directory_of(flat) / "disk.img"));
  names.pop_back();
  for (auto name = names.rbegin(); name != names.rend(); ++name) remove(*name);
  EXPECT_EQ(await(runtime_->remove_snapshot(flat)).error().code, Errc::failed_precondition);
  EXPECT_EQ(inside(copy, "cat /gen3 /gen4 /latest").output, "3\nc\n9\n");

  // As after a boot of the host.
  ASSERT_TRUE(await(runtime_->kill(copy)).ok());
  stop();
  begin();
  runtime::SandboxSpec again = spec();
  again.id = copy;
  again.disk = runtime::Disk::kept;
  auto booted = await(runtime_->create(again));
  ASSERT_TRUE(booted.ok()) << booted.error().message;
  EXPECT_EQ(inside(copy, "cat /gen3 /gen4 /latest").output, "3\nc\n9\n");
  destroy(copy);
  remove(next);
  remove(flat);
  EXPECT_FALSE(fs::exists(directory_of(flat).parent_path())) << "the last one takes it along";
}

// A warden that ends while it is at work: the next one does it.
TEST_F(JailLayers, CompactionIsBegunAgain) {
  begin({"--die-at", "compact"});
  std::vector<runtime::SnapshotId> names;
  SandboxId box = create();
  for (std::size_t i = 0; i <= jail::kMaxChain; ++i) {
    names.push_back(snapshot_of(box, false));
    if (i == jail::kMaxChain) break;
    destroy(box);
    box = create(boot_of(names.back()));
    ASSERT_EQ(inside(box, "date +%N > /stamp" + std::to_string(i)).code, 0);
  }
  for (int i = 0; i < 1000 && await(runtime_->list()).ok(); ++i)
    pause_for(std::chrono::milliseconds(10));
  stop();
  EXPECT_FALSE(fs::exists(directory_of(names.back()) / "flat.img"));
  begin();
  // The warden died before or after the sandbox ran on.
  EXPECT_TRUE(await(runtime_->thaw(box)).ok());
  EXPECT_TRUE(comes(directory_of(names.back()) / "flat.img"));
  const SandboxId copy = create(boot_of(names.back()));
  EXPECT_EQ(inside(copy, "cat /stamp*").output, inside(box, "cat /stamp*").output);
  destroy(copy);
  destroy(box);
  for (auto name = names.rbegin(); name != names.rend(); ++name) remove(*name);
}

// Removing a snapshot that is being compacted does not wait for that.
TEST_F(JailLayers, ASnapshotIsRemovedMeanwhile) {
  begin();
  std::vector<runtime::SnapshotId> names;
  SandboxId box = create();
  ASSERT_EQ(inside(box, "head -c 60000000 /dev/urandom > /big").code, 0);
  for (std::size_t i = 0; i <= jail::kMaxChain; ++i) {
    names.push_back(snapshot_of(box, false));
    if (i == jail::kMaxChain) break;
    destroy(box);
    box = create(boot_of(names.back()));
  }
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    if (name == names.rbegin() + 1) destroy(box);  // it lies over all but the last
    remove(*name);
  }
}

}  // namespace
}  // namespace atl::testing
