#include "store/session_rows.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "store/store.h"

namespace atl::store {
namespace {

namespace fs = std::filesystem;

class SessionRowsTest : public testing::Test {
 protected:
  SessionRowsTest() {
    std::string pattern = (fs::temp_directory_path() / "atoll-store-XXXXXX").string();
    dir_ = mkdtemp(pattern.data());
    open();
  }
  ~SessionRowsTest() override {
    rows_.reset();
    store_.reset();
    fs::remove_all(dir_);
  }
  void open() {
    rows_.reset();
    store_.reset();
    store_ = Store::open((dir_ / "state.db").string()).value();
    rows_ = SessionRows::open(*store_).value();
  }
  static SessionRecord record(const std::string& key) {
    SessionRecord r;
    r.team = "default";
    r.key = key;
    r.ready = true;
    r.node = "n1";
    r.claim = "c1";
    r.sandbox_id = "i123";
    r.options = R"({"ttl":60})";
    r.created_at = from_ns(1000);
    r.used_at = from_ns(2000);
    return r;
  }

  fs::path dir_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<SessionRows> rows_;
};

TEST_F(SessionRowsTest, KeepsEveryFieldOverReopening) {
  SessionRecord written = record("a");
  const auto version = rows_->put(written).value();
  ASSERT_TRUE(version);
  open();
  written.version = *version;
  EXPECT_EQ(rows_->get("default", "a").value(), written);
  EXPECT_FALSE(rows_->get("default", "b").value());
  EXPECT_FALSE(rows_->get("other", "a").value());
}

TEST_F(SessionRowsTest, WritesOnlyOverTheVersionThatIsKnown) {
  SessionRecord r = record("a");
  r.version = *rows_->put(r).value();
  EXPECT_FALSE(rows_->put(record("a")).value()) << "there is one already";
  SessionRecord stale = r;
  r.sandbox_id = "i456";
  r.version = *rows_->put(r).value();
  stale.sandbox_id = "i789";
  EXPECT_FALSE(rows_->put(stale).value());
  EXPECT_FALSE(rows_->remove("default", "a", stale.version).value());
  EXPECT_EQ(rows_->get("default", "a").value(), r);
  EXPECT_TRUE(rows_->remove("default", "a", r.version).value());
  EXPECT_FALSE(rows_->put(r).value()) << "a version never comes back";
}

TEST_F(SessionRowsTest, LeasesRunOut) {
  SessionRecord r = record("a");
  r.ready = false;
  r.lease = std::chrono::minutes(1);
  ASSERT_TRUE(rows_->put(r).value());
  const auto left = rows_->get("default", "a").value()->lease;
  EXPECT_GT(left, std::chrono::seconds(30));
  EXPECT_LE(left, std::chrono::minutes(1));
}

TEST_F(SessionRowsTest, ListsByTeam) {
  SessionRecord other = record("b");
  other.team = "other";
  ASSERT_TRUE(rows_->put(record("a")).value());
  ASSERT_TRUE(rows_->put(record("c")).value());
  ASSERT_TRUE(rows_->put(other).value());
  EXPECT_EQ(rows_->list("default")->size(), 2u);
  EXPECT_EQ(rows_->list("other")->size(), 1u);
  EXPECT_EQ(rows_->list("")->size(), 3u);
}

}  // namespace
}  // namespace atl::store
