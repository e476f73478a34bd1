// Killing a sandbox and booting it again over its disk; freezing quickly; what usage says.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "jail_fixture.h"

namespace atl::testing {
namespace {

using runtime::Condition;
using std::chrono::milliseconds;

constexpr const char* kFirstBoot = "11111111-2222-4333-8444-555555555555";
constexpr const char* kSecondBoot = "99999999-2222-4333-8444-555555555555";

class JailReboot : public JailTest {
 protected:
  void begin(std::vector<std::string> extra = {}) {
    auto started = start(std::move(extra));
    ASSERT_TRUE(started.ok()) << started.error().message;
  }
  runtime::SandboxSpec reboot_of(const SandboxId& id) {
    runtime::SandboxSpec out = spec();
    out.id = id;
    out.boot_id = kSecondBoot;
    out.disk = runtime::Disk::kept;
    return out;
  }
  SandboxId first_boot() {
    runtime::SandboxSpec wanted = spec();
    wanted.boot_id = kFirstBoot;
    return create(wanted);
  }
  Errc code_of_create(runtime::SandboxSpec wanted) {
    auto created = await(runtime_->create(std::move(wanted)));
    return created.ok() ? Errc{} : created.error().code;
  }
};

// Everything a filesystem can remember of a file.
constexpr const char* kFill =
    "set -e; mkdir -p /home/user/d /srv/x; echo mine > /home/user/d/f; chown 1000:1000 "
    "/home/user/d/f;"
    "echo root > /srv/x/r; chmod 600 /srv/x/r; cp /bin/true /usr/local/bin/su-true;"
    "chmod 4755 /usr/local/bin/su-true; ln /srv/x/r /srv/x/hard; ln -s r /srv/x/soft;"
    "touch -d 2001-02-03T04:05:06Z /srv/x/old; mkfifo /srv/x/pipe;"
    "echo tmp > /tmp/t; chmod 640 /tmp/t; rm /etc/issue; echo changed >> /etc/profile;"
    "mv /usr/share/doc /usr/share/doc2 2>/dev/null || true;"
    "python3 -c 'import os; os.setxattr(\"/srv/x/r\", \"user.note\", b\"seen\")' 2>/dev/null || "
    "true";
constexpr const char* kShow =
    "cd /; stat -c '%n %F %a %u:%g %h %s %Y' /home/user/d/f /srv/x/* /usr/local/bin/su-true /tmp/t;"
    "cat /home/user/d/f /srv/x/r /srv/x/soft /tmp/t; tail -1 /etc/profile; ls /etc/issue 2>&1;"
    "stat -c %i /srv/x/r /srv/x/hard | uniq | wc -l; ls -d /usr/share/doc2;"
    "python3 -c 'import os; print(os.getxattr(\"/srv/x/r\", \"user.note\"))' 2>/dev/null";

TEST_F(JailReboot, FilesOfEveryKindAreThereAfterwards) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const SandboxId id = first_boot();
  ASSERT_EQ(inside(id, kFill).code, 0);
  const std::string before = inside(id, kShow).output;
  EXPECT_NE(before.find("4755"), std::string::npos) << before;
  EXPECT_NE(before.find("b'seen'"), std::string::npos) << before;
  EXPECT_EQ(inside(id, "cat /proc/sys/kernel/random/boot_id").output,
            std::string(kFirstBoot) + "\n");
  EXPECT_EQ(inside(id, "sleep 1000 > /dev/null 2>&1 & echo shm > /dev/shm/gone").code, 0);
  const std::string ids = inside(id, "cat /proc/self/uid_map").output;

  // The loop device holds the lock of the image for as long as it is mounted.
  const std::string image = home_ + "/sandboxes/test/" + id.str() + "/disk.img";
  EXPECT_EQ(host("flock -n " + image + " true; echo $?"), "1\n");
  ASSERT_TRUE(await(runtime_->kill(id)).ok());
  EXPECT_EQ(host("flock -n " + image + " true; echo $?"), "0\n");
  EXPECT_EQ(condition(id), Condition::dead);
  EXPECT_EQ(init_pid(id), 0);
  // Consistent and mounted nowhere when kill has answered.
  EXPECT_EQ(host("dumpe2fs -h " + image + " 2>/dev/null | grep -c 'state: *clean'"), "1\n");
  EXPECT_EQ(host("e2fsck -fn " + image + " > /dev/null 2>&1; echo $?"), "0\n");
  EXPECT_EQ(await(runtime_->connect_agent(id)).error().code, Errc::failed_precondition);
  ASSERT_TRUE(await(runtime_->kill(id)).ok()) << "again is fine";

