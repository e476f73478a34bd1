// What a sandbox looks like from inside, and from outside while it runs.
#include <sys/stat.h>
#include <unistd.h>

#include <regex>
#include <set>
#include <sstream>

#include "jail_fixture.h"

namespace atl::testing {
namespace {

using ::testing::Test;

class JailInside : public JailTest {
 protected:
  void SetUp() override {
    JailTest::SetUp();
    if (IsSkipped()) return;
    auto started = start();
    ASSERT_TRUE(started.ok()) << started.error().message;
  }
};

std::string field(const std::string& status, const std::string& name) {
  std::istringstream lines(status);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(name + ":")) {
      std::size_t at = name.size() + 1;
      while (at < line.size() && (line[at] == '\t' || line[at] == ' ')) ++at;
      return line.substr(at);
    }
  }
  return "";
}

TEST_F(JailInside, TheAgentIsTheFirstProcessAndTheOnlyOne) {
  const SandboxId id = create();
  EXPECT_EQ(inside(id, "cat /proc/1/comm").output, "atoll-agent\n");
  EXPECT_EQ(inside(id, "readlink /proc/1/exe").output, "/run/atoll/atoll-agent\n");
  EXPECT_EQ(inside(id, "tr '\\0' ' ' < /proc/1/cmdline").output,
            "atoll-agent --listen-fd 3 --port 49983 ");
  EXPECT_EQ(inside(id, "tr '\\0' '\\n' < /proc/1/environ").output,
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n");
  // The agent, its handler of this connection, sh, and the pipeline.
  const std::string pids = inside(id, "ls /proc | grep -c '^[0-9][0-9]*$'").output;
  EXPECT_LE(std::stoi(pids), 6);
}

TEST_F(JailInside, NoPathOfTheHostIsVisible) {
  const SandboxId id = create();
  const std::string mounts =
      inside(id, "cat /proc/self/mountinfo /proc/self/mounts /proc/1/mountinfo").output;
  for (const std::string& path :
       {home_, templates_, std::string("/stage"), std::string("loop"), std::string("/sandboxes")}) {
    EXPECT_EQ(mounts.find(path), std::string::npos) << path << " in\n" << mounts;
  }
  const std::string maps = inside(id,
                                  "cat /proc/1/maps /proc/self/maps; ls -l /proc/1/fd /proc/1/cwd "
                                  "/proc/1/root; cat /proc/self/cgroup")
                               .output;
  EXPECT_EQ(maps.find(home_), std::string::npos) << maps;
  EXPECT_EQ(maps.find(templates_), std::string::npos) << maps;
  EXPECT_EQ(maps.find(id.str()), std::string::npos) << "cgroup path leaks the id: " << maps;
}

TEST_F(JailInside, MountsAreTheDocumentedOnes) {
  const SandboxId id = create();
  std::istringstream lines(inside(id, "cat /proc/self/mountinfo").output);
  std::set<std::string> expected = {"/",
                                    "/proc",
                                    "/dev",
                                    "/dev/pts",
                                    "/dev/shm",
                                    "/run/atoll",
                                    "/run/atoll/atoll-agent",
                                    "/run/atoll/kernels"};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream parts(line);
    std::string number, parent, device, root, target, options;
    parts >> number >> parent >> device >> root >> target >> options;
    if (target.starts_with("/proc/")) {
      EXPECT_TRUE(options.starts_with("ro")) << line;
      continue;
    }
    EXPECT_EQ(expected.erase(target), 1u) << "unexpected mount: " << line;
    const bool read_only = target == "/dev" || target.starts_with("/run/atoll/");
    EXPECT_EQ(options.starts_with("ro"), read_only) << line;
    EXPECT_EQ(options.find("nodev") == std::string::npos, target == "/dev" || target == "/dev/pts")
        << line;
    // sudo must work on the root; nowhere else.
    EXPECT_EQ(options.find("nosuid") == std::string::npos, target == "/") << line;
  }
  EXPECT_TRUE(expected.empty()) << *expected.begin() << " is not mounted";
}

