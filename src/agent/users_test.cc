#include "agent/users.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "agent/testing.h"
#include "base/encoding.h"

namespace atl::agent {
namespace {

using testing::TempDir;
using testing::write_text;

constexpr char kPasswd[] =
    "root:x:0:0:root:/root:/bin/bash\n"
    "broken line\n"
    "nouid:x:abc:1:::\n"
    "huge:x:4294967295:1:::\n"
    "user:x:1000:1000::/home/user:/bin/bash\n"
    "twin:x:1000:1000::/home/twin:/bin/sh\n"
    "homeless:x:1001:1001:::/bin/sh\n";
constexpr char kGroup[] =
    "root:x:0:\n"
    "sudo:x:27:user,other\n"
    "docker:x:999:user\n"
    "bad\n"
    "user:x:1000:user\n";

class UserDbTest : public ::testing::Test {
 protected:
  UserDbTest() {
    write_text(dir_ / "passwd", kPasswd);
    write_text(dir_ / "group", kGroup);
  }
  TempDir dir_;
  UserDb db_{dir_ / "passwd", dir_ / "group"};
};

TEST_F(UserDbTest, FindsUsersWithTheirGroups) {
  const auto user = db_.find("user");
  ASSERT_TRUE(user.ok());
  EXPECT_EQ(*user, (User{"user", 1000, 1000, {1000, 27, 999}, "/home/user", "/bin/bash"}));
  EXPECT_EQ(db_.find("root")->groups, std::vector<gid_t>{0});
  EXPECT_EQ(db_.find("homeless")->home, "/");
}

TEST_F(UserDbTest, UnknownAndMalformedUsersAreRefused) {
  for (const char* name : {"ghost", "nouid", "huge", "broken line", ""}) {
    const auto user = db_.find(name);
    ASSERT_FALSE(user.ok()) << name;
    EXPECT_EQ(user.error().code, Errc::unauthenticated);
    EXPECT_EQ(user.error().message, std::string("user: unknown user ") + name);
  }
}

TEST_F(UserDbTest, NamesOfIds) {
  db_.refresh();
  EXPECT_EQ(db_.user_name(1000), "user");  // the first line of an id wins
  EXPECT_EQ(db_.group_name(27), "sudo");
  EXPECT_EQ(db_.user_name(4242), "4242");
  EXPECT_EQ(db_.group_name(4243), "4243");
}

TEST_F(UserDbTest, ReadsTheFilesAgainWhenTheyChange) {
  ASSERT_FALSE(db_.find("new").ok());
  write_text(dir_ / "passwd", std::string(kPasswd) + "new:x:1002:27::/home/new:/bin/sh\n");
  ASSERT_TRUE(db_.find("new").ok());
  // As useradd does it: another file under the same name.
  write_text(dir_ / "passwd+", "only:x:7:7::/:/bin/sh\n");
  ASSERT_EQ(::rename((dir_ / "passwd+").c_str(), (dir_ / "passwd").c_str()), 0);
  EXPECT_TRUE(db_.find("only").ok());
  EXPECT_FALSE(db_.find("user").ok());
  EXPECT_EQ(db_.user_name(1000), "1000");
}

TEST_F(UserDbTest, FifoInPlaceOfTheTableDoesNotBlock) {
  ASSERT_EQ(::unlink((dir_ / "passwd").c_str()), 0);
  ASSERT_EQ(::mkfifo((dir_ / "passwd").c_str(), 0600), 0);
  EXPECT_FALSE(db_.find("root").ok());
}

TEST(BasicUsername, OnlyWellFormedBasicCounts) {
  EXPECT_EQ(basic_username("Basic " + base64_encode("user:")), "user");
  EXPECT_EQ(basic_username("bAsIc " + base64_encode("root:secret:x")), "root");
  EXPECT_EQ(basic_username("Basic " + base64_encode(":")), "");
  EXPECT_EQ(basic_username("Bearer abc"), std::nullopt);
  EXPECT_EQ(basic_username("Basic !!!"), std::nullopt);
  EXPECT_EQ(basic_username("Basic " + base64_encode("nocolon")), std::nullopt);
  EXPECT_EQ(basic_username(""), std::nullopt);
}

TEST(SelectUser, BasicUserElseDefault) {
  const std::string me = testing::current_user("/").name;
  EXPECT_EQ(select_user("", me)->name, me);
  EXPECT_EQ(select_user("Basic " + base64_encode(me + ":"), "no-such-user")->name, me);
  const auto unknown = select_user("Basic " + base64_encode("no-such-user:"), me);
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code, Errc::unauthenticated);
  EXPECT_EQ(unknown.error().message, "invalid username: 'no-such-user'");
}

}  // namespace
}  // namespace atl::agent
