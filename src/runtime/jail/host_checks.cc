#include "runtime/jail/host_checks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/netlink.h>
#include <sched.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdlib>

#include "runtime/jail/network_rules.h"
#include "runtime/jail/ranges.h"
#include "runtime/jail/seccomp_policy.h"
#include "sys/cgroup.h"
#include "sys/files.h"
#include "sys/interfaces.h"
#include "sys/loop.h"
#include "sys/mounts.h"
#include "sys/process.h"
#include "sys/self.h"

namespace atl::jail {
namespace {

using Status = Check::Status;

Check passed(std::string name, std::string detail) {
  return {std::move(name), Status::ok, std::move(detail), ""};
}
Check failed(std::string name, const Error& error, std::string fix) {
  return {std::move(name), Status::fail, error.message, std::move(fix)};
}

Result<sys::DetachedMount> new_tmpfs() {
  ATOLL_TRY_ASSIGN(sys::FsContext context, sys::FsContext::open("tmpfs"));
  ATOLL_TRY(context.set_options({{"size", "1m"}, {"mode", "0755"}}));
  return context.mount(MOUNT_ATTR_NODEV);
}

// Runs `work` in a child with these clone flags; it reports by its exit status.
template <class Work>
Result<void> in_child(std::uint64_t flags, Work work) {
  ATOLL_TRY_ASSIGN(sys::Cloned cloned, sys::clone_process(flags, nullptr));
  if (cloned.pid == 0) {
    auto done = work();
    sys::exit_now(done ? 0
                       : (done.error().sys_errno > 0 && done.error().sys_errno < 255
                              ? done.error().sys_errno
                              : 255));
  }
  sys::Child child(cloned.pid, std::move(cloned.pidfd));
  ATOLL_TRY_ASSIGN(std::optional<sys::ExitStatus> status, child.wait(std::chrono::seconds(10)));
  if (!status) return make_error(Errc::deadline_exceeded, "the probe did not finish");
  if (status->success()) return {};
  if (status->kind == sys::ExitStatus::Kind::exited && status->value != 255)
    return errno_error("probe", status->value);
  return make_error(Errc::internal, "the probe failed");
}

Check check_privileges() {
  if (::geteuid() == 0)
    return passed("root", "running as root; the server drops to an unprivileged user");
  return {"root", Status::fail, "not root: most checks cannot be made", "run as root"};
}

Check check_kernel() {
  utsname name{};
  if (::uname(&name) != 0) return failed("kernel", errno_error("uname"), "");
  int major = 0;
  int minor = 0;
  char* rest = nullptr;
  major = int(std::strtol(name.release, &rest, 10));
  if (rest != nullptr && *rest == '.') minor = int(std::strtol(rest + 1, nullptr, 10));
  // 5.19: overlay on idmapped lower layers.
  if (major > 5 || (major == 5 && minor >= 19)) return passed("kernel", name.release);
  return {"kernel", Status::fail, std::string(name.release) + " is too old",
          "use Linux 5.19 or newer (6.1 or newer is tested)"};
}

Check check_namespaces() {
  constexpr std::uint64_t flags =
      CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;
  auto made = in_child(flags, []() -> Result<void> {
    ATOLL_TRY(sys::unshare(CLONE_NEWCGROUP));
    // Refused where parts of /proc are hidden, as in an ordinary container.
    ATOLL_TRY_ASSIGN(sys::FsContext proc, sys::FsContext::open("proc"));
    ATOLL_TRY(proc.mount(MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC));
    return {};
  });
  if (made)
    return passed("namespaces",
                  "user, mount, pid, net, ipc, uts and cgroup namespaces can be made");
  return failed("namespaces", made.error(),
                "sysctl user.max_user_namespaces must be above 0; containers need privileges");
}

Check check_cgroups() {
  auto layout = sys::detect_cgroup_layout();
  const char* fix =
      "mount the cgroup controllers memory, pids, cpu (and freezer on v1), or cgroup2 with them "
      "enabled";
  if (!layout) return failed("cgroups", layout.error(), fix);
  std::string missing;
  for (const char* controller : {"memory", "pids", "cpu"}) {
    if (!layout->has(controller)) missing += std::string(" ") + controller;
  }
  const char* kind = layout->kind == sys::CgroupKind::v1 ? "v1 (or hybrid)" : "v2";
  if (!missing.empty())
    return {"cgroups", Status::fail, fmt::format("{}, without{}", kind, missing), fix};
  const bool devices = layout->kind == sys::CgroupKind::v2 || layout->has("devices");
  return passed("cgroups", fmt::format("{} with memory, pids, cpu, freezer{}", kind,
                                       devices ? "" : ", without devices"));
}

Check check_mount_api() {
  auto mount = new_tmpfs();
  if (!mount)
    return failed("mount API", mount.error(),
                  "use a kernel with fsopen and mount_setattr (5.12 or newer)");
  auto restricted = mount->restrict_to(MOUNT_ATTR_RDONLY);
  if (!restricted)
    return failed("mount API", restricted.error(),
                  "use a kernel with mount_setattr (5.12 or newer)");
  return passed("mount API", "fsopen, open_tree, mount_setattr, move_mount");
}

Result<void> try_overlay_of_descriptors() {
  ATOLL_TRY_ASSIGN(sys::DetachedMount layers, new_tmpfs());
  for (const char* name : {"a", "b"}) {
    ATOLL_TRY(sys::make_dir(layers.fd(), name, 0755, sys::IfExists::fail));
  }
  ATOLL_TRY_ASSIGN(sys::FsContext context, sys::FsContext::open("overlay"));
  for (const char* name : {"a", "b"}) {
    ATOLL_TRY_ASSIGN(sys::UniqueFd layer,
                     sys::open_beneath(layers.fd(), name, O_PATH | O_DIRECTORY));
    ATOLL_TRY(context.set_fd("lowerdir+", layer));
  }
  ATOLL_TRY(context.mount(MOUNT_ATTR_NODEV));
  return {};
}

Check check_overlay() {
  auto by_fd = try_overlay_of_descriptors();
  if (by_fd) return passed("overlayfs", "mounts, layers by descriptor");
  auto context = sys::FsContext::open("overlay");
  if (!context) return failed("overlayfs", context.error(), "modprobe overlay");
  return passed("overlayfs", "mounts, layers by name (kernels before 6.15)");
}

Check check_idmapped(const std::string& home) {
  const char* fix = "put ATOLL_HOME on ext4, xfs or btrfs";
  auto mapped = [&]() -> Result<void> {
    // The user namespace of a child that waits for us.
    int pipe_ends[2];
    if (::pipe2(pipe_ends, O_CLOEXEC) != 0) return errno_error("pipe2");
    sys::UniqueFd read_end(pipe_ends[0]);
    sys::UniqueFd write_end(pipe_ends[1]);
    ATOLL_TRY_ASSIGN(sys::Cloned cloned, sys::clone_process(CLONE_NEWUSER, nullptr));
    if (cloned.pid == 0) {
      write_end.reset();
      char byte = 0;
      sys::exit_now(::read(read_end.get(), &byte, 1) == 0 ? 0 : 1);
    }
    sys::Child child(cloned.pid, std::move(cloned.pidfd));
    const std::string proc = "/proc/" + std::to_string(child.pid());
    ATOLL_TRY_ASSIGN(sys::UniqueFd dir, sys::open_trusted(proc, O_PATH | O_DIRECTORY));
    ATOLL_TRY(sys::write_beneath(dir, "uid_map", "0 655360000 65536\n"));
    ATOLL_TRY(sys::write_beneath(dir, "gid_map", "0 655360000 65536\n"));
    ATOLL_TRY_ASSIGN(sys::UniqueFd user_namespace, sys::open_trusted(proc + "/ns/user", O_RDONLY));
    ATOLL_TRY_ASSIGN(sys::UniqueFd tree, sys::open_trusted(home, O_PATH | O_DIRECTORY));
    ATOLL_TRY_ASSIGN(sys::DetachedMount copy, sys::DetachedMount::clone_tree(tree));
    return copy.idmap(user_namespace);
  }();
  if (mapped) return passed("idmapped mounts", "supported by the filesystem of " + home);
  return failed("idmapped mounts", mapped.error(), fix);
}

Check check_loop(const std::string& home) {
  const char* fix = "modprobe loop; containers need access to /dev/loop-control and /dev/loop*";
  auto attached = [&]() -> Result<void> {
    ATOLL_TRY_ASSIGN(sys::UniqueFd file, sys::open_trusted(home, O_TMPFILE | O_RDWR, 0600));
    ATOLL_TRY(sys::set_size(file, 1 << 20));
    ATOLL_TRY(sys::LoopDevice::attach(file));
    return {};
  }();
  if (attached) return passed("loop devices", "a file can be a disk");
  return failed("loop devices", attached.error(), fix);
}

Check check_mkfs() {
  for (const char* path : {"/sbin/mkfs.ext4", "/usr/sbin/mkfs.ext4"}) {
    if (sys::is_executable(path)) return passed("mkfs.ext4", path);
  }
  return {"mkfs.ext4", Status::fail, "not installed", "apt-get install e2fsprogs"};
}

Check check_seccomp() {
  auto programs = compile_seccomp_policy();
  if (!programs) return failed("seccomp", programs.error(), "install libseccomp 2.5 or newer");
  auto installed = in_child(CLONE_NEWUSER, [&]() -> Result<void> {
    ATOLL_TRY(sys::install_filter(programs->allow_list));
    return sys::install_filter(programs->rules);
  });
  if (!installed)
    return failed("seccomp", installed.error(), "use a kernel with CONFIG_SECCOMP_FILTER");
  return passed("seccomp", fmt::format("filters of {} and {} instructions load",
                                       programs->allow_list.size(), programs->rules.size()));
}

Check check_veth() {
  auto made = in_child(CLONE_NEWNET, []() -> Result<void> {
    ATOLL_TRY_ASSIGN(sys::NetlinkSocket route, sys::NetlinkSocket::open(NETLINK_ROUTE));
    sys::NetlinkBatch batch;
    sys::add_veth(batch, {"a", 10, {0x02, 1, 1, 1, 1, 1}}, {"b", 11, {0x02, 1, 1, 1, 1, 1}});
    return route.send(batch);
  });
  if (made) return passed("veth", "network namespaces can be joined");
  return failed("veth", made.error(), "modprobe veth; or start the server without a network");
}

Check check_nf_tables() {
  auto loaded = in_child(CLONE_NEWNET, []() -> Result<void> {
    ATOLL_TRY_ASSIGN(sys::NetlinkSocket filter, sys::NetlinkSocket::open(NETLINK_NETFILTER));
    ATOLL_TRY(filter.send(router_rules()));
    ATOLL_TRY(filter.send(host_rules(Link{1})));
    runtime::NetworkPolicy policy;
    policy.allow = {Cidr4{Ipv4{0x01010101}, 32}};
    policy.deny = {Cidr4{Ipv4{0x01000000}, 8}};
    return filter.send(install_policy(kFirstSlot, policy, kTenantBits, 0));
  });
  if (loaded) return passed("nf_tables", "the rules for sandboxes load");
  return failed(
      "nf_tables", loaded.error(),
      "modprobe nf_tables nf_conntrack nft_ct nft_chain_nat nft_nat nft_masq "
      "nft_reject_ipv4 nft_fib_ipv4 nft_connlimit (CONFIG_NF_TABLES and these parts of it)");
}

Check check_forwarding() {
  auto now = sys::read_trusted("/proc/sys/net/ipv4/ip_forward");
  if (!now) return failed("forwarding", now.error(), "mount /proc with its sys directory");
  const bool on = now->starts_with("1");
  return passed("forwarding", on ? "net.ipv4.ip_forward is on"
                                 : "net.ipv4.ip_forward is off: the server switches it on");
}

Check check_space(const std::string& home) {
  struct statvfs info{};
  if (::statvfs(home.c_str(), &info) != 0) return failed("disk space", errno_error(home), "");
  const double free_gib = double(info.f_bavail) * double(info.f_frsize) / double(1 << 30);
  const std::string detail = fmt::format("{:.1f} GiB free at {}", free_gib, home);
  if (free_gib < 2)
    return {"disk space", Status::fail, detail, "free some space; a template needs 1.5 GiB"};
  if (free_gib < 10)
    return {"disk space", Status::warn, detail, "sandboxes may fill it: 5 GiB each by default"};
  return passed("disk space", detail);
}

// The nearest directory that exists: a home that will be made later is judged by where it will be.
std::string existing_part(std::string path) {
  while (path.size() > 1 && sys::presence_of(path) != sys::Presence::present) {
    const std::size_t slash = path.rfind('/');
    path = slash == 0 || slash == std::string::npos ? "/" : path.substr(0, slash);
  }
  return path.empty() ? "/" : path;
}

}  // namespace

bool overlay_takes_descriptors() { return try_overlay_of_descriptors().ok(); }

std::vector<Check> check_host(const std::string& home) {
  const std::string at = existing_part(home);
  std::vector<Check> checks;
  checks.push_back(check_privileges());
  checks.push_back(check_kernel());
  checks.push_back(check_cgroups());
  checks.push_back(check_mkfs());
  // The rest tries things that only root may do: without it the answers would mislead.
  if (checks.front().status == Status::ok) {
    checks.push_back(check_namespaces());
    checks.push_back(check_mount_api());
    checks.push_back(check_overlay());
    checks.push_back(check_idmapped(at));
    checks.push_back(check_loop(at));
    checks.push_back(check_seccomp());
    checks.push_back(check_veth());
    checks.push_back(check_nf_tables());
    checks.push_back(check_forwarding());
  }
  checks.push_back(check_space(at));
  return checks;
}

}  // namespace atl::jail
