#include "runtime/jail/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sched.h>

#include <set>

#include "runtime/jail/init.h"

namespace atl::jail {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

LaunchSpec spec() {
  return {"abc",        "base",     "box", "01234567-89ab-4cde-8f01-23456789abcd",
          512ull << 20, 1ull << 30, 1500,  99,
          4711,         {}};
}

HostFacts v1() {
  HostFacts facts;
  facts.cgroups.kind = sys::CgroupKind::v1;
  facts.cgroups.hierarchies = {{"/c/memory", {"memory"}},
                               {"/c/pids", {"pids"}},
                               {"/c/cpu", {"cpu"}},
                               {"/c/freezer", {"freezer"}},
                               {"/c/devices", {"devices"}}};
  return facts;
}

HostFacts v2() {
  HostFacts facts;
  facts.cgroups.kind = sys::CgroupKind::v2;
  facts.cgroups.hierarchies = {{"/c", {"memory", "pids", "cpu"}}};
  return facts;
}

const Step& find(const std::vector<Step>& plan, const std::string& name) {
  for (const Step& step : plan) {
    if (step.name == name) return step;
  }
  ADD_FAILURE() << "no step " << name;
  return plan.front();
}

std::size_t position(const std::vector<Step>& plan, const std::string& name) {
  for (std::size_t i = 0; i < plan.size(); ++i) {
    if (plan[i].name == name) return i;
  }
  ADD_FAILURE() << "no step " << name;
  return 0;
}

std::vector<std::string> writes(const std::vector<Step>& plan) {
  std::vector<std::string> out;
  for (const CgroupWrite& write : std::get<MakeCgroup>(find(plan, "cgroup").action).writes) {
    out.push_back(write.file + "=" + write.value);
  }
  return out;
}

TEST(Plan, NamesAreUniqueAndFitTheReport) {
  for (const HostFacts& facts : {v1(), v2()}) {
    const auto plan = make_launch_plan(spec(), facts);
    std::set<std::string> names;
    std::size_t of_init = 0;
    for (const Step& step : plan) {
      EXPECT_TRUE(names.insert(step.name).second) << step.name;
      EXPECT_LT(step.name.size(), wire::kStepNameSize);
      of_init += step.actor == Actor::init ? 1 : 0;
    }
    EXPECT_LE(of_init, kMaxInitSteps);
    EXPECT_LE(plan.size(), wire::kMaxSteps);
  }
}

TEST(Plan, LimitsAreSetBeforeTheProcessExists) {
  for (const HostFacts& facts : {v1(), v2()}) {
    const auto plan = make_launch_plan(spec(), facts);
    EXPECT_LT(position(plan, "cgroup"), position(plan, "clone"));
    EXPECT_LT(position(plan, "ids"), position(plan, "template"));
    EXPECT_LT(position(plan, "root"), position(plan, "handover"));
  }
}

TEST(Plan, OrderOfWhatInitGivesUp) {
  const auto plan = make_launch_plan(spec(), v1());
  const std::vector<std::string> order = {
      "cgroup.enter", "cgroup.namespace", "receive",       "proc.make", "change_root",
      "proc",         "sysctl",           "proc.restrict", "listen",    "identity",
      "capabilities", "descriptors",      "seccomp",       "exec"};
  for (std::size_t i = 1; i < order.size(); ++i) {
    EXPECT_LT(position(plan, order[i - 1]), position(plan, order[i]))
        << order[i - 1] << " before " << order[i];
  }
  EXPECT_EQ(plan.back().name, "exec");
  EXPECT_EQ(position(plan, "seccomp") + 1, position(plan, "exec"));
}

TEST(Plan, CgroupV1Limits) {
  const auto lines = writes(make_launch_plan(spec(), v1()));
  EXPECT_THAT(lines, Contains("memory.limit_in_bytes=536870912"));
  EXPECT_THAT(lines, Contains("pids.max=99"));
  EXPECT_THAT(lines, Contains("cpu.cfs_quota_us=150000"));
  EXPECT_THAT(lines, Contains("devices.deny=a"));
  EXPECT_THAT(lines, Not(Contains(HasSubstr("rwm"))));
  HostFacts without = v1();
  without.cgroups.hierarchies.pop_back();
  EXPECT_THAT(writes(make_launch_plan(spec(), without)), Not(Contains(HasSubstr("devices"))));
}

TEST(Plan, CgroupV2Limits) {
  const auto plan = make_launch_plan(spec(), v2());
  const auto lines = writes(plan);
  EXPECT_THAT(lines, Contains("memory.max=536870912"));
  EXPECT_THAT(lines, Contains("memory.swap.max=0"));
  EXPECT_THAT(lines, Contains("pids.max=99"));
  EXPECT_THAT(lines, Contains("cpu.max=150000 100000"));
  EXPECT_TRUE(std::get<CloneInit>(find(plan, "clone").action).into_cgroup);
}

TEST(Plan, NamespacesAreAllThere) {
  const auto plan = make_launch_plan(spec(), v1());
  const std::uint64_t flags = std::get<CloneInit>(find(plan, "clone").action).flags;
  for (std::uint64_t flag :
       {CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWIPC, CLONE_NEWUTS}) {
    EXPECT_NE(flags & flag, 0u);
  }
  EXPECT_EQ(std::get<Unshare>(find(plan, "cgroup.namespace").action).flags, CLONE_NEWCGROUP);
}

TEST(Plan, CapabilitiesAreTheDocumentedTwelve) {
  const std::uint64_t keep = kept_capabilities();
  EXPECT_EQ(__builtin_popcountll(keep), 12);
  for (int capability :
       {CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_SYS_PTRACE, CAP_SYS_MODULE, CAP_MKNOD,
        CAP_DAC_READ_SEARCH, CAP_SYS_RESOURCE, CAP_BPF, CAP_PERFMON, CAP_CHECKPOINT_RESTORE}) {
    EXPECT_EQ(keep >> capability & 1, 0u) << capability;
  }
}

TEST(Plan, WhatIsSpecialToTheSandboxGetsIn) {
  const auto plan = make_launch_plan(spec(), v1());
  EXPECT_EQ(std::get<SetHostname>(find(plan, "hostname").action).name, "box");
  const auto& control = std::get<MakeControlDir>(find(plan, "control").action);
  EXPECT_EQ(control.boot_id, "01234567-89ab-4cde-8f01-23456789abcd");
  EXPECT_THAT(control.options, Contains(std::pair<std::string, std::string>("gid", "4711")));
  std::string hosts;
  for (const UpperEntry& entry : std::get<FillUpper>(find(plan, "upper").action).entries) {
    if (entry.path == "etc/hosts") hosts = entry.content;
  }
  EXPECT_THAT(hosts, HasSubstr("localhost box\n"));
}

TEST(Plan, ProcIsReadOnlyWhereItActsOnTheHost) {
  const auto plan = make_launch_plan(spec(), v1());
  std::set<std::string> targets;
  for (const Bind& bind : std::get<BindAll>(find(plan, "proc.restrict").action).binds) {
    EXPECT_NE(bind.attrs & MOUNT_ATTR_RDONLY, 0u) << bind.target;
    targets.insert(bind.target);
  }
  for (const char* path :
       {"proc/sys", "proc/irq", "proc/bus", "proc/fs", "proc/kcore", "proc/keys", "proc/timer_list",
        "proc/sched_debug", "proc/latency_stats", "proc/sysrq-trigger", "proc/acpi", "proc/scsi",
        "proc/sys/kernel/random/boot_id"}) {
    EXPECT_TRUE(targets.contains(path)) << path;
  }
}

TEST(Plan, RunnersAreReadOnlyAndThereBeforeAnyRightIsGivenUp) {
  const auto plan = make_launch_plan(spec(), v1());
  const auto& kernels = std::get<AttachShared>(find(plan, "kernels").action);
  EXPECT_EQ(kernels.target, "run/atoll/kernels");
  for (sys::MountAttrs attr : {MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV})
    EXPECT_NE(kernels.attrs & attr, 0u);
  EXPECT_LT(position(plan, "run"), position(plan, "kernels"));
  EXPECT_LT(position(plan, "kernels"), position(plan, "identity"));
  bool copied = false;
  for (const auto& [name, path] : std::get<CloneShared>(find(plan, "shared").action).parts)
    copied = copied || name == kernels.name;
  EXPECT_TRUE(copied);
}

TEST(Plan, NothingButTheStageIsAHostPath) {
  for (const Step& step : make_launch_plan(spec(), v1())) {
    const std::string line = describe(step);
    EXPECT_FALSE(line.empty());
    EXPECT_EQ(line.find("/sandboxes"), std::string::npos) << line;
    EXPECT_EQ(line.find("/templates"), std::string::npos) << line;
  }
}

TEST(Plan, EqualInputGivesEqualPlans) {
  const auto one = make_launch_plan(spec(), v1());
  const auto two = make_launch_plan(spec(), v1());
  ASSERT_EQ(one.size(), two.size());
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_EQ(describe(one[i]), describe(two[i]));
}

TEST(Plan, PolicyComesBeforeTheInterface) {
  LaunchSpec wanted = spec();
  wanted.network.deny = {*Cidr4::parse("0.0.0.0/0")};
  const auto plan = make_launch_plan(wanted, v2());
  EXPECT_EQ(std::get<ApplyNetworkPolicy>(find(plan, "network.policy").action).policy,
            wanted.network);
  EXPECT_LT(position(plan, "clone"), position(plan, "network.policy"));
  EXPECT_LT(position(plan, "network.policy"), position(plan, "network.link"));
  // The process inside waits for the hand-over before it touches its interface.
  EXPECT_LT(position(plan, "network.link"), position(plan, "handover"));
  EXPECT_LT(position(plan, "receive"), position(plan, "network"));
  // No IPv6 before the interface is up; rights go after that.
  EXPECT_LT(position(plan, "sysctl"), position(plan, "network"));
  EXPECT_LT(position(plan, "network"), position(plan, "capabilities"));
  bool off = false;
  for (const SetSysctl& value : std::get<SetSysctls>(find(plan, "sysctl").action).values)
    off = off || (value.path == "net/ipv6/conf/eth0/disable_ipv6" && value.value == "1");
  EXPECT_TRUE(off);
  EXPECT_EQ(kept_capabilities() >> CAP_NET_ADMIN & 1, 0u);
}

TEST(Plan, NamesAreAskedForAtTheGateway) {
  const auto resolver = [](const HostFacts& facts) {
    const auto plan = make_launch_plan(spec(), facts);
    for (const UpperEntry& entry : std::get<FillUpper>(find(plan, "upper").action).entries) {
      if (entry.path == "etc/resolv.conf") return entry;
    }
    return UpperEntry{};
  };
  EXPECT_EQ(resolver(v2()).content, "nameserver 198.18.0.1\n");
  EXPECT_EQ(resolver(v2()).kind, UpperEntry::Kind::file);
  HostFacts alone = v2();
  alone.network = false;
  EXPECT_EQ(resolver(alone).kind, UpperEntry::Kind::file_if_missing);
  for (const Step& step : make_launch_plan(spec(), alone))
    EXPECT_THAT(step.name, Not(HasSubstr("network")));
}

TEST(Plan, AKeptDiskIsOpenedAndNothingIsWrittenIntoIt) {
  LaunchSpec kept = spec();
  kept.kept = KeptDisk{12345};
  const auto plan = make_launch_plan(kept, v1());
  EXPECT_TRUE(std::holds_alternative<OpenDirectory>(find(plan, "directory").action));
  EXPECT_EQ(std::get<KeepRange>(find(plan, "range").action).slot, 12345u);
  EXPECT_TRUE(std::holds_alternative<OpenImage>(find(plan, "disk.image").action));
  for (const Step& step : plan) {
    EXPECT_FALSE(std::holds_alternative<FillUpper>(step.action));
    EXPECT_FALSE(std::holds_alternative<CopyImage>(step.action));
    EXPECT_FALSE(std::holds_alternative<MakeDirectory>(step.action));
  }
  EXPECT_LT(position(plan, "root"), position(plan, "mount_points"));
  EXPECT_LT(position(plan, "mount_points"), position(plan, "handover"));
  EXPECT_THAT(describe(find(plan, "range")), HasSubstr("12345"));
  // What confines the new process is the same.
  std::vector<std::string> fresh_steps, kept_steps;
  for (const Step& step : make_launch_plan(spec(), v1()))
    if (step.actor == Actor::init) fresh_steps.push_back(describe(step));
  for (const Step& step : plan)
    if (step.actor == Actor::init) kept_steps.push_back(describe(step));
  EXPECT_EQ(kept_steps, fresh_steps);
}

TEST(Plan, TheMarkIsTheLastThingTheWardenDoes) {
  for (const bool again : {false, true}) {
    LaunchSpec wanted = spec();
    if (again) wanted.kept = KeptDisk{12345};
    std::string last;
    for (const Step& step : make_launch_plan(wanted, v2()))
      if (step.actor == Actor::warden) last = step.name;
    EXPECT_EQ(last, "mark");
  }
}

}  // namespace
}  // namespace atl::jail
