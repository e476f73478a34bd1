#include "runtime/jail/plan.h"

#include <linux/capability.h>
#include <sched.h>
#include <sys/resource.h>

#include "runtime/jail/network_rules.h"

namespace atl::jail {
namespace {

constexpr sys::MountAttrs kNoSuid = MOUNT_ATTR_NOSUID;
constexpr sys::MountAttrs kNoDev = MOUNT_ATTR_NODEV;
constexpr sys::MountAttrs kNoExec = MOUNT_ATTR_NOEXEC;
constexpr sys::MountAttrs kReadOnly = MOUNT_ATTR_RDONLY;

constexpr std::uint64_t kCpuPeriodMicros = 100'000;
constexpr int kTtyGroup = 5;
constexpr int kTerminals = 128;  // of the kernel's few thousand, which all sandboxes share

// Files and directories of procfs that tell about the host's hardware, disks and boot, or act on
// it. Those the kernel lacks are passed over. What only the host's root may open (kmsg, slabinfo,
// kpagecount, ...) needs no mask: nobody inside is that. kallsyms shows addresses to everybody
// where kernel.perf_event_paranoid is below 2.
constexpr const char* kMaskedFiles[] = {
    "proc/cmdline",       "proc/diskstats",  "proc/interrupts",  "proc/kallsyms",
    "proc/kcore",         "proc/key-users",  "proc/keys",        "proc/latency_stats",
    "proc/modules",       "proc/partitions", "proc/sched_debug", "proc/swaps",
    "proc/sysrq-trigger", "proc/timer_list", "proc/timer_stats",
};
constexpr const char* kMaskedDirs[] = {"proc/acpi", "proc/asound", "proc/scsi"};
constexpr const char* kReadOnlyDirs[] = {"proc/sys", "proc/irq", "proc/bus", "proc/fs"};

// type major:minor access, all of /dev; no `m`: nobody inside makes nodes.
constexpr const char* kDevices[] = {"c 1:3 rw", "c 1:5 rw", "c 1:7 rw", "c 1:8 rw",
                                    "c 1:9 rw", "c 5:0 rw", "c 5:2 rw", "c 136:* rw"};

std::vector<CgroupWrite> cgroup_writes(const LaunchSpec& spec, const HostFacts& host) {
  if (host.unsafe_no_limits) return {};
  const std::string memory = std::to_string(spec.memory_bytes);
  const std::string quota =
      std::to_string(std::uint64_t(spec.cpu_millis) * kCpuPeriodMicros / 1000);
  const std::string period = std::to_string(kCpuPeriodMicros);
  const std::string pids = std::to_string(spec.pids);
  if (host.cgroups.kind == sys::CgroupKind::v2) {
    return {{"memory", "memory.max", memory, false},
            {"memory", "memory.swap.max", "0", true},
            {"pids", "pids.max", pids, false},
            {"cpu", "cpu.max", quota + " " + period, false}};
  }
  std::vector<CgroupWrite> writes = {{"memory", "memory.limit_in_bytes", memory, false},
                                     {"memory", "memory.memsw.limit_in_bytes", memory, true},
                                     {"pids", "pids.max", pids, false},
                                     {"cpu", "cpu.cfs_period_us", period, false},
                                     {"cpu", "cpu.cfs_quota_us", quota, false}};
  if (host.cgroups.has("devices")) {
    writes.push_back({"devices", "devices.deny", "a", false});
    for (const char* device : kDevices)
      writes.push_back({"devices", "devices.allow", device, false});
  }
  return writes;
}

std::vector<UpperEntry> upper_entries(const LaunchSpec& spec, const HostFacts& host) {
  using Kind = UpperEntry::Kind;
  const std::string hosts = "127.0.0.1\tlocalhost " + spec.hostname +
                            "\n::1\tlocalhost ip6-localhost "
                            "ip6-loopback\nff02::1\tip6-allnodes\nff02::2\tip6-allrouters\n";
  return {{Kind::directory, "dev", 0755, ""},
          {Kind::directory, "proc", 0555, ""},
          {Kind::directory, "run", 0755, ""},
          {Kind::directory, "run/atoll", 0755, ""},
          {Kind::directory, "etc", 0755, ""},
          {Kind::file, "etc/hostname", 0644, spec.hostname + "\n"},
          {Kind::file, "etc/hosts", 0644, hosts},
          // Without a name server the resolver asks 127.0.0.1 and is refused at once.
          host.network ? UpperEntry{Kind::file, "etc/resolv.conf", 0644,
                                    "nameserver " + kGateway.str() + "\n"}
                       : UpperEntry{Kind::file_if_missing, "etc/resolv.conf", 0644,
                                    "# this sandbox has no name server\n"}};
}

class Builder {
 public:
  explicit Builder(Actor actor, std::vector<Step>& steps) : actor_(actor), steps_(steps) {}
  void operator()(std::string name, Action action) {
    steps_.push_back({actor_, std::move(name), std::move(action)});
  }

