#include "sys/cgroup.h"

#include <gtest/gtest.h>

namespace atl::sys {
namespace {

constexpr std::string_view kHybrid = R"(22 27 0:21 / /proc rw,relatime - proc proc rw
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
33 31 0:30 / /sys/fs/cgroup/cpuacct rw,relatime shared:4 - cgroup cgroup rw,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
36 31 0:33 / /sys/fs/cgroup/devices rw,relatime - cgroup cgroup rw,devices
37 31 0:34 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer
38 31 0:35 / /sys/fs/cgroup/blkio rw,relatime - cgroup cgroup rw,blkio
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
)";

TEST(CgroupLayout, HybridIsV1WithEveryControllerWeUse) {
  auto layout = parse_cgroup_layout(kHybrid);
  ASSERT_TRUE(layout.ok()) << layout.error().message;
  EXPECT_EQ(layout->kind, CgroupKind::v1);
  EXPECT_EQ(layout->hierarchies.size(), 6u);
  for (const char* name : {"memory", "pids", "cpu", "freezer", "cpuacct", "devices"})
    EXPECT_TRUE(layout->has(name)) << name;
  EXPECT_FALSE(layout->has("blkio"));
}

TEST(CgroupLayout, ControllersMountedTogetherAreOneHierarchy) {
  auto layout = parse_cgroup_layout(
      "1 0 0:1 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
      "2 0 0:2 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
      "3 0 0:3 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n"
      "4 0 0:4 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n");
  ASSERT_TRUE(layout.ok()) << layout.error().message;
  EXPECT_EQ(layout->hierarchies.size(), 4u);
  EXPECT_EQ(layout->hierarchies[0], (Hierarchy{"/sys/fs/cgroup/cpu,cpuacct", {"cpu", "cpuacct"}}));
  EXPECT_FALSE(layout->has("devices"));
}

TEST(CgroupLayout, SecondMountOfAControllerIsIgnored) {
  std::string text(kHybrid);
  text += "50 31 0:32 / /elsewhere/memory rw - cgroup cgroup rw,memory\n";
  auto layout = parse_cgroup_layout(text);
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->hierarchies.size(), 6u);
}

TEST(CgroupLayout, PureV2) {
  auto layout = parse_cgroup_layout(
      "35 24 0:30 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 "
      "rw,nsdelegate,memory_recursiveprot\n");
  ASSERT_TRUE(layout.ok()) << layout.error().message;
  EXPECT_EQ(layout->kind, CgroupKind::v2);
  ASSERT_EQ(layout->hierarchies.size(), 1u);
  EXPECT_EQ(layout->hierarchies[0].mount_point, "/sys/fs/cgroup");
}

TEST(CgroupLayout, EscapesInMountPoints) {
  auto layout = parse_cgroup_layout("35 24 0:30 / /sys/fs/c\\040group rw - cgroup2 none rw\n");
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->hierarchies[0].mount_point, "/sys/fs/c group");
}

TEST(CgroupLayout, NothingMountedAndHalfMountedAreErrors) {
  auto none = parse_cgroup_layout("22 27 0:21 / /proc rw,relatime - proc proc rw\nbroken line\n");
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, Errc::failed_precondition);
  auto half = parse_cgroup_layout(
      "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n");
  ASSERT_FALSE(half.ok());
  EXPECT_NE(half.error().message.find("pids, cpu, freezer"), std::string::npos)
      << half.error().message;
}

}  // namespace
}  // namespace atl::sys
