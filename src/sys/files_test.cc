#include "sys/files.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cerrno>

#include "sys/datagram.h"
#include "sys/rollback.h"

namespace atl::sys {
namespace {

class FileTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/atoll-file-test-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    path_ = name;
    auto dir = open_trusted(path_, O_RDONLY | O_DIRECTORY);
    ASSERT_TRUE(dir.ok());
    dir_ = std::move(*dir);
  }
  void TearDown() override {
    auto parent = open_trusted("/tmp", O_RDONLY | O_DIRECTORY);
    ASSERT_TRUE(parent.ok());
    EXPECT_TRUE(remove_tree(*parent, path_.substr(5)).ok());
  }
  std::string path_;
  UniqueFd dir_;
};

TEST_F(FileTest, OpenBeneathRefusesToLeave) {
  ASSERT_TRUE(make_dir(dir_, "in", 0755, IfExists::fail).ok());
  ASSERT_EQ(::symlinkat("/etc", dir_.get(), "link"), 0);
  EXPECT_TRUE(open_beneath(dir_, "in", O_RDONLY).ok());
  for (const char* path : {"..", "in/../../x", "/etc/passwd", "link", "link/passwd"}) {
    auto opened = open_beneath(dir_, path, O_RDONLY);
    EXPECT_FALSE(opened.ok()) << path;
  }
}

TEST_F(FileTest, CreateFileNeverReplaces) {
  ASSERT_TRUE(create_file(dir_, "f", "one", 0444, ::getuid()).ok());
  EXPECT_FALSE(create_file(dir_, "f", "two", 0444, ::getuid()).ok());
  auto text = read_beneath(dir_, "f");
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(*text, "one");
  auto info = stat_at(dir_, "f");
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->st_mode & 07777, 0444u);
}

TEST_F(FileTest, ReadLimitIsAnError) {
  ASSERT_TRUE(create_file(dir_, "f", std::string(100, 'x'), 0600, ::getuid()).ok());
  EXPECT_TRUE(read_beneath(dir_, "f", 100).ok());
  auto too_long = read_beneath(dir_, "f", 99);
  ASSERT_FALSE(too_long.ok());
  EXPECT_EQ(too_long.error().code, Errc::out_of_range);
}

TEST_F(FileTest, SparseCopyKeepsHolesAndContent) {
  auto from = open_beneath(dir_, "from", O_RDWR | O_CREAT, 0600);
  auto to = open_beneath(dir_, "to", O_RDWR | O_CREAT, 0600);
  ASSERT_TRUE(from.ok() && to.ok());
  constexpr off_t kSize = 64 << 20;
  ASSERT_EQ(::ftruncate(from->get(), kSize), 0);
  ASSERT_EQ(::pwrite(from->get(), "begin", 5, 0), 5);
  ASSERT_EQ(::pwrite(from->get(), "middle", 6, 32 << 20), 6);
  ASSERT_TRUE(copy_sparse(*from, *to).ok());
  auto info = stat_of(*to);
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->st_size, kSize);
  EXPECT_LT(info->st_blocks * 512, 4 << 20);
  char text[7] = {};
  ASSERT_EQ(::pread(to->get(), text, 6, 32 << 20), 6);
  EXPECT_STREQ(text, "middle");
}

TEST_F(FileTest, RemoveTreeDoesNotFollowLinks) {
  ASSERT_TRUE(make_dir(dir_, "keep", 0755, IfExists::fail).ok());
  ASSERT_TRUE(create_file(dir_, "keep/file", "x", 0600, ::getuid()).ok());
  ASSERT_TRUE(make_dir(dir_, "tree", 0755, IfExists::fail).ok());
  ASSERT_TRUE(make_dir(dir_, "tree/sub", 0755, IfExists::fail).ok());
  ASSERT_EQ(::symlinkat("../../keep", dir_.get(), "tree/sub/link"), 0);
  ASSERT_TRUE(remove_tree(dir_, "tree").ok());
  EXPECT_FALSE(stat_at(dir_, "tree").ok());
  EXPECT_TRUE(stat_at(dir_, "keep/file").ok());
  EXPECT_TRUE(remove_tree(dir_, "tree").ok());
}

TEST_F(FileTest, LockIsExclusive) {
  auto first = FileLock::acquire_dir(dir_, "lock", 0700, std::chrono::milliseconds(0));
  ASSERT_TRUE(first.ok());
  auto second = FileLock::acquire_dir(dir_, "lock", 0700, std::chrono::milliseconds(0));
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, Errc::failed_precondition);
}

TEST_F(FileTest, DatagramsCarryDescriptors) {
  auto ends = seqpacket_pair();
  ASSERT_TRUE(ends.ok());
  const int fd = dir_.get();
  const std::byte bytes[3] = {std::byte{1}, std::byte{2}, std::byte{3}};
  ASSERT_TRUE(send_datagram(ends->first, bytes, std::span(&fd, 1), Wait::yes).ok());
  auto got = receive_datagram(ends->second, 16, 1, Wait::yes);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->bytes.size(), 3u);
  ASSERT_EQ(got->fds.size(), 1u);
  EXPECT_TRUE(open_beneath(got->fds[0], "", O_RDONLY | O_DIRECTORY).ok());

  ASSERT_TRUE(send_datagram(ends->first, bytes, {}, Wait::yes).ok());
  auto cut = receive_datagram(ends->second, 2, 0, Wait::yes);
  ASSERT_FALSE(cut.ok());
  EXPECT_EQ(cut.error().code, Errc::out_of_range);

  auto none = receive_datagram(ends->second, 16, 0, Wait::no);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().sys_errno, EAGAIN);
  ends->first.reset();
  auto closed = receive_datagram(ends->second, 16, 0, Wait::yes);
  ASSERT_TRUE(closed.ok());
  EXPECT_TRUE(closed->bytes.empty());
}

TEST(Rollback, UndoesInReverseUnlessCommitted) {
  std::string order;
  {
    Rollback rollback;
    rollback.add([&] { order += "a"; });
    rollback.add([&] { order += "b"; });
  }
  EXPECT_EQ(order, "ba");
  {
    Rollback rollback;
    rollback.add([&] { order += "c"; });
    rollback.commit();
  }
  EXPECT_EQ(order, "ba");
}

}  // namespace
}  // namespace atl::sys
