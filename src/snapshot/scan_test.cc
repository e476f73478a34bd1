#include "snapshot/scan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/sysmacros.h>

namespace atl::snapshot {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::string_view kMounts =
    "143 109 0:58 / / rw,nodev,relatime - overlay atoll rw,lowerdir+=/\n"
    "147 143 0:61 / /proc rw,nosuid - proc none rw\n"
    "144 143 0:39 /dev /dev ro,nosuid master:3 - tmpfs atoll rw\n";
const std::vector<ExpectedMount> kExpected = {{"/", "overlay", false},
                                              {"/proc", "proc", false},
                                              {"/dev", "tmpfs", true},
                                              {"/x", "tmpfs", true}};

TEST(Mounts, AreRead) {
  auto mounts = parse_mountinfo(kMounts);
  ASSERT_TRUE(mounts);
  ASSERT_EQ(mounts->size(), 3u);
  EXPECT_EQ((*mounts)[0].id, 143u);
  EXPECT_EQ((*mounts)[0].device, ::makedev(0, 58));
  EXPECT_EQ((*mounts)[2].path, "/dev");
  EXPECT_EQ((*mounts)[2].type, "tmpfs");
  EXPECT_FALSE(parse_mountinfo("not a line\n"));
}

TEST(Mounts, ExpectedOnesPassAndTellTheExternal) {
  EXPECT_THAT(*check_mounts(*parse_mountinfo(kMounts), kExpected), ElementsAre("/dev"));
}

TEST(Mounts, OthersAreRefused) {
  for (const char* line : {"9 143 0:9 / /mnt rw - tmpfs x rw\n",  // another place
                           "9 143 0:9 / /x rw - overlay x rw\n",  // another kind
                           "9 143 0:9 / /dev rw - tmpfs x rw\n",  // twice
                           "9 143 0:9 / /a\\040b rw - tmpfs x rw\n"}) {
    auto checked = check_mounts(*parse_mountinfo(std::string(kMounts) + line), kExpected);
    ASSERT_FALSE(checked) << line;
    EXPECT_EQ(checked.error().code, Errc::failed_precondition);
    EXPECT_THAT(checked.error().message, HasSubstr("mount: "));
  }
  EXPECT_FALSE(check_mounts({}, kExpected));
}

TEST(Status, IsRead) {
  auto status = parse_status(
      "Name:\tnode\x01 x\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t70\nPPid:\t69\nTracerPid:\t0\n"
      "NSpid:\t5929\t7\n");
  ASSERT_TRUE(status);
  EXPECT_EQ(status->name, "node?");
  EXPECT_EQ(status->state, 'S');
  EXPECT_EQ(status->parent, 69);
  EXPECT_EQ(status->tracer, 0);
  EXPECT_EQ(status->inner_pid, 7);
  EXPECT_FALSE(parse_status("Name:\tx\nState:\tS (sleeping)\n"));
}

TEST(Maps, OnlyFiles) {
  auto maps = parse_maps(
      "00400000-00420000 r--p 00000000 fe:00 1425669      /usr/bin/python3.13\n"
      "7ffc0000-7ffd0000 rw-p 00000000 00:00 0            [stack]\n"
      "7f000000-7f001000 rw-s 00000000 00:01 59           /memfd:a b (deleted)\n");
  ASSERT_TRUE(maps);
  ASSERT_EQ(maps->size(), 2u);
  EXPECT_EQ((*maps)[0].begin, 0x400000u);
  EXPECT_EQ((*maps)[0].device, ::makedev(0xfe, 0));
  EXPECT_EQ((*maps)[0].inode, 1425669u);
  EXPECT_EQ((*maps)[1].name, "/memfd:a b (deleted)");
  EXPECT_FALSE(parse_maps("zz-yy rw-p\n"));
}

TEST(Descriptors, WhatTheyMean) {
  for (const char* fine : {"/dev/null", "socket:[1]", "pipe:[2]", "anon_inode:[eventfd]",
                           "anon_inode:[eventpoll]", "anon_inode:inotify", "anon_inode:[timerfd]"})
    EXPECT_FALSE(obstacle_of_link(fine)) << fine;
  EXPECT_EQ(obstacle_of_link("anon_inode:[io_uring]"), Obstacle::io_uring);
  EXPECT_EQ(obstacle_of_link("anon_inode:[userfaultfd]"), Obstacle::userfaultfd);
  EXPECT_EQ(obstacle_of_link("anon_inode:[perf_event]"), Obstacle::perf_event);
  EXPECT_EQ(obstacle_of_link("anon_inode:[landlock-ruleset]"), Obstacle::descriptor);
  EXPECT_EQ(obstacle_of_link("anon_inode:bpf-map"), Obstacle::descriptor);
  EXPECT_EQ(obstacle_of_link("net:[4026531840]"), Obstacle::descriptor);
}

}  // namespace
}  // namespace atl::snapshot
