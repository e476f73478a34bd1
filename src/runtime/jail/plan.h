// The plan of a launch: what is done to make one jail, in order, as plain data. Made by a pure
// function from a validated request and what is known of the host, printed by `atoll-warden
// --dry-run`, executed by launch.cc (the warden's steps) and init.cc (the steps of the new process
// before it becomes the agent). A sandbox that comes with memory has a plan of a second form, see
// below.
//
// Theory of operation. Two processes work on a launch. The warden (root) prepares disk, cgroup and
// control directory, clones the new process into its namespaces, maps its ids, mounts the root and
// hands it over as a descriptor. The new process (no rights on the host, all rights in its own user
// namespace) waits for the root, builds what is inside, gives its rights up and executes the agent.
// It reports over a socket that closes on exec: the failed step, or the times of all steps. The two
// lists of steps run side by side after `clone`; they meet at `handover` -> `receive`, by which
// time the ids are mapped.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/jail/protocol.h"
#include "sys/cgroup.h"
#include "sys/mounts.h"

namespace atl::jail {

inline constexpr std::uint32_t kIdsPerSandbox = 65536;
// Where the warden keeps its shared tree, in a mount namespace of its own; on the host it is an
// empty directory.
inline constexpr const char* kStage = "/run/atoll/stage";
// Inside the sandbox.
inline constexpr const char* kControlDir = "run/atoll";
inline constexpr const char* kAgentPath = "/run/atoll/atoll-agent";
// The runners of the code interpreter, a read-only directory in kControlDir.
inline constexpr const char* kKernelsName = "kernels";
inline constexpr const char* kKernelsDir = "/run/atoll/kernels";
inline constexpr const char* kAgentSocket = "/run/atoll/agent.sock";
inline constexpr int kAgentPort = 49983;

// What `kill` left of a sandbox, for its next boot.
struct KeptDisk {
  std::uint32_t slot = 0;  // the files carry its ids
};

struct LaunchSpec {
  std::string id;
  std::string template_id;
  std::string hostname;
  std::string boot_id;
  std::uint64_t memory_bytes = 0;
  std::uint64_t disk_bytes = 0;
  std::uint32_t cpu_millis = 0;
  std::uint32_t pids = 0;
  gid_t server_gid = 0;
  runtime::NetworkPolicy network;
  std::optional<KeptDisk> kept;  // nullopt: a fresh disk
  runtime::Memory memory = runtime::Memory::none;
  runtime::SnapshotId snapshot;  // of a fresh disk: what it lies over; empty: the template
};
// Preconditions: the request is valid. `kept` is left for the caller to fill in.
LaunchSpec to_launch_spec(const wire::CreateRequest& request, gid_t server_gid);

struct HostFacts {
  bool network = true;  // sandboxes are connected to the warden's router
  sys::CgroupLayout cgroups;
  // Overlay takes layers as descriptors of detached mounts (Linux 6.15); otherwise they are
  // attached to the stage for a moment.
  bool overlay_layers_by_fd = true;
  bool unsafe_no_limits =
      false;  // tests on machines without the controllers: plan no limits at all
};

using Options = std::vector<std::pair<std::string, std::string>>;  // an empty value is a flag

// ---- steps of the warden
struct MakeDirectory {};
struct TakeRange {};
struct CopyImage {
  std::uint64_t bytes;
};
// The same three for a kept disk. Their undoing leaves it as it is.
struct OpenDirectory {};
struct KeepRange {
  std::uint32_t slot;
};
struct OpenImage {};
struct MountDisk {
  Options options;
  sys::MountAttrs attrs;
};
MountDisk disk_mount();  // the same for every sandbox
// Something in the upper layer, written before anything runs. Directories that the template has
// keep its mode and owner.
struct UpperEntry {
  enum class Kind { directory, file, file_if_missing };
  Kind kind;
  std::string path;
  mode_t mode;
  std::string content;
};
struct FillUpper {
  std::string template_id;
  std::vector<UpperEntry> entries;
};
struct MakeControlDir {
  Options options;
  std::string boot_id;
  bool for_restore = false;  // the socket is bound by the sandbox's root: its own until then
};
struct CgroupWrite {
  std::string controller;
  std::string file;
  std::string value;
  bool only_if_present;  // for files that exist only where the kernel accounts swap
};
struct MakeCgroup {
  std::vector<CgroupWrite> writes;
};
struct CloneInit {
  std::uint64_t flags;
  bool into_cgroup;
};
struct MapIds {
  std::uint32_t count;
};
struct SetOomScore {
  int score;
};
// Before there is an interface: a sandbox is never connected without its policy.
struct ApplyNetworkPolicy {
  runtime::NetworkPolicy policy;
};
struct ConnectNetwork {};
struct IdmapTemplate {
  std::string template_id;
};
// The layers of snapshots between the disk and the template, if there are any.
struct OpenSnapshotLayers {};
// The top of a fresh disk over a snapshot: as that of the nearest layer.
struct InheritUpper {};
struct MountRoot {
  Options options;
  sys::MountAttrs attrs;
  bool layers_by_fd;
};
// Directories that are mounted over, made again if somebody inside has removed them.
struct RestoreMountPoints {
  std::vector<std::string> paths;
};
// A boot over a dumped sandbox's disk: its memory would be of another disk from now on.
struct RetireMemory {};
struct HandOverRoot {};
struct AwaitExec {};
// ---- steps of the warden for a sandbox from memory
struct OpenMemory {};
// A user namespace with the ids that the sandbox is going to have.
struct MakeIdMap {
  std::uint32_t count;
};
struct StartRestore {};
struct AwaitRestore {};
// The launch is complete: from now on the directory is a sandbox and not the remains of a launch.
struct MarkComplete {};

// ---- steps of the worker of a sandbox from memory
// Mounts of a sandbox that show something of the host: made again for the restored ones.
struct HostMount {
  enum class From : std::uint8_t {
    stage,
    programs,  // of the stage, or those of another version (programs.h)
    control
  };
  From from;
  std::string path;    // below that
  std::string target;  // inside the sandbox, absolute
  sys::MountAttrs attrs;
};
// A file or directory of a HostMount put over another place.
struct HostMask {
  std::string target;
  std::string of;  // target of the HostMount
  std::string name;
};
struct StageExternals {
  std::vector<HostMount> mounts;
  std::vector<HostMask> masks;
};
// CRIU, started inside the cgroup, in a new cgroup namespace, without a network.
struct RunRestore {
  std::string hostname;
  std::uint64_t memory_limit;
};
// At the first stop: sockets may be bound to addresses that the sandbox does not have. At the
// second: no more.
struct BindForeign {
  bool allowed;
};
// The last step before anything runs: the image is void, if it was the sandbox's own. From here on
// the worker goes on without its warden.
struct UseMemory {
  bool own;
};
// As ListenAgent leaves socket and directory.
struct GiveSocket {
  unsigned mode;
  unsigned directory_mode;
  gid_t group;
};

// ---- steps of the new process
struct EnterCgroup {};
struct Unshare {
  int flags;
};
struct NewSession {};
struct SetHostname {
  std::string name;
};
struct LoopbackUp {};
struct ReceiveRoot {};
// Copies of parts of the stage, made while it can still be seen; attached later by name.
struct CloneShared {
  std::vector<std::pair<std::string, std::string>> parts;  // name -> path below the stage
};
// A mount of procfs; made before the old root goes, because the kernel wants to see an unmasked
// one.
struct MakeProc {
  sys::MountAttrs attrs;
};
struct ChangeRoot {};
struct AttachShared {
  std::string name;
  std::string target;
  sys::MountAttrs attrs;
};
struct AttachProc {
  std::string target;
};
struct AttachControlDir {
  std::string target;
};
struct NewMount {
  std::string type;
  std::string target;
  Options options;
  sys::MountAttrs attrs;
};
struct SetSysctl {
  std::string path;  // below /proc/sys
  std::string value;
};
struct SetSysctls {
  std::vector<SetSysctl> values;
};
struct BringUpNetwork {};
// Binds within the sandbox, each a copy of `source` put over `target`. Paths that do not exist are
// passed over.
struct Bind {
  std::string source;
  std::string target;
  sys::MountAttrs attrs;
};
struct BindAll {
  std::vector<Bind> binds;
};
struct ListenAgent {
  std::string path;
  unsigned mode;
  int backlog;
};
struct BecomeRoot {};
struct LimitCapabilities {
  std::uint64_t keep;
};
struct ResourceLimit {
  int resource;
  std::uint64_t soft;
  std::uint64_t hard;
};
struct LimitResources {
  std::vector<ResourceLimit> limits;
  mode_t file_mask;
};
// 0-2 on the sandbox's own /dev/null, 3 the listening socket, nothing else; default signals.
struct PlaceDescriptors {};
struct InstallFilter {};
struct ExecAgent {
  std::string path;
  std::vector<std::string> argv;
  std::vector<std::string> env;
};

using Action =
    std::variant<MakeDirectory, TakeRange, CopyImage, OpenDirectory, KeepRange, OpenImage,
                 MountDisk, FillUpper, MakeControlDir, MakeCgroup, CloneInit, MapIds, SetOomScore,
                 ApplyNetworkPolicy, ConnectNetwork, IdmapTemplate, OpenSnapshotLayers,
                 InheritUpper, MountRoot, RestoreMountPoints, RetireMemory, HandOverRoot, AwaitExec,
                 OpenMemory, MakeIdMap, StartRestore, AwaitRestore, MarkComplete, StageExternals,
                 RunRestore, BindForeign, GiveSocket, UseMemory, EnterCgroup, Unshare, NewSession,
                 SetHostname, LoopbackUp, ReceiveRoot, CloneShared, MakeProc, ChangeRoot,
                 AttachShared, AttachProc, AttachControlDir, NewMount, SetSysctls, BringUpNetwork,
                 BindAll, ListenAgent, BecomeRoot, LimitCapabilities, LimitResources,
                 PlaceDescriptors, InstallFilter, ExecAgent>;

enum class Actor : std::uint8_t { warden, init, worker };

struct Step {
  Actor actor;
  std::string name;  // what reports, timings and --fail-at call it; unique within a plan
  Action action;
};

// Pure: the same input gives the same plan.
std::vector<Step> make_launch_plan(const LaunchSpec& spec, const HostFacts& host);
// What a sandbox has mounted besides its root, procfs and what it was given memory for.
StageExternals host_mounts();
inline constexpr const char* kPingGroups = "net/ipv4/ping_group_range";
// One line for people.
std::string describe(const Step& step);

// Capabilities that the root of a sandbox has (bit n = capability n): what sudo, su, chown, ping,
// low ports and apt need.
std::uint64_t kept_capabilities();
// Of the first process, and so of all; a zygote has the same.
LimitResources resource_limits();
// oom_score_adj of what the agent starts: 500 above its own, see agent/spawn.h.
inline constexpr int kOomScore = 250;  // the host prefers to lose a sandbox's process over its own
inline constexpr int kChildOomScore = kOomScore + 500;

}  // namespace atl::jail
