#include "agent/entry.h"

#include <gtest/gtest.h>
#include <sys/xattr.h>

#include "agent/file_io.h"
#include "agent/testing.h"

namespace atl::agent {
namespace {

using testing::TempDir;
using testing::write_text;

filesystem::EntryInfo entry_of(const std::string& path) {
  system_users().refresh();
  filesystem::EntryInfo entry;
  const auto read = read_entry(path, system_users(), entry);
  EXPECT_TRUE(read.ok()) << read.error().message;
  return entry;
}

TEST(PermissionText, Letters) {
  EXPECT_EQ(permission_text(S_IFREG | 0644), "-rw-r--r--");
  EXPECT_EQ(permission_text(S_IFDIR | 0755), "drwxr-xr-x");
  EXPECT_EQ(permission_text(S_IFLNK | 0777), "Lrwxrwxrwx");
  EXPECT_EQ(permission_text(S_IFDIR | 01777), "dtrwxrwxrwx");
  EXPECT_EQ(permission_text(S_IFREG | 04755), "urwxr-xr-x");
  EXPECT_EQ(permission_text(S_IFREG | 06755), "ugrwxr-xr-x");
  EXPECT_EQ(permission_text(S_IFDIR | 02755), "dgrwxr-xr-x");
  EXPECT_EQ(permission_text(S_IFIFO | 0600), "prw-------");
  EXPECT_EQ(permission_text(S_IFSOCK | 0755), "Srwxr-xr-x");
  EXPECT_EQ(permission_text(S_IFBLK | 0660), "Drw-rw----");
  EXPECT_EQ(permission_text(S_IFCHR | 0666), "Dcrw-rw-rw-");
  EXPECT_EQ(permission_text(S_IFREG), "----------");
}

TEST(ValidUtf8, ReplacesOnlyWhatIsNot) {
  EXPECT_EQ(to_valid_utf8("plain"), "plain");
  EXPECT_EQ(to_valid_utf8("gr\xc3\xbc"), "gr\xc3\xbc");
  EXPECT_EQ(to_valid_utf8("a\xff"
                          "b\xc3"),
            "a\xEF\xBF\xBD"
            "b\xEF\xBF\xBD");
  EXPECT_EQ(to_valid_utf8("\xf0\x9f\x98\x80\x80"), "\xf0\x9f\x98\x80\xEF\xBF\xBD");
}

TEST(Entry, FileAndDirectory) {
  const TempDir dir;
  write_text(dir / "f.txt", "test");
  ASSERT_EQ(::chmod((dir / "f.txt").c_str(), 0640), 0);
  const auto file = entry_of(dir / "f.txt");
  EXPECT_EQ(file.name(), "f.txt");
  EXPECT_EQ(file.path(), dir / "f.txt");
  EXPECT_EQ(file.type(), filesystem::FILE_TYPE_FILE);
  EXPECT_EQ(file.size(), 4);
  EXPECT_EQ(file.mode(), 0640U);
  EXPECT_EQ(file.permissions(), "-rw-r-----");
  EXPECT_EQ(file.owner(), system_users().user_name(::geteuid()));
  EXPECT_GT(file.modified_time().seconds(), 1'600'000'000);
  EXPECT_FALSE(file.has_symlink_target());
  EXPECT_TRUE(file.metadata().empty());

  ASSERT_EQ(::mkdir((dir / "d").c_str(), 0755), 0);
  const auto directory = entry_of(dir / "d/");
  EXPECT_EQ(directory.name(), "d");
  EXPECT_EQ(directory.path(), dir / "d/");
  EXPECT_EQ(directory.type(), filesystem::FILE_TYPE_DIRECTORY);
  EXPECT_EQ(directory.permissions(), "drwxr-xr-x");
}

TEST(Entry, LinksShowTheirFinalTarget) {
  const TempDir dir;
  write_text(dir / "target", "12345678");
  ASSERT_EQ(::chmod((dir / "target").c_str(), 0600), 0);
  ASSERT_EQ(::symlink("target", (dir / "one").c_str()), 0);
  ASSERT_EQ(::symlink("one", (dir / "two").c_str()), 0);
  const auto link = entry_of(dir / "two");
  EXPECT_EQ(link.name(), "two");
  EXPECT_EQ(link.symlink_target(), dir / "target");
  EXPECT_EQ(link.type(), filesystem::FILE_TYPE_FILE);
  EXPECT_EQ(link.mode(), 0600U);
  EXPECT_EQ(link.permissions(), "Lrwxrwxrwx");
  EXPECT_EQ(link.size(), 3);

  ASSERT_EQ(::symlink("nowhere", (dir / "broken").c_str()), 0);
  ASSERT_EQ(::symlink("cycle", (dir / "cycle").c_str()), 0);
  for (const char* name : {"broken", "cycle"}) {
    const auto entry = entry_of(dir / name);
    EXPECT_EQ(entry.type(), filesystem::FILE_TYPE_UNSPECIFIED) << name;
    EXPECT_EQ(entry.mode(), 0U);
    EXPECT_EQ(entry.symlink_target(), dir / name);
  }
}

TEST(Entry, SpecialFilesHaveNoType) {
  const TempDir dir;
  ASSERT_EQ(::mkfifo((dir / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(entry_of(dir / "fifo").type(), filesystem::FILE_TYPE_UNSPECIFIED);
  EXPECT_EQ(entry_of("/dev/null").permissions().substr(0, 2), "Dc");
}

TEST(Entry, Failures) {
  const TempDir dir;
  write_text(dir / "f", "");
  filesystem::EntryInfo entry;
  const auto missing = read_entry(dir / "none", system_users(), entry);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, Errc::not_found);
  EXPECT_EQ(missing.error().message, "lstat " + (dir / "none") + ": no such file or directory");
  const auto below_file = read_entry(dir / "f/x", system_users(), entry);
  ASSERT_FALSE(below_file.ok());
  EXPECT_EQ(below_file.error().code, Errc::internal);
}

class MetadataTest : public ::testing::Test {
 protected:
  void SetUp() override {
    write_text(dir_ / "f", "x");
    if (::setxattr((dir_ / "f").c_str(), "user.probe", "1", 1, 0) != 0) {
      GTEST_SKIP() << "the temporary directory has no user xattrs";
    }
    fd_ = Fd(::open((dir_ / "f").c_str(), O_RDWR | O_CLOEXEC));
  }
  TempDir dir_;
  Fd fd_;
};

TEST_F(MetadataTest, ReplacesTheWholeSet) {
  ASSERT_TRUE(replace_metadata(fd_.get(), {{"a", "1"}, {"b", "2"}}).ok());
  EXPECT_EQ(read_metadata(fd_.get()), (Metadata{{"a", "1"}, {"b", "2"}}));
  ASSERT_TRUE(replace_metadata(fd_.get(), {{"b", "3"}, {"c", ""}}).ok());
  EXPECT_EQ(read_metadata(dir_ / "f"), (Metadata{{"b", "3"}, {"c", ""}}));
  ASSERT_TRUE(replace_metadata(fd_.get(), {}).ok());
  EXPECT_TRUE(read_metadata(fd_.get()).empty());
  char probe = 0;
  EXPECT_EQ(::getxattr((dir_ / "f").c_str(), "user.probe", &probe, 1), 1);  // not ours, not touched
}

TEST_F(MetadataTest, EntriesCarryItAlsoThroughLinks) {
  ASSERT_TRUE(replace_metadata(fd_.get(), {{"author", "me"}}).ok());
  ASSERT_EQ(::setxattr((dir_ / "f").c_str(), "user.e2b.binary", "\xff", 1, 0), 0);
  ASSERT_EQ(::symlink("f", (dir_ / "link").c_str()), 0);
  for (const char* name : {"f", "link"}) {
    const auto entry = entry_of(dir_ / name);
    ASSERT_EQ(entry.metadata_size(), 1) << name;
    EXPECT_EQ(entry.metadata().at("author"), "me");
  }
}

TEST_F(MetadataTest, LongValues) {
  const std::string value(3000, 'v');
  ASSERT_TRUE(replace_metadata(fd_.get(), {{"long", value}}).ok());
  EXPECT_EQ(read_metadata(fd_.get()).at("long"), value);
}

}  // namespace
}  // namespace atl::agent