TEST_F(JailInside, IdentityCapabilitiesAndFilter) {
  const SandboxId id = create();
  const std::string status = inside(id, "cat /proc/1/status").output;
  EXPECT_EQ(field(status, "Uid"), "0\t0\t0\t0");
  EXPECT_EQ(field(status, "Gid"), "0\t0\t0\t0");
  EXPECT_EQ(field(status, "Groups"), "");
  for (const char* set : {"CapPrm", "CapEff", "CapBnd"})
    EXPECT_EQ(field(status, set), "00000000800425fb") << set;
  for (const char* set : {"CapInh", "CapAmb"})
    EXPECT_EQ(field(status, set), "0000000000000000") << set;
  EXPECT_EQ(field(status, "Seccomp"), "2");
  EXPECT_EQ(field(status, "Seccomp_filters"), "2");
  EXPECT_EQ(field(status, "NoNewPrivs"), "0");  // sudo
  for (const char* set : {"SigBlk", "SigCgt"})
    EXPECT_EQ(field(status, set), "0000000000000000") << set;

  // From outside: nobody below the range.
  const int pid = init_pid(id);
  ASSERT_GT(pid, 0);
  const std::string outside = read_text("/proc/" + std::to_string(pid) + "/status");
  const long uid = std::stol(field(outside, "Uid"));
  EXPECT_GE(uid, 10000L * 65536);
  EXPECT_LT(uid, 60000L * 65536);
  EXPECT_EQ(uid % 65536, 0);
  EXPECT_EQ(std::stol(field(outside, "Gid")), uid);
  const std::string map = inside(id, "cat /proc/self/uid_map").output;
  EXPECT_TRUE(std::regex_search(map, std::regex("^ *0 +" + std::to_string(uid) + " +65536\n$")))
      << map;
}

TEST_F(JailInside, NamespacesAreAllItsOwn) {
  const SandboxId id = create();
  const std::string pid = std::to_string(init_pid(id));
  for (const char* name : {"cgroup", "ipc", "mnt", "net", "pid", "user", "uts"}) {
    const std::string ours = host(std::string("readlink /proc/self/ns/") + name);
    const std::string its = host("readlink /proc/" + pid + "/ns/" + name);
    EXPECT_NE(ours, its) << name;
    EXPECT_EQ(its, inside(id, std::string("readlink /proc/1/ns/") + name).output) << name;
  }
  EXPECT_EQ(inside(id, "hostname").output, "e2b\n");
  EXPECT_EQ(inside(id, "cat /etc/hostname").output, "e2b\n");
  const std::string cgroup = inside(id, "cat /proc/self/cgroup").output;
  EXPECT_NE(cgroup.find(":memory:/\n"), std::string::npos) << cgroup;
}

TEST_F(JailInside, DescriptorsAreFour) {
  const SandboxId id = create();
  const std::string pid = std::to_string(init_pid(id));
  const std::string fds = host("ls -l /proc/" + pid + "/fd | awk 'NR>1 {print $9, $10, $11}'");
  EXPECT_TRUE(std::regex_match(
      fds,
      std::regex("0 -> /dev/null\n1 -> /dev/null\n2 -> /dev/null\n3 -> socket:\\[[0-9]+\\]\n")))
      << fds;
}

TEST_F(JailInside, DevicesAreTheDocumentedOnes) {
  const SandboxId id = create();
  EXPECT_EQ(inside(id, "find /dev -xdev -type c -printf '%P %m\\n' | sort").output,
            "full 666\nnull 666\nrandom 666\ntty 666\nurandom 666\nzero 666\n");
  EXPECT_EQ(inside(id, "find /dev -xdev -type b").output, "");
  EXPECT_NE(inside(id, "touch /dev/x").code, 0);
  EXPECT_NE(inside(id, "rm /dev/null").code, 0);
  EXPECT_NE(inside(id, "mknod /tmp/d c 1 3").code, 0);
  EXPECT_NE(inside(id, "mknod /tmp/d b 254 0").code, 0);
  EXPECT_EQ(inside(id, "mkfifo /tmp/f").code, 0);
  EXPECT_EQ(inside(id, "python3 -c 'import pty,os; m,s=pty.openpty(); print(os.ttyname(s))'", 1000)
                .output,
            "/dev/pts/0\n");
  EXPECT_EQ(inside(id, "head -c 4 /dev/zero | wc -c").output, "4\n");
  EXPECT_EQ(inside(id, "echo x > /dev/shm/f && cat /dev/shm/f", 1000).output, "x\n");
}