  for (int round = 0; round < 3; ++round) {
    create(reboot_of(id));
    EXPECT_EQ(condition(id), Condition::running);
    EXPECT_EQ(inside(id, "cat /proc/sys/kernel/random/boot_id").output,
              std::string(kSecondBoot) + "\n");
    EXPECT_EQ(inside(id, kShow).output, before);
    EXPECT_EQ(inside(id, "ls /dev/shm | wc -l; pgrep sleep | wc -l").output, "0\n0\n");
    EXPECT_EQ(inside(id, "cat /proc/self/uid_map").output, ids);
    EXPECT_EQ(inside(id, "echo more >> /home/user/more; wc -l < /home/user/more").output,
              std::to_string(round + 1) + "\n");
    ASSERT_TRUE(await(runtime_->kill(id)).ok());
  }
  destroy(id);
  EXPECT_EQ(condition(id), std::nullopt);
}

TEST_F(JailReboot, AFrozenOneIsKilledAndBootsAgain) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const SandboxId id = first_boot();
  EXPECT_EQ(inside(id,
                   "echo x > /tmp/f; sh -c 'while :; do echo y >> /tmp/busy; done' > /dev/null "
                   "2>&1 &")
                .code,
            0);
  pause_for(milliseconds(50));
  ASSERT_TRUE(await(runtime_->freeze(id)).ok());
  EXPECT_EQ(condition(id), Condition::frozen);
  ASSERT_TRUE(await(runtime_->kill(id)).ok());
  EXPECT_EQ(condition(id), Condition::dead);
  create(reboot_of(id));
  EXPECT_EQ(condition(id), Condition::running);
  EXPECT_EQ(inside(id, "cat /tmp/f").output, "x\n");
}

TEST_F(JailReboot, ManyWritesAreOnTheDisk) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const SandboxId id = first_boot();
  EXPECT_EQ(inside(id,
                   "head -c 50000000 /dev/urandom > /home/user/big && i=0; while [ $i -lt 500 ]; "
                   "do echo $i > /home/user/n$i; i=$((i+1)); done")
                .code,
            0);
  const std::string sum = inside(id, "cat /home/user/big /home/user/n* | sha256sum").output;
  ASSERT_TRUE(await(runtime_->kill(id)).ok());
  create(reboot_of(id));
  EXPECT_EQ(inside(id, "cat /home/user/big /home/user/n* | sha256sum").output, sum);
}

TEST_F(JailReboot, AgainAndAgain) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const SandboxId id = first_boot();
  std::vector<double> kills;
  std::vector<double> boots;
  for (int i = 0; i < 30; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    auto killed = await(runtime_->kill(id));
    ASSERT_TRUE(killed.ok()) << killed.error().message;
    const auto dead = std::chrono::steady_clock::now();
    auto booted = await(runtime_->create(reboot_of(id)));
    ASSERT_TRUE(booted.ok()) << booted.error().message;
    kills.push_back(std::chrono::duration<double, std::milli>(dead - begin).count());
    boots.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - dead).count());
    ASSERT_EQ(inside(id, "echo x >> /tmp/n; wc -l < /tmp/n").output, std::to_string(i + 1) + "\n");
  }
  std::sort(kills.begin(), kills.end());
  std::sort(boots.begin(), boots.end());
  std::printf("kill p50 %.1f ms p90 %.1f ms, boot again p50 %.1f ms p90 %.1f ms\n", kills[15],
              kills[27], boots[15], boots[27]);
}

TEST_F(JailReboot, AnotherWardenKnowsTheDeadOne) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const SandboxId id = first_boot();
  const SandboxId died = first_boot();
  EXPECT_EQ(inside(id, "echo x > /tmp/f").code, 0);
  EXPECT_EQ(inside(died, "echo y > /tmp/f").code, 0);
  ASSERT_TRUE(await(runtime_->kill(id)).ok());
  kill_warden();
  ASSERT_EQ(::kill(init_pid(died), SIGKILL), 0);
  ASSERT_NO_FATAL_FAILURE(begin());
  EXPECT_EQ(condition(id), Condition::dead);
  EXPECT_EQ(condition(died), Condition::dead);
  create(reboot_of(id));
  create(reboot_of(died));
  EXPECT_EQ(inside(id, "cat /tmp/f").output, "x\n");
  EXPECT_EQ(inside(died, "cat /tmp/f").output, "y\n");
}

