// Plans as text, for people and for `atoll-warden --dry-run`.
#include <fmt/format.h>

#include "runtime/jail/network_rules.h"
#include "runtime/jail/plan.h"

namespace atl::jail {
namespace {

std::string attrs_text(sys::MountAttrs attrs) {
  std::string out;
  const auto add = [&](sys::MountAttrs bit, const char* name) {
    if ((attrs & bit) != 0) out += (out.empty() ? "" : ",") + std::string(name);
  };
  add(MOUNT_ATTR_RDONLY, "ro");
  add(MOUNT_ATTR_NOSUID, "nosuid");
  add(MOUNT_ATTR_NODEV, "nodev");
  add(MOUNT_ATTR_NOEXEC, "noexec");
  return out.empty() ? "no flags" : out;
}

std::string options_text(const Options& options) {
  std::string out;
  for (const auto& [key, value] : options) {
    if (!out.empty()) out += ',';
    out += value.empty() ? key : key + "=" + value;
  }
  return out;
}

struct Describer {
  std::string operator()(const MakeDirectory&) const { return "make the sandbox's directory"; }
  std::string operator()(const TakeRange&) const {
    return fmt::format("take a free range of {} ids", kIdsPerSandbox);
  }
  std::string operator()(const CopyImage& a) const {
    return fmt::format("sparse copy of the {} MiB image", a.bytes >> 20);
  }
  std::string operator()(const OpenDirectory&) const { return "open the sandbox's directory"; }
  std::string operator()(const KeepRange& a) const {
    return fmt::format("keep the range of slot {}", a.slot);
  }
  std::string operator()(const OpenImage&) const {
    return "lock the kept image, repair it if it was not unmounted";
  }
  std::string operator()(const MountDisk& a) const {
    return fmt::format("loop device, ext4 {} ({})", options_text(a.options), attrs_text(a.attrs));
  }
  std::string operator()(const FillUpper& a) const {
    std::string paths;
    for (const UpperEntry& entry : a.entries) paths += " /" + entry.path;
    return "write into the upper layer:" + paths;
  }
  std::string operator()(const MakeControlDir& a) const {
    return "tmpfs " + options_text(a.options) + " boot_id=" + a.boot_id;
  }
  std::string operator()(const MakeCgroup& a) const {
    std::string out = "make cgroup;";
    for (const CgroupWrite& write : a.writes) {
      out += fmt::format(" {}={}{}", write.file, write.value,
                         write.only_if_present ? " (if present)" : "");
    }
    return out;
  }
  std::string operator()(const CloneInit& a) const {
    return fmt::format("clone3 flags {:#x}{}", a.flags, a.into_cgroup ? " into its cgroup" : "");
  }
  std::string operator()(const MapIds& a) const {
    return fmt::format("uid_map, gid_map: 0 BASE {}", a.count);
  }
  std::string operator()(const SetOomScore& a) const {
    return fmt::format("oom_score_adj {}", a.score);
  }
  std::string operator()(const ApplyNetworkPolicy& a) const {
    constexpr const char* intercepts[] = {"nothing", "web", "all TCP"};
    return fmt::format("packet filter: {} blocks allowed, {} denied, {} to the egress proxy",
                       a.policy.allow.size(), a.policy.deny.size(),
                       intercepts[std::size_t(a.policy.intercept)]);
  }
  std::string operator()(const ConnectNetwork&) const {
    return fmt::format("veth between the router and {} inside, route to its address",
                       kInnerInterface);
  }
  std::string operator()(const BringUpNetwork&) const {
    return fmt::format("{}: its address, up, default route by {}", kInnerInterface, kGateway.str());
  }
  std::string operator()(const IdmapTemplate& a) const {
    return fmt::format("template {}: read-only copy of its mount, ids shifted", a.template_id);
  }
  std::string operator()(const OpenSnapshotLayers&) const {
    return "layers of snapshots, read-only, ids shifted";
  }
  std::string operator()(const InheritUpper&) const {
    return "the upper layer's root as that of the nearest layer";
  }
  std::string operator()(const MountRoot& a) const {
    return fmt::format("overlay {} ({}), layers by {}", options_text(a.options),
                       attrs_text(a.attrs), a.layers_by_fd ? "descriptor" : "stage");
  }
  std::string operator()(const HandOverRoot&) const { return "send the root's descriptor"; }
  std::string operator()(const AwaitExec&) const {
    return "wait until the new process has executed the agent";
  }
  std::string operator()(const RestoreMountPoints& a) const {
    std::string out = "directories to mount over:";
    for (const std::string& path : a.paths) out += " /" + path;
    return out;
  }
  std::string operator()(const RetireMemory&) const { return "memory, if there is some, is void"; }
  std::string operator()(const OpenMemory&) const { return "open the directory of the image"; }
  std::string operator()(const MakeIdMap& a) const {
    return fmt::format("user namespace for idmapped mounts: 0 BASE {}", a.count);
  }
  std::string operator()(const StartRestore&) const {
    return "start the worker, in a mount namespace of its own";
  }
  std::string operator()(const BindForeign& a) const {
    return a.allowed ? "sockets may have addresses of others" : "no more";
  }
  std::string operator()(const UseMemory& a) const {
    return a.own ? "before a process runs: the image is never used again"
                 : "before a process runs: nothing, the image is a snapshot's";
  }
  std::string operator()(const AwaitRestore&) const {
    return "before a process runs: the socket is as planned";
  }
  std::string operator()(const StageExternals& a) const {
    std::string out = "mounts of the host's:";
    for (const HostMount& mount : a.mounts)
      out += fmt::format(" {} ({})", mount.target, attrs_text(mount.attrs));
    for (const HostMask& mask : a.masks)
      out += fmt::format(" {}<-{}/{}", mask.target, mask.of, mask.name);
    return out;
  }
  std::string operator()(const RunRestore& a) const {
    return fmt::format(
        "the image is whole, made here and fits {} MiB; CRIU in the cgroup, in a new cgroup "
        "namespace, without network; hostname {}",
        a.memory_limit >> 20, a.hostname);
  }
  std::string operator()(const GiveSocket& a) const {
    return fmt::format("control directory and socket: root:{} {:o}, {:o}", a.group,
                       a.directory_mode, a.mode);
  }
  std::string operator()(const MarkComplete&) const { return "write the mark of a whole sandbox"; }
  std::string operator()(const EnterCgroup&) const { return "move itself into its cgroup"; }
  std::string operator()(const Unshare& a) const {
    return fmt::format("unshare {:#x}", unsigned(a.flags));
  }
  std::string operator()(const NewSession&) const { return "setsid, new session keyring"; }
  std::string operator()(const SetHostname& a) const { return "hostname " + a.name; }
  std::string operator()(const LoopbackUp&) const { return "lo up"; }
  std::string operator()(const ReceiveRoot&) const { return "wait for the root's descriptor"; }
  std::string operator()(const CloneShared& a) const {
    return fmt::format("copy {} parts of the stage", a.parts.size());
  }
  std::string operator()(const MakeProc& a) const {
    return "new procfs (" + attrs_text(a.attrs) + ")";
  }
  std::string operator()(const ChangeRoot&) const {
    return "attach the root, pivot_root, detach the old root";
  }
  std::string operator()(const AttachShared& a) const {
    return fmt::format("{} at /{} ({})", a.name, a.target, attrs_text(a.attrs));
  }
  std::string operator()(const AttachProc& a) const { return "procfs at /" + a.target; }
  std::string operator()(const AttachControlDir& a) const {
    return "control directory at /" + a.target;
  }
  std::string operator()(const NewMount& a) const {
    return fmt::format("{} at /{} {} ({})", a.type, a.target, options_text(a.options),
                       attrs_text(a.attrs));
  }
  std::string operator()(const SetSysctls& a) const {
    std::string out = "sysctl";
    for (const SetSysctl& value : a.values) out += fmt::format(" {}={}", value.path, value.value);
    return out;
  }
  std::string operator()(const BindAll& a) const {
    std::string out = "bind";
    for (const Bind& bind : a.binds) {
      out += bind.source == bind.target
                 ? fmt::format(" /{} ({})", bind.target, attrs_text(bind.attrs))
                 : fmt::format(" /{}<-/{}", bind.target, bind.source);
    }
    return out;
  }
  std::string operator()(const ListenAgent& a) const {
    return fmt::format("listen on {} mode {:o}", a.path, a.mode);
  }
  std::string operator()(const BecomeRoot&) const { return "uid 0, gid 0, no groups"; }
  std::string operator()(const LimitCapabilities& a) const {
    return fmt::format("bounding set {:#x}", a.keep);
  }
  std::string operator()(const LimitResources& a) const {
    return fmt::format("{} resource limits, umask {:03o}", a.limits.size(), a.file_mask);
  }
  std::string operator()(const PlaceDescriptors&) const {
    return "0-2 /dev/null, 3 the socket, default signals";
  }
  std::string operator()(const InstallFilter&) const {
    return "seccomp: allow-list, then argument rules";
  }
  std::string operator()(const ExecAgent& a) const {
    std::string out = a.path;
    for (std::size_t i = 1; i < a.argv.size(); ++i) out += " " + a.argv[i];
    return out;
  }
};

}  // namespace

std::string describe(const Step& step) {
  constexpr const char* actors[] = {"warden", "init", "worker"};
  return fmt::format("{:6} {:16} {}", actors[std::size_t(step.actor)], step.name,
                     std::visit(Describer{}, step.action));
}

}  // namespace atl::jail
