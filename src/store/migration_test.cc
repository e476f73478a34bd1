// Files of earlier versions are brought up to date without losing a row.
#include <gtest/gtest.h>

#include <filesystem>

#include "store/schema.h"
#include "store/store.h"

namespace atl::store {
namespace {

namespace fs = std::filesystem;

class MigrationTest : public testing::Test {
 protected:
  MigrationTest() {
    std::string pattern = (fs::temp_directory_path() / "atoll-store-XXXXXX").string();
    dir_ = mkdtemp(pattern.data());
  }
  ~MigrationTest() override { fs::remove_all(dir_); }
  std::string path() const { return (dir_ / "state.db").string(); }

  // A file as version `version` made it.
  Database old_file(int version) {
    auto database = Database::open(path());
    EXPECT_TRUE(database.ok());
    for (int i = 0; i < version; ++i)
      EXPECT_TRUE(database->exec(migrations()[std::size_t(i)]).ok());
    EXPECT_TRUE(database->exec("PRAGMA user_version=" + std::to_string(version)).ok());
    return std::move(database).value();
  }

  fs::path dir_;
};

TEST_F(MigrationTest, FirstVersion) {
  {
    Database old = old_file(1);
    ASSERT_TRUE(old.exec("INSERT INTO teams VALUES ('t1', 'default', 1000);"
                         "INSERT INTO api_keys VALUES ('k1', 't1', 'mine', 'hash', 'e2b_', 40, "
                         "'ab', 'cdef', 2000, NULL);"
                         "INSERT INTO sandboxes VALUES ('iold', 't1', 'k1', 'tpl', 'base-1', 'b', "
                         "'base', '0.6.13', 'boot', 'running', 3000, 4000, 5000, 60, "
                         "'{\"a\":\"b\"}', '{\"E\":\"1\"}', '{}', 1, 0, 1, 0, 1, 0, 2, 512, 1024)")
                    .ok());
  }
  auto store = Store::open(path());
  ASSERT_TRUE(store.ok()) << store.error().message;
  EXPECT_EQ((*store)->default_team().id, "t1");
  EXPECT_TRUE((*store)->key_by_hash("hash")->has_value());
  auto rows = (*store)->live_sandboxes();
  ASSERT_TRUE(rows.ok());
  ASSERT_EQ(rows->size(), 1u);
  SandboxRecord expected{.id = *SandboxId::parse("iold")};
  expected.team_id = "t1";
  expected.key_id = "k1";
  expected.template_id = "tpl";
  expected.template_dir = "base-1";
  expected.build_id = "b";
  expected.alias = "base";
  expected.envd_version = "0.6.13";
  expected.boot_id = "boot";
  expected.state = SandboxState::running;
  expected.created_at = from_ns(3000);
  expected.started_at = from_ns(4000);
  expected.end_at = from_ns(5000);
  expected.timeout = std::chrono::seconds(60);
  expected.metadata = {{"a", "b"}};
  expected.envs = {{"E", "1"}};
  expected.secure = true;
  expected.allow_public_traffic = false;
  expected.auto_pause = true;
  expected.auto_pause_memory = false;
  expected.auto_resume = true;
  expected.allow_internet = false;
  expected.disk_mb = 1024;
  EXPECT_EQ(rows->front(), expected) << "new columns have their defaults";

  // And the new columns are written from here on.
  SandboxRecord changed = expected;
  changed.state = SandboxState::paused;
  changed.memory_kept = false;
  changed.memory_tier = MemoryTier::dumped;
  changed.memory_reason = "because";
  changed.memory_bytes = 1ull << 40;
  changed.snapshot_id = "s1";
  changed.rollback_id = "s2";
  changed.boot_id = "another";
  ASSERT_TRUE((*store)->update_sandbox(changed).ok());
  EXPECT_EQ(**(*store)->find_sandbox(changed.id), changed);
}

TEST_F(MigrationTest, EveryVersionLeadsToTheSameSchema) {
  const auto schema = [this] {
    auto database = Database::open(path());
    auto read = database->prepare("SELECT sql FROM sqlite_schema WHERE sql<>'' ORDER BY name");
    std::string all;
    while (*read->step()) all += read->text(0) + "\n";
    return all;
  };
  std::string newest;
  for (int version = 0; version <= int(migrations().size()); ++version) {
    fs::remove_all(dir_);
    fs::create_directories(dir_);
    old_file(version);
    ASSERT_TRUE(Store::open(path()).ok()) << version;
    if (version == 0) newest = schema();
    EXPECT_EQ(schema(), newest) << version;
  }
}

}  // namespace
}  // namespace atl::store