// As after a boot of the host: /run is empty.
TEST_F(JailReboot, TheRangeIsTakenAgainFromTheMark) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const SandboxId id = first_boot();
  EXPECT_EQ(inside(id, "echo x > /home/user/f; chown 1000 /home/user/f").code, 0);
  const std::string ids = inside(id, "cat /proc/self/uid_map").output;
  ASSERT_TRUE(await(runtime_->kill(id)).ok());
  kill_warden();
  const std::string slot = host("grep -l " + id.str() + " /run/atoll/ranges/* | tr -d '\\n'");
  ASSERT_EQ(::unlink(slot.c_str()), 0) << slot;
  ASSERT_NO_FATAL_FAILURE(begin());
  EXPECT_EQ(::access(slot.c_str(), F_OK), 0);
  create(reboot_of(id));
  EXPECT_EQ(inside(id, "cat /proc/self/uid_map").output, ids);
  EXPECT_EQ(inside(id, "stat -c %u /home/user/f").output, "1000\n");
}

TEST_F(JailReboot, ADiskThatWasNotUnmountedIsRepaired) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const SandboxId id = first_boot();
  EXPECT_EQ(inside(id, "echo x > /home/user/f").code, 0);
  ASSERT_TRUE(await(runtime_->kill(id)).ok());
  const std::string image = home_ + "/sandboxes/test/" + id.str() + "/disk.img";
  EXPECT_EQ(host("debugfs -w -R 'ssv state 0' " + image + " 2>&1 | grep -v ^debugfs"), "");
  EXPECT_EQ(host("dumpe2fs -h " + image + " 2>/dev/null | grep -c 'state: *clean'"), "0\n");
  create(reboot_of(id));
  EXPECT_EQ(inside(id, "cat /home/user/f").output, "x\n");
}

TEST_F(JailReboot, MountPointsThatWereMovedAwayAreMadeAgain) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const SandboxId id = first_boot();
  EXPECT_EQ(inside(id, "mv /run /run.old").code, 0);
  ASSERT_TRUE(await(runtime_->kill(id)).ok());
  create(reboot_of(id));
  EXPECT_EQ(inside(id, "test -d /run.old && stat -c '%a %u' /run").output, "755 0\n");
  // A link in that place is not followed: it refuses to boot, and the disk stays.
  EXPECT_EQ(inside(id, "mv /run /run.old2 && ln -s /tmp /run").code, 0);
  ASSERT_TRUE(await(runtime_->kill(id)).ok());
  EXPECT_EQ(code_of_create(reboot_of(id)), Errc::failed_precondition);
  EXPECT_EQ(condition(id), Condition::dead);
}

TEST_F(JailReboot, ErrorsAreTyped) {
  ASSERT_NO_FATAL_FAILURE(begin());
  EXPECT_EQ(code_of_create(reboot_of(SandboxId::generate())), Errc::not_found);
  const SandboxId id = first_boot();
  EXPECT_EQ(code_of_create(reboot_of(id)), Errc::failed_precondition) << "it runs";
  ASSERT_TRUE(await(runtime_->kill(id)).ok());
  runtime::SandboxSpec fresh = spec();
  fresh.id = id;
  EXPECT_EQ(code_of_create(fresh), Errc::already_exists) << "a fresh disk would cost the kept one";
  EXPECT_EQ(await(runtime_->freeze(id)).error().code, Errc::failed_precondition);
  runtime::SandboxSpec other = reboot_of(id);
  other.template_id = "no-such";
  EXPECT_EQ(code_of_create(other), Errc::not_found);
  EXPECT_EQ(condition(id), Condition::dead);
  create(reboot_of(id));
  destroy(id);
  EXPECT_EQ(code_of_create(reboot_of(id)), Errc::not_found);
  EXPECT_EQ(await(runtime_->kill(id)).error().code, Errc::not_found);
}

