// Rows of snapshots.
#include <gtest/gtest.h>

#include <filesystem>

#include "store/store.h"

namespace atl::store {
namespace {

namespace fs = std::filesystem;

class SnapshotRows : public testing::Test {
 protected:
  SnapshotRows() {
    std::string pattern = (fs::temp_directory_path() / "atoll-store-XXXXXX").string();
    dir_ = mkdtemp(pattern.data());
    reopen();
  }
  ~SnapshotRows() override { fs::remove_all(dir_); }
  void reopen() {
    store.reset();
    auto opened = Store::open((dir_ / "state.db").string());
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    store = std::move(*opened);
  }
  SnapshotRecord record(const std::string& id, std::int64_t ns) {
    SnapshotRecord r;
    r.id = id;
    r.team_id = store->default_team().id;
    r.template_id = "t" + id;
    r.alias = "mine";
    r.tag = "v1";
    r.build_id = "build";
    r.internal = true;
    r.memory = false;
    r.sandbox_id = "isource";
    r.base = "sbase";
    r.created_at = from_ns(ns);
    r.memory_bytes = 1ull << 40;
    r.disk_bytes = 7;
    r.template_dir = "base-1";
    r.template_build = "tb";
    r.envd_version = "0.6.13";
    r.boot_id = "boot";
    r.start_command = "run";
    r.default_user = "me";
    r.envs = {{"A", "b"}};
    r.agent_seq = 9;
    r.cpu_count = 3;
    r.memory_mb = 1024;
    r.disk_mb = 2048;
    return r;
  }

  fs::path dir_;
  std::unique_ptr<Store> store;
};

TEST_F(SnapshotRows, RoundTripOldestFirst) {
  const SnapshotRecord young = record("s2", 2000);
  const SnapshotRecord old = record("s1", 1000);
  ASSERT_TRUE(store->insert_snapshot(young).ok());
  ASSERT_TRUE(store->insert_snapshot(old).ok());
  EXPECT_FALSE(store->insert_snapshot(old).ok()) << "ids are taken once";
  reopen();
  EXPECT_EQ(*store->list_snapshots(), (std::vector{old, young}));
}

TEST_F(SnapshotRows, UpdatesAreAllOrNothing) {
  SnapshotRecord a = record("s1", 1000);
  SnapshotRecord b = record("s2", 2000);
  ASSERT_TRUE(store->insert_snapshot(a).ok());
  SnapshotRecord changed = a;
  changed.state = SnapshotState::doomed;
  EXPECT_EQ(store->update_snapshots({changed, b}).error().code, Errc::not_found);
  EXPECT_EQ(store->list_snapshots()->front(), a);
  ASSERT_TRUE(store->insert_snapshot(b).ok());
  b.state = SnapshotState::ready;
  b.base.clear();
  b.memory_bytes = 1;
  b.disk_bytes = 2;
  ASSERT_TRUE(store->update_snapshots({changed, b}).ok());
  EXPECT_EQ(*store->list_snapshots(), (std::vector{changed, b}));
}

TEST_F(SnapshotRows, AreDeletedOnce) {
  ASSERT_TRUE(store->insert_snapshot(record("s1", 1000)).ok());
  EXPECT_TRUE(store->delete_snapshot("s1").ok());
  EXPECT_TRUE(store->delete_snapshot("s1").ok());
  EXPECT_TRUE(store->list_snapshots()->empty());
}

TEST_F(SnapshotRows, SandboxesRememberWhatTheyLieOver) {
  SandboxRecord box{.id = *SandboxId::parse("i1")};
  box.team_id = store->default_team().id;
  box.snapshot_id = "s1";
  box.hostname = "e2b-12345678";
  box.state = SandboxState::running;
  ASSERT_TRUE(store->insert_sandbox(box).ok());
  EXPECT_EQ(**store->find_sandbox(box.id), box);
  box.snapshot_id = "s2";
  box.rollback_id = "s3";
  ASSERT_TRUE(store->update_sandbox(box).ok());
  EXPECT_EQ(**store->find_sandbox(box.id), box);
}

}  // namespace
}  // namespace atl::store
