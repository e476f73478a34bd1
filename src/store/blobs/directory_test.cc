#include "store/blobs/directory.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "base/ids.h"
#include "store/blobs/conformance.h"

namespace atl::blobs {
namespace {

namespace fs = std::filesystem;

class DirectoryTest : public testing::Conformance {
 protected:
  DirectoryTest() : root(fs::path(::testing::TempDir()) / ("blobs-" + random_hex(8))) { reopen(); }
  ~DirectoryTest() override {
    store.reset();
    fs::remove_all(root);
  }
  void reopen() {
    store.reset();
    auto opened = open_directory(root.string());
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    store = std::move(*opened);
  }
  std::size_t drafts() const {
    return std::size_t(std::distance(fs::directory_iterator(root / "tmp"), {}));
  }

  const fs::path root;
};

ATOLL_BLOB_CONFORMANCE(DirectoryTest)

TEST_F(DirectoryTest, FailedPutsLeaveNoFiles) {
  EXPECT_FALSE(runner
                   .run(store->put(
                       "a/b", testing::pattern_source(5 << 20, make_error(Errc::aborted, "gone"))))
                   .ok());
  EXPECT_EQ(drafts(), 0u);
  EXPECT_TRUE(fs::is_empty(root / "blobs"));
}

TEST_F(DirectoryTest, RemovalLeavesNoDirectories) {
  put("a/b/c/d", "x");
  EXPECT_TRUE(runner.run(store->remove("a/b/c/d")).ok());
  EXPECT_TRUE(fs::is_empty(root / "blobs"));
}

TEST_F(DirectoryTest, WhatAnEarlierLifeLeftIsRemoved) {
  put("kept", "x");
  std::ofstream(root / "tmp" / "0123") << "half";
  fs::create_directory(root / "tmp" / "dir");
  EXPECT_TRUE(runner.run(store->clean_up([](std::string_view) { return false; })).ok());
  EXPECT_EQ(drafts(), 0u);
  reopen();
  EXPECT_EQ(get("kept"), "x");
}

TEST_F(DirectoryTest, OneServerPerDirectory) {
  auto second = open_directory(root.string());
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, Errc::failed_precondition);
  EXPECT_NE(second.error().message.find("another server"), std::string::npos);
}

TEST_F(DirectoryTest, NobodyElseReadsTheFiles) {
  put("a/b", "x");
  struct stat st{};
  ASSERT_EQ(::stat((root / "blobs" / "a" / "b").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
}

TEST_F(DirectoryTest, LinksAreNotFollowed) {
  std::ofstream(root / "secret") << "secret";
  fs::create_symlink(root / "secret", root / "blobs" / "link");
  EXPECT_FALSE(runner.run(store->get("link")).ok());
}

}  // namespace
}  // namespace atl::blobs
