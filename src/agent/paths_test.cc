#include "agent/paths.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "agent/testing.h"

namespace atl::agent {
namespace {

using testing::current_user;
using testing::TempDir;
using testing::write_text;

User user_with_home(std::string home) {
  User user;
  user.name = "user";
  user.home = std::move(home);
  return user;
}

TEST(ResolvePath, Table) {
  const User user = user_with_home("/home/user");
  struct Row {
    std::string path;
    std::string workdir;
    std::string expected;
  };
  const Row rows[] = {
      {"", "", "/home/user"},
      {"", "/code", "/code"},
      {"", "code", "/home/user/code"},
      {"~", "", "/home/user"},
      {"~/", "", "/home/user"},
      {"~/a/../b", "", "/home/user/b"},
      {"a", "/code", "/home/user/a"},  // relative paths never mean the default directory
      {"./a/", "", "/home/user/a"},
      {"../x", "", "/home/x"},
      {"../../../..", "", "/"},
      {"/etc/passwd", "", "/etc/passwd"},
      {"/a/../b//c/", "", "/a/../b//c/"},  // absolute paths are echoed as they are
      {"/", "", "/"},
      {"a~b", "", "/home/user/a~b"},
      {"gr\xc3\xbc\xc3\x9f", "", "/home/user/gr\xc3\xbc\xc3\x9f"},
  };
  for (const Row& row : rows) {
    const auto resolved = resolve_path(row.path, user, row.workdir);
    ASSERT_TRUE(resolved.ok()) << row.path;
    EXPECT_EQ(*resolved, row.expected) << row.path;
  }
}

TEST(ResolvePath, Refusals) {
  const User user = user_with_home("/home/user");
  const auto named = resolve_path("~root/x", user, "");
  ASSERT_FALSE(named.ok());
  EXPECT_EQ(named.error().code, Errc::invalid_argument);
  EXPECT_EQ(
      named.error().message,
      "failed to expand path '~root/x' for user 'user': cannot expand user-specific home dir");
  for (const std::string& bad : {std::string("/a\0b", 4), std::string("/\xff\xfe"),
                                 std::string(5000, 'a'), std::string("~x")}) {
    const auto refused = resolve_path(bad, user, "");
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Errc::invalid_argument);
  }
}

TEST(PathText, CleanParentBaseJoin) {
  EXPECT_EQ(clean_path(""), ".");
  EXPECT_EQ(clean_path("//a//./b/../c/"), "/a/c");
  EXPECT_EQ(clean_path("../../a"), "../../a");
  EXPECT_EQ(clean_path("/.."), "/");
  EXPECT_EQ(parent_path("/a/b"), "/a");
  EXPECT_EQ(parent_path("/a/b/"), "/a/b");
  EXPECT_EQ(parent_path("/a"), "/");
  EXPECT_EQ(parent_path("a"), ".");
  EXPECT_EQ(base_name("/a/b//"), "b");
  EXPECT_EQ(base_name("/"), "/");
  EXPECT_EQ(base_name(""), ".");
  EXPECT_EQ(join_path("/", "a"), "/a");
  EXPECT_EQ(join_path("/a", "b"), "/a/b");
}

TEST(PathText, ErrorWording) {
  EXPECT_EQ(os_error_text(ENOENT), "no such file or directory");
  EXPECT_EQ(os_error_text(EEXIST), "file exists");
  const Error error = os_error(Errc::not_found, "lstat", "/x", ENOENT);
  EXPECT_EQ(error.message, "lstat /x: no such file or directory");
  EXPECT_EQ(error.sys_errno, ENOENT);
}

TEST(EnsureDirs, MakesWhatIsMissing) {
  const TempDir dir;
  const User user = current_user(dir.path());
  ASSERT_TRUE(ensure_dirs(dir / "a/b//c/", user).ok());
  struct stat st{};
  ASSERT_EQ(::stat((dir / "a/b/c").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0755U);
  EXPECT_EQ(st.st_uid, user.uid);
  ASSERT_TRUE(ensure_dirs(dir / "a/b/c", user).ok());
  ASSERT_TRUE(ensure_dirs(dir / "x/../y", user).ok());
  EXPECT_EQ(::stat((dir / "y").c_str(), &st), 0);
  ASSERT_TRUE(ensure_dirs("/", user).ok());
}

TEST(EnsureDirs, ExistingDirectoriesKeepTheirMode) {
  const TempDir dir;
  ASSERT_EQ(::mkdir((dir / "a").c_str(), 0700), 0);
  ASSERT_TRUE(ensure_dirs(dir / "a/b", current_user(dir.path())).ok());
  struct stat st{};
  ASSERT_EQ(::stat((dir / "a").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0700U);
}

TEST(EnsureDirs, FileInTheWay) {
  const TempDir dir;
  const User user = current_user(dir.path());
  write_text(dir / "f", "x");
  auto made = ensure_dirs(dir / "f/sub", user);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, Errc::internal);
  EXPECT_EQ(made.error().message, "path is a file: " + dir.path() + "/f");
  // A link to a directory is a directory; one to nowhere is not.
  ASSERT_EQ(::mkdir((dir / "real").c_str(), 0755), 0);
  ASSERT_EQ(::symlink("real", (dir / "link").c_str()), 0);
  EXPECT_TRUE(ensure_dirs(dir / "link/sub", user).ok());
  ASSERT_EQ(::symlink("nowhere", (dir / "dangling").c_str()), 0);
  EXPECT_FALSE(ensure_dirs(dir / "dangling/sub", user).ok());
}

TEST(EnsureDirs, OwnerIsTheUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files to another user";
  const TempDir dir;
  User user = current_user(dir.path());
  user.uid = 12345;
  user.gid = 23456;
  ASSERT_TRUE(ensure_dirs(dir / "a/b", user).ok());
  struct stat st{};
  for (const char* name : {"a", "a/b"}) {
    ASSERT_EQ(::stat((dir / name).c_str(), &st), 0);
    EXPECT_EQ(st.st_uid, 12345U);
    EXPECT_EQ(st.st_gid, 23456U);
  }
  ASSERT_EQ(::stat(dir.path().c_str(), &st), 0);
  EXPECT_EQ(st.st_uid, 0U);
}

}  // namespace
}  // namespace atl::agent