TEST_F(JailReboot, AFailedRebootLeavesTheDisk) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const SandboxId id = first_boot();
  EXPECT_EQ(inside(id, "echo x > /tmp/f").code, 0);
  ASSERT_TRUE(await(runtime_->kill(id)).ok());
  stop();
  const std::vector<std::string> names = step_names("--kept");
  ASSERT_GE(names.size(), 35u);
  for (const std::string& name : names) {
    ASSERT_NO_FATAL_FAILURE(begin({"--fail-at", name}));
    auto created = await(runtime_->create(reboot_of(id)));
    ASSERT_FALSE(created.ok()) << name;
    EXPECT_EQ(created.error().sys_errno, EIO) << name << ": " << created.error().message;
    EXPECT_EQ(condition(id), Condition::dead) << name;
    stop();
  }
  ASSERT_NO_FATAL_FAILURE(begin());
  create(reboot_of(id));
  EXPECT_EQ(inside(id, "cat /tmp/f").output, "x\n");
}

TEST_F(JailReboot, UsageTellsCacheAndDisk) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const SandboxId id = first_boot();
  auto before = await(runtime_->usage(id));
  ASSERT_TRUE(before.ok());
  EXPECT_GT(before->disk_total_bytes, 900ull << 20);
  EXPECT_LE(before->disk_total_bytes, 1ull << 30);
  EXPECT_LT(before->disk_bytes, 10ull << 20);
  EXPECT_EQ(
      inside(id, "head -c 60000000 /dev/zero > /home/user/z; sync; cat /home/user/z > /dev/null")
          .code,
      0);
  auto after = await(runtime_->usage(id));
  ASSERT_TRUE(after.ok());
  EXPECT_NEAR(double(after->disk_bytes - before->disk_bytes), 60e6, 3e6);
  EXPECT_GT(after->memory_cache_bytes, 40000000u);
  EXPECT_LE(after->memory_cache_bytes, after->memory_bytes + (4u << 20));
  EXPECT_EQ(inside(id, "rm /home/user/z; sync").code, 0);
  EXPECT_LT(await(runtime_->usage(id))->disk_bytes, before->disk_bytes + (4u << 20));
  ASSERT_TRUE(await(runtime_->freeze(id)).ok());
  EXPECT_GT(await(runtime_->usage(id))->disk_total_bytes, 900ull << 20) << "frozen ones too";
  ASSERT_TRUE(await(runtime_->kill(id)).ok());
  auto dead = await(runtime_->usage(id));
  ASSERT_TRUE(dead.ok());
  EXPECT_EQ(dead->memory_bytes, 0u);
  EXPECT_EQ(dead->disk_total_bytes, 1ull << 30);
  EXPECT_GT(dead->disk_bytes, 0u);
}

class FreezeSpeed : public JailReboot {
 protected:
  void measure(const char* label) {
    const SandboxId id = first_boot();
    EXPECT_EQ(inside(id,
                     "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 1000 & done > /dev/null 2>&1; sh -c "
                     "'while :; do :; done' > /dev/null 2>&1 &")
                  .code,
              0);
    std::vector<double> freezes;
    std::vector<double> thaws;
    const auto timed = [&](auto task, std::vector<double>& into) {
      const auto begin = std::chrono::steady_clock::now();
      auto done = await(std::move(task));
      into.push_back(
          std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
              .count());
      ASSERT_TRUE(done.ok()) << done.error().message;
    };
    for (int i = 0; i < 60; ++i) {
      timed(runtime_->freeze(id), freezes);
      timed(runtime_->thaw(id), thaws);
      pause_for(milliseconds(5));
    }
    std::sort(freezes.begin(), freezes.end());
    std::sort(thaws.begin(), thaws.end());
    std::printf("%s: freeze p50 %.2f ms p90 %.2f ms, thaw p50 %.2f ms p90 %.2f ms\n", label,
                freezes[30], freezes[54], thaws[30], thaws[54]);
    EXPECT_EQ(inside(id, "pgrep sleep | wc -l").output, "10\n");
  }
};

TEST_F(FreezeSpeed, ByTheControllersOfThisMachine) {
  ASSERT_NO_FATAL_FAILURE(begin());
  measure("freezer of this machine");
}

TEST_F(FreezeSpeed, ByCgroup2) {
  const std::string mount = host("findmnt -n -t cgroup2 -o TARGET | head -1 | tr -d '\\n'");
  if (mount.empty()) GTEST_SKIP() << "no cgroup2 mount";
  ASSERT_NO_FATAL_FAILURE(begin({"--unsafe-cgroup2-without-limits", mount}));
  measure("cgroup2");
}

}  // namespace
}  // namespace atl::testing