TEST_F(JailInside, CgroupFilesSayTheLimits) {
  runtime::SandboxSpec wanted = spec();
  wanted.limits.memory_bytes = 256ull << 20;
  wanted.limits.cpu_millis = 500;
  wanted.limits.pids = 64;
  const SandboxId id = create(wanted);
  if (cgroup_dir("memory", id).empty()) GTEST_SKIP() << "not a v1 machine";
  EXPECT_EQ(read_text(cgroup_dir("memory", id) + "/memory.limit_in_bytes"), "268435456\n");
  EXPECT_EQ(read_text(cgroup_dir("pids", id) + "/pids.max"), "64\n");
  EXPECT_EQ(read_text(cgroup_dir("cpu", id) + "/cpu.cfs_quota_us"), "50000\n");
  const std::string devices = read_text(cgroup_dir("devices", id) + "/devices.list");
  EXPECT_EQ(devices.find("a *"), std::string::npos) << devices;
  EXPECT_NE(devices.find("c 1:3 rw"), std::string::npos) << devices;
  // And they hold.
  EXPECT_NE(inside(id, "python3 -c 'x = bytearray(400 << 20)'").code, 0);
  const Ran forks = inside(id, "for i in $(seq 100); do sleep 5 & done; wait", 1000);
  EXPECT_NE(forks.output.find("Cannot fork"), std::string::npos) << forks.output;
  auto usage = await(runtime_->usage(id));
  ASSERT_TRUE(usage.ok()) << usage.error().message;
  EXPECT_GT(usage->memory_bytes, 0u);
  EXPECT_GT(usage->cpu.count(), 0);
  EXPECT_GE(usage->oom_kills, 1u);
}

TEST_F(JailInside, DiskIsLimitedAndPersistsNothingToTheTemplate) {
  runtime::SandboxSpec wanted = spec();
  wanted.limits.disk_bytes = 64ull << 20;
  const SandboxId id = create(wanted);
  const Ran full = inside(id, "dd if=/dev/zero of=/home/fill bs=1M count=200");
  EXPECT_NE(full.code, 0);
  EXPECT_NE(full.output.find("No space left"), std::string::npos) << full.output;
  const Ran freed = inside(id, "rm /home/fill && echo ok > /home/small && cat /home/small");
  EXPECT_EQ(freed.output, "ok\n");
  EXPECT_NE(::access((templates_ + "/base/rootfs/home/small").c_str(), F_OK), 0);
}

TEST_F(JailInside, TemplateCannotBeChangedThroughTheSandbox) {
  const std::string before =
      host("stat -c '%i %Y %Z %s' " + templates_ + "/base/rootfs/etc/passwd");
  const SandboxId id = create();
  EXPECT_EQ(
      inside(id, "echo evil:x:0:0::/:/bin/sh >> /etc/passwd && grep -c evil /etc/passwd").output,
      "1\n");
  EXPECT_EQ(inside(id, "mv /usr/share/doc /usr/share/doc2 && ls -d /usr/share/doc2").output,
            "/usr/share/doc2\n");
  EXPECT_EQ(inside(id, "stat -c '%u %g %a' /etc/passwd /usr/bin/sudo").output,
            "0 0 644\n0 0 4755\n");
  EXPECT_EQ(host("stat -c '%i %Y %Z %s' " + templates_ + "/base/rootfs/etc/passwd"), before);
}

TEST_F(JailInside, RootOfTheSandboxCanDoWhatPackagesNeed) {
  const SandboxId id = create();
  EXPECT_EQ(inside(id, "sudo -n id -u", 1000).output, "0\n");
  EXPECT_EQ(inside(id, "sudo -n true", 1000).output, "") << "sudo must be silent";
  EXPECT_EQ(inside(id, "touch /opt/f && chown 1000:1000 /opt/f && stat -c %u /opt/f").output,
            "1000\n");
  EXPECT_EQ(inside(id, "su -s /bin/sh user -c 'id -u'").output, "1000\n");
  EXPECT_EQ(
      inside(id,
             "python3 -c 'import socket; s=socket.socket(); s.bind((\"127.0.0.1\",80)); print(1)'")
          .output,
      "1\n");
  EXPECT_EQ(inside(id,
                   "python3 -c 'import socket; s=socket.socket(socket.AF_INET6); "
                   "s.bind((\"::1\",8080)); print(1)'",
                   1000)
                .output,
            "1\n");
  EXPECT_EQ(inside(id, "getent hosts e2b | head -1 | awk '{print $1}'").output.empty(), false);
  EXPECT_EQ(inside(id, "chroot / true").code, 0);
  EXPECT_EQ(inside(id,
                   "python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM, "
                   "1); print(1)'",
                   1000)
                .output,
            "1\n")
      << "unprivileged ping";
  EXPECT_EQ(inside(id, "cat /proc/sys/net/mptcp/enabled 2>/dev/null || echo 0").output, "0\n");
}