 private:
  Actor actor_;
  std::vector<Step>& steps_;
};

// index and nfs_export: file handles that CRIU needs for inotify. redirect_dir: renaming a
// directory of the template works. xino: one device number for the whole tree, although its layers
// are on two filesystems.
MountRoot root_mount(const HostFacts& host) {
  return {{{"source", "atoll"},
           {"index", "on"},
           {"nfs_export", "on"},
           {"redirect_dir", "on"},
           {"xino", "on"}},
          kNoDev,
          host.overlay_layers_by_fd};
}

// MPTCP sockets cannot be dumped, and some runtimes listen on nothing else by default. IPv6 is for
// the loopback interface only.
SetSysctls network_sysctls(const HostFacts& host) {
  SetSysctls sysctls{{{"net/mptcp/enabled", "0"}, {kPingGroups, "0 65535"}}};
  if (host.network)
    sysctls.values.push_back(
        {std::string("net/ipv6/conf/") + kInnerInterface + "/disable_ipv6", "1"});
  return sysctls;
}

MakeControlDir control_dir(const LaunchSpec& spec) {
  // The directory is the host's root's, set-group-id, so that the socket made in it belongs to the
  // server's group. Neither owner nor group exists inside: nobody there can connect to the socket,
  // replace it or add to the directory.
  return {{{"source", "atoll"},
           {"mode", "2755"},
           {"uid", "0"},
           {"gid", std::to_string(spec.server_gid)},
           {"size", "64k"},
           {"nr_inodes", "16"}},
          spec.boot_id,
          spec.memory != runtime::Memory::none};
}

void add_disk_steps(const LaunchSpec& spec, const HostFacts& host, Builder& add) {
  if (spec.kept) {
    add("directory", OpenDirectory{});
    add("range", KeepRange{spec.kept->slot});
    add("disk.image", OpenImage{});
    add("disk.mount", disk_mount());
  } else {
    add("directory", MakeDirectory{});
    add("range", TakeRange{});
    add("disk.image", CopyImage{spec.disk_bytes});
    add("disk.mount", disk_mount());
    if (spec.snapshot.empty()) add("upper", FillUpper{spec.template_id, upper_entries(spec, host)});
  }
}

void add_root_steps(const LaunchSpec& spec, const HostFacts& host, Builder& add) {
  add("template", IdmapTemplate{spec.template_id});
  if (spec.kept || !spec.snapshot.empty()) add("layers", OpenSnapshotLayers{});
  if (!spec.kept && !spec.snapshot.empty()) add("upper", InheritUpper{});
  add("root", root_mount(host));
}

void add_warden_steps(const LaunchSpec& spec, const HostFacts& host, std::vector<Step>& steps) {
  Builder add(Actor::warden, steps);
  add_disk_steps(spec, host, add);
  add("control", control_dir(spec));
  add("cgroup", MakeCgroup{cgroup_writes(spec, host)});
  add("clone", CloneInit{CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC |
                             CLONE_NEWUTS,
                         host.cgroups.kind == sys::CgroupKind::v2});
  add("ids", MapIds{kIdsPerSandbox});
  add("oom_score", SetOomScore{kOomScore});
  if (host.network) {
    add("network.policy", ApplyNetworkPolicy{spec.network});
    add("network.link", ConnectNetwork{});
  }
  add_root_steps(spec, host, add);
  if (spec.kept || !spec.snapshot.empty())
    add("mount_points", RestoreMountPoints{{"dev", "proc", "run", kControlDir}});
  if (spec.kept) add("memory.retire", RetireMemory{});
  add("handover", HandOverRoot{});
  add("await_exec", AwaitExec{});
  add("mark", MarkComplete{});
}

BindAll proc_binds() {
  BindAll all;
  constexpr sys::MountAttrs attrs = kReadOnly | kNoSuid | kNoDev | kNoExec;
  for (const char* dir : kReadOnlyDirs) all.binds.push_back({dir, dir, attrs});
  for (const char* dir : kMaskedDirs) all.binds.push_back({"run/atoll/empty", dir, attrs});
  // The masks are devices: nodev would make them unreadable instead of empty.
  for (const char* file : kMaskedFiles)
    all.binds.push_back({"dev/null", file, kReadOnly | kNoSuid | kNoExec});
  all.binds.push_back({"run/atoll/boot_id", "proc/sys/kernel/random/boot_id", attrs});
  return all;
}

void add_init_steps(const LaunchSpec& spec, const HostFacts& host, std::vector<Step>& steps) {
  Builder add(Actor::init, steps);
  add("cgroup.enter", EnterCgroup{});
  // After entering: the namespace's root is the sandbox's own cgroup, which a later dump relies on.
  add("cgroup.namespace", Unshare{CLONE_NEWCGROUP});
  add("session", NewSession{});
  add("hostname", SetHostname{spec.hostname});
  add("loopback", LoopbackUp{});
  add("shared",
      CloneShared{{{"dev", "dev"}, {"agent", "agent/atoll-agent"}, {"kernels", kKernelsName}}});
  add("receive", ReceiveRoot{});
  add("proc.make", MakeProc{kNoSuid | kNoDev | kNoExec});
  add("change_root", ChangeRoot{});
  add("proc", AttachProc{"proc"});
  add("dev", AttachShared{"dev", "dev", kReadOnly | kNoSuid | kNoExec});
  add("dev.pts", NewMount{"devpts",
                          "dev/pts",
                          {{"newinstance", ""},
                           {"max", std::to_string(kTerminals)},
                           {"ptmxmode", "0666"},
                           {"mode", "0620"},
                           {"gid", std::to_string(kTtyGroup)}},
                          kNoSuid | kNoExec});
  add("dev.shm", NewMount{"tmpfs",
                          "dev/shm",
                          {{"source", "shm"},
                           {"uid", "0"},
                           {"gid", "0"},
                           {"mode", "1777"},
                           {"size", std::to_string(spec.memory_bytes / 2)}},
                          kNoSuid | kNoDev});
  add("run", AttachControlDir{kControlDir});
  add("agent", AttachShared{"agent", kAgentPath + 1, kReadOnly | kNoSuid | kNoDev});
  add("kernels", AttachShared{"kernels", kKernelsDir + 1, kReadOnly | kNoSuid | kNoDev});
  add("sysctl", network_sysctls(host));
  if (host.network) add("network", BringUpNetwork{});
  add("proc.restrict", proc_binds());
  // Still the host's root by number, so that the socket's owner is one that does not exist inside.
  add("listen", ListenAgent{kAgentSocket, 0660, 1024});
  add("identity", BecomeRoot{});
  add("capabilities", LimitCapabilities{kept_capabilities()});
  add("limits", resource_limits());
  add("descriptors", PlaceDescriptors{});
  // Last: the filter needs CAP_SYS_ADMIN in the namespace, which goes at the exec (the bounding set
  // lacks it).
  add("seccomp", InstallFilter{});
  add("exec", ExecAgent{kAgentPath,
                        {"atoll-agent", "--listen-fd", "3", "--port", std::to_string(kAgentPort)},
                        {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}});
}

void add_revive_steps(const LaunchSpec& spec, const HostFacts& host, std::vector<Step>& steps) {
  Builder add(Actor::warden, steps);
  Builder work(Actor::worker, steps);
  add_disk_steps(spec, host, add);
  add("memory.open", OpenMemory{});
  add("control", control_dir(spec));
  add("cgroup", MakeCgroup{cgroup_writes(spec, host)});
  add("ids", MakeIdMap{kIdsPerSandbox});
  if (host.network) add("network.policy", ApplyNetworkPolicy{spec.network});
  add_root_steps(spec, host, add);
  add("restore", StartRestore{});
  work("restore.stage", host_mounts());
  work("session", NewSession{});
  work("restore.run", RunRestore{spec.hostname, spec.memory_bytes});
  if (host.network) add("network.link", ConnectNetwork{});
  work("loopback", LoopbackUp{});
  if (host.network) work("network", BringUpNetwork{});
  work("sysctl", network_sysctls(host));
  // Sockets of a copy are bound to the address that the first one had.
  if (host.network && spec.memory == runtime::Memory::snapshot) {
    work("foreign.bind", BindForeign{true});
    work("foreign.end", BindForeign{false});
  }
  work("socket", GiveSocket{0660, 02755, spec.server_gid});
  add("await_restore", AwaitRestore{});
  work("memory.use", UseMemory{spec.memory == runtime::Memory::kept});
  if (!spec.kept) add("mark", MarkComplete{});
}

}  // namespace

StageExternals host_mounts() {
  using From = HostMount::From;
  const std::string control = std::string("/") + kControlDir;
  StageExternals all;
  all.mounts = {{From::control, "", control, kNoSuid | kNoDev | kNoExec},
                {From::stage, "dev", "/dev", kReadOnly | kNoSuid | kNoExec},
                {From::programs, "agent/atoll-agent", kAgentPath, kReadOnly | kNoSuid | kNoDev},
                {From::programs, kKernelsName, kKernelsDir, kReadOnly | kNoSuid | kNoDev}};
  for (const Bind& bind : proc_binds().binds) {
    if (bind.source == bind.target) continue;  // procfs over itself
    const std::string source = "/" + bind.source;
    const std::string of = source.starts_with(control + "/") ? control : "/dev";
    all.masks.push_back({"/" + bind.target, of, source.substr(of.size() + 1)});
  }
  return all;
}

std::uint64_t kept_capabilities() {
  std::uint64_t keep = 0;
  for (int capability :
       {CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID, CAP_KILL, CAP_SETGID, CAP_SETUID,
        CAP_SETPCAP, CAP_NET_BIND_SERVICE, CAP_NET_RAW, CAP_SYS_CHROOT, CAP_SETFCAP}) {
    keep |= std::uint64_t(1) << capability;
  }
  return keep;
}

LimitResources resource_limits() {
  return {{{RLIMIT_CORE, 0, 0},
           {RLIMIT_NOFILE, 65536, 1048576},
           {RLIMIT_STACK, 8 << 20, RLIM_INFINITY},
           {RLIMIT_MEMLOCK, 8 << 20, 8 << 20},
           {RLIMIT_NICE, 0, 0},
           {RLIMIT_RTPRIO, 0, 0}},
          022};
}

// noinit_itable: the image is sparse, its inode tables are zero already. nobarrier: a sandbox's
// disk need not survive a crash of the host, so the host is not made to flush for it.
MountDisk disk_mount() {
  return {{{"noinit_itable", ""}, {"nobarrier", ""}, {"errors", "remount-ro"}}, kNoDev};
}

LaunchSpec to_launch_spec(const wire::CreateRequest& request, gid_t server_gid) {
  LaunchSpec spec;
  spec.id = wire::from_field(request.id);
  spec.template_id = wire::from_field(request.template_id);
  spec.hostname = wire::from_field(request.hostname);
  spec.boot_id = wire::from_field(request.boot_id);
  spec.memory_bytes = request.memory_bytes;
  spec.disk_bytes = request.disk_bytes;
  spec.cpu_millis = request.cpu_millis;
  spec.pids = request.pids;
  spec.server_gid = server_gid;
  spec.network = wire::to_policy(request.network);
  spec.memory = runtime::Memory(request.memory);
  spec.snapshot = wire::from_field(request.snapshot);
  return spec;
}

std::vector<Step> make_launch_plan(const LaunchSpec& spec, const HostFacts& host) {
  std::vector<Step> steps;
  if (spec.memory != runtime::Memory::none) {
    add_revive_steps(spec, host, steps);
    return steps;
  }
  add_warden_steps(spec, host, steps);
  add_init_steps(spec, host, steps);
  return steps;
}

}  // namespace atl::jail