TEST_F(JailInside, ProcIsMaskedAndSysctlsAreReadOnly) {
  runtime::SandboxSpec wanted = spec();
  wanted.boot_id = "01234567-89ab-4cde-8f01-23456789abcd";
  const SandboxId id = create(wanted);
  EXPECT_EQ(inside(id, "cat /proc/sys/kernel/random/boot_id").output,
            "01234567-89ab-4cde-8f01-23456789abcd\n");
  EXPECT_EQ(
      inside(id, "cat /proc/cmdline /proc/keys /proc/timer_list /proc/swaps /proc/partitions 2>&1")
          .output,
      "");
  EXPECT_NE(inside(id, "echo 1 > /proc/sys/kernel/panic").code, 0);
  EXPECT_NE(inside(id, "echo x > /proc/sys/kernel/core_pattern").code, 0);
  EXPECT_NE(inside(id, "echo 1 > /proc/sys/net/ipv4/ip_forward").code, 0);
  EXPECT_NE(inside(id, "echo b > /proc/sysrq-trigger && cat /proc/sysrq-trigger | grep .").code, 0);
  EXPECT_NE(inside(id, "mount -o remount,rw /proc/sys").code, 0);
  EXPECT_NE(inside(id, "umount /proc/kcore").code, 0);
  EXPECT_NE(inside(id, "umount /proc/sys").code, 0);
  EXPECT_NE(inside(id, "mount -t tmpfs none /mnt").code, 0);
  EXPECT_NE(inside(id, "unshare -U true").code, 0);
  EXPECT_NE(inside(id, "unshare -m true").code, 0);
}

TEST_F(JailInside, TheAgentsSocketAndBinaryAreOutOfReach) {
  const SandboxId id = create();
  EXPECT_EQ(inside(id, "stat -c '%a %U %G' /run/atoll/agent.sock").output, "660 nobody nogroup\n");
  const char* connect =
      "python3 -c 'import socket; "
      "socket.socket(socket.AF_UNIX).connect(\"/run/atoll/agent.sock\")'";
  const Ran refused = inside(id, connect);
  EXPECT_NE(refused.code, 0);
  EXPECT_NE(refused.output.find("PermissionError"), std::string::npos) << refused.output;
  for (const char* attack :
       {"rm /run/atoll/agent.sock", "mv /run/atoll/agent.sock /run/atoll/x", "touch /run/atoll/x",
        "chmod 777 /run/atoll/agent.sock", "chown 0 /run/atoll", "rm -rf /run/atoll",
        "mv /run/atoll /run/other", "echo x > /run/atoll/atoll-agent", "echo x > /proc/1/exe",
        "rm /run/atoll/atoll-agent", "touch /run/atoll/kernels/x", "echo x > /run/atoll/boot_id",
        "ln -sf /etc/passwd /run/atoll/agent.sock"}) {
    EXPECT_NE(inside(id, attack).code, 0) << attack;
  }
  // A directory above it can be moved; the server's way does not lead through names.
  EXPECT_EQ(
      inside(id, "mv /run /run2 && mkdir -p /run/atoll && ln -s /etc/passwd /run/atoll/agent.sock")
          .code,
      0);
  EXPECT_EQ(inside(id, "echo still here").output, "still here\n");
}

TEST_F(JailInside, ProgramsWork) {
  const SandboxId id = create();
  EXPECT_EQ(inside(id,
                   "python3 -c 'import threading,subprocess,multiprocessing as "
                   "m\nprint(subprocess.check_output([\"echo\",\"1\"]).decode().strip(), "
                   "m.Pool(2).map(abs,[-1,-2]))'",
                   1000)
                .output,
            "1 [1, 2]\n");
  EXPECT_EQ(
      inside(id,
             "node -e "
             "'require(\"fs\").readFile(\"/etc/hostname\",(e,d)=>console.log(String(d).trim()))'",
             1000)
          .output,
      "e2b\n");
  EXPECT_EQ(
      inside(id, "cd /tmp && echo 'int main(){return 7;}' > a.c && gcc a.c -o a && ./a", 1000).code,
      7);
  EXPECT_EQ(inside(id,
                   "cd /tmp && git init -q r && cd r && git -c user.name=a -c user.email=a@b "
                   "commit -q --allow-empty -m m && git log --format=%s",
                   1000)
                .output,
            "m\n");
  EXPECT_EQ(inside(id, "apt-get --version >/dev/null && dpkg -l bash | grep -c '^ii'").output,
            "1\n");
  EXPECT_EQ(inside(id, "setarch -R true").code, 0);
  EXPECT_EQ(inside(id, "ulimit -c").output, "0\n");
}

}  // namespace
}  // namespace atl::testing
