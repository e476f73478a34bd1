// The start of a warden: what must be in place before it serves, and what earlier ones left behind.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>

#include <cerrno>
#include <charconv>
#include <set>

#include "base/log.h"
#include "runtime/jail/host_checks.h"
#include "runtime/jail/stage.h"
#include "runtime/jail/warden.h"
#include "sys/namespaces.h"
#include "sys/self.h"

namespace atl::jail {
namespace {

constexpr const char* kRangesDir = "/run/atoll/ranges";
constexpr const char* kImagesDir = ".images";
// A warden that was killed in the middle of a launch leaves a process that holds its lock until it
// sees the end of its channel or executes the agent.
constexpr std::chrono::milliseconds kLockWait{3000};
constexpr std::chrono::milliseconds kDyingWait{2000};

// A directory that root owns and nobody else can write: whoever could would choose what root
// mounts.
Result<sys::UniqueFd> own_dir(const sys::UniqueFd& parent, const std::string& name, mode_t mode) {
  ATOLL_TRY(sys::make_dir(parent, name, mode, sys::IfExists::keep));
  ATOLL_TRY_ASSIGN(sys::UniqueFd dir, sys::open_beneath(parent, name, O_RDONLY | O_DIRECTORY));
  ATOLL_TRY_ASSIGN(struct stat info, sys::stat_of(dir));
  if (info.st_uid != 0 || (info.st_mode & 022) != 0) {
    return make_error(Errc::failed_precondition,
                      name + " must belong to root and be writable by nobody else");
  }
  return dir;
}

// Descriptors are paid with the memory of the sandbox that opens them. The number for the whole
// machine protects nobody then; it lets one sandbox stop all programs without root. Hosts with
// systemd have lifted it at boot.
void lift_open_files_of_the_host() {
  auto dir = sys::open_trusted("/proc/sys/fs", O_PATH | O_DIRECTORY);
  auto lifted = dir ? sys::write_beneath(*dir, "file-max", "9223372036854775807")
                    : Result<void>(std::move(dir).error());
  if (!lifted)
    log::warn("cannot lift fs.file-max: many open files in one sandbox can stop the others",
              {{"error", lifted.error().message}});
}

Result<void> make_run_dirs() {
  ATOLL_TRY_ASSIGN(sys::UniqueFd run, sys::open_trusted("/run", O_RDONLY | O_DIRECTORY));
  ATOLL_TRY_ASSIGN(sys::UniqueFd ours, own_dir(run, "atoll", 0755));
  ATOLL_TRY(own_dir(ours, "ranges", 0700));
  ATOLL_TRY(own_dir(ours, "stage", 0755));
  ATOLL_TRY(own_dir(ours, "links", 0700));
  ATOLL_TRY(own_dir(ours, "net", 0700));
  return {};
}

Result<sys::CgroupLayout> find_cgroups(const WardenConfig& config) {
  if (!config.cgroup_v2_root.empty())
    return sys::CgroupLayout{sys::CgroupKind::v2, {{config.cgroup_v2_root, {}}}};
  ATOLL_TRY_ASSIGN(sys::CgroupLayout layout, sys::detect_cgroup_layout());
  for (const char* controller : {"memory", "pids", "cpu"}) {
    if (!layout.has(controller)) {
      return make_error(Errc::failed_precondition,
                        std::string("no cgroup controller ") + controller);
    }
  }
  return layout;
}

// This mount namespace began as a copy of the host's, with the pins of all routers. Copies would
// keep routers that have been removed.
Result<void> drop_pins() {
  ATOLL_TRY_ASSIGN(sys::UniqueFd dir, sys::open_trusted(kPinsDir, O_RDONLY | O_DIRECTORY));
  ATOLL_TRY_ASSIGN(std::vector<std::string> names, sys::list_dir(dir));
  for (const std::string& name : names) {
    auto dropped = sys::unmount_lazily(std::string(kPinsDir) + "/" + name);
    if (!dropped && dropped.error().sys_errno != EINVAL && dropped.error().sys_errno != ENOENT)
      return dropped;
  }
  return {};
}

// The last number of the NSpid line of /proc/PID/status, if it has exactly two: ours and the
// sandbox's.
std::optional<int> pid_inside(std::string_view status) {
  const std::size_t at = status.find("\nNSpid:");
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view line = status.substr(at + 7);
  line = line.substr(0, line.find('\n'));
  int numbers = 0;
  int value = 0;
  bool in_number = false;
  for (char c : line) {
    if (c < '0' || c > '9') {
      in_number = false;
      continue;
    }
    if (!in_number) {
      ++numbers;
      value = 0;
    }
    in_number = true;
    value = value * 10 + (c - '0');
  }
  return numbers == 2 ? std::optional<int>(value) : std::nullopt;
}

// From /proc/PID/status: SIGKILL is pending for it, or its memory is gone already.
bool is_dying(std::string_view status) {
  if (status.find("\nVmSize:") == std::string_view::npos) return true;
  const std::size_t at = status.find("\nShdPnd:\t");
  if (at == std::string_view::npos) return false;
  const std::string_view digits = status.substr(at + 9, 16);
  std::uint64_t pending = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), pending, 16);
  return (pending >> (SIGKILL - 1) & 1) != 0;
}

// The control directory as the sandbox has it mounted. A sandbox can rename what is above it and
// put something of its own in that place, but it can make nothing that the host's root owns.
Result<sys::UniqueFd> find_control_dir(pid_t pid) {
  ATOLL_TRY_ASSIGN(sys::UniqueFd root, sys::open_trusted("/proc/" + std::to_string(pid) + "/root",
                                                         O_PATH | O_DIRECTORY));
  ATOLL_TRY_ASSIGN(sys::UniqueFd dir, sys::open_beneath(root, kControlDir, O_PATH | O_DIRECTORY));
  ATOLL_TRY_ASSIGN(struct stat info, sys::stat_of(dir));
  ATOLL_TRY_ASSIGN(struct stat socket, sys::stat_at(dir, "agent.sock"));
  if (info.st_uid != 0 || socket.st_uid != 0 || !S_ISSOCK(socket.st_mode)) {
    return make_error(Errc::not_found, "control directory not found");
  }
  return dir;
}

}  // namespace

Result<std::unique_ptr<Warden>> Warden::create(const WardenConfig& config) {
  ATOLL_TRY(wire::validate_id(config.instance, "instance"));
  sys::set_file_mask(077);
  sys::raise_open_files();
  lift_open_files_of_the_host();
  ATOLL_TRY(make_run_dirs());
  ATOLL_TRY_ASSIGN(sys::UniqueFd host_mounts, sys::own_namespace("mnt"));
  // From here on no mount of ours is seen by the host, and all of them go with this process.
  ATOLL_TRY(sys::unshare(CLONE_NEWNS));
  ATOLL_TRY(sys::make_all_private());
  ATOLL_TRY(drop_pins());
  auto staged = build_stage(config.agent_path, config.kernels_path);
  if (!staged) return std::move(staged).error().with("stage");

  ATOLL_TRY_ASSIGN(sys::UniqueFd home, sys::open_trusted(config.home, O_RDONLY | O_DIRECTORY));
  ATOLL_TRY_ASSIGN(sys::UniqueFd templates,
                   sys::open_trusted(config.templates, O_RDONLY | O_DIRECTORY));
  ATOLL_TRY_ASSIGN(sys::UniqueFd sandboxes, own_dir(home, "sandboxes", 0700));
  auto lock = sys::FileLock::acquire_dir(sandboxes, config.instance, 0700, kLockWait);
  if (!lock) return std::move(lock).error().with("another warden serves this home and instance");
  ATOLL_TRY_ASSIGN(sys::UniqueFd mine, own_dir(sandboxes, config.instance, 0700));
  ATOLL_TRY_ASSIGN(sys::UniqueFd images, own_dir(sandboxes, kImagesDir, 0700));

  // Servers of different homes or instances get directories of their own below one `atoll` per
  // hierarchy.
  const std::string name = instance_name(config.home, config.instance);
  HostFacts facts;
  ATOLL_TRY_ASSIGN(facts.cgroups, find_cgroups(config));
  facts.unsafe_no_limits = config.unsafe_no_limits;
  facts.overlay_layers_by_fd = !config.layers_by_stage && overlay_takes_descriptors();
  ATOLL_TRY_ASSIGN(sys::CgroupTree cgroups, sys::CgroupTree::open(facts.cgroups, {"atoll", name}));
  ATOLL_TRY_ASSIGN(Ranges ranges, Ranges::open(kRangesDir, config.home, config.instance));
  ATOLL_TRY_ASSIGN(SeccompPrograms filters, compile_seccomp_policy());
  std::unique_ptr<Network> network;
  facts.network = !config.no_network;
  if (facts.network) {
    auto opened = Network::open({config.home, config.instance, name, host_mounts});
    if (!opened) return std::move(opened).error().with("network");
    network = std::move(*opened);
  }
  ATOLL_TRY_ASSIGN(SnapshotStore snapshots, SnapshotStore::open(home, config.instance));
  auto programs = Programs::open(home);
  if (!programs) return std::move(programs).error().with("programs");
  // Restored sandboxes are children of CRIU, which ends.
  ATOLL_TRY(sys::adopt_orphans());
  ATOLL_TRY_ASSIGN(sys::Poller poller, sys::Poller::create());

  LaunchHost host{std::move(templates),     std::move(mine),
                  Disks(std::move(images)), std::move(ranges),
                  std::move(cgroups),       std::move(facts),
                  std::move(filters),       {config.fail_at, config.die_at, config.late_at},
                  std::move(network),       {config.tools + "/criu", config.home},
                  std::move(snapshots),     Layers(std::string(kStage) + "/" + kStageLayers),
                  std::move(*programs)};
  std::unique_ptr<Warden> warden(new Warden(std::move(host), std::move(*lock), std::move(sandboxes),
                                            config.instance, std::move(poller)));
  warden->zygote_forks_ = config.zygote_forks;
  ATOLL_TRY(warden->find_left_behind());
  ATOLL_TRY(warden->look_for_long_chains());
  return warden;
}

Result<void> Warden::find_left_behind() {
  host_.ranges.sweep_orphans();
  ATOLL_TRY(end_interrupted_replaces());
  std::set<std::string> names;
  ATOLL_TRY_ASSIGN(std::vector<std::string> directories, sys::list_dir(host_.sandboxes));
  ATOLL_TRY_ASSIGN(std::vector<std::string> cgroups, host_.cgroups.list());
  for (const auto* list : {&directories, &cgroups}) {
    for (const std::string& name : *list) {
      if (wire::validate_id(name, "id")) names.insert(name);
    }
  }
  for (const std::string& id : names) {
    ATOLL_TRY_ASSIGN(Sandbox sandbox, adopt(id));
    Sandbox& kept = sandboxes_.emplace(id, std::move(sandbox)).first->second;
    if (!kept.pidfd && kept.whole) {
      ATOLL_TRY(begin_settling(id, kept));
    }
    if (!kept.pidfd) continue;
    kept.token = watch(Watched::Kind::sandbox, id);
    ATOLL_TRY(poller_.add(kept.pidfd, kept.token));
    // Both: the tree was to be ended, or a restore was cut off before anything ran.
    if (kept.dumped) {
      ATOLL_TRY(kill(kept, id));
    }
  }
  ATOLL_TRY_ASSIGN(std::vector<TakenSlot> slots, host_.ranges.mine());
  for (const TakenSlot& slot : slots) {
    const auto found = sandboxes_.find(slot.sandbox);
    if (found != sandboxes_.end() && found->second.slot.value_or(slot.slot) == slot.slot) {
      found->second.slot = slot.slot;
    } else {
      ATOLL_TRY(host_.ranges.give_back(slot.slot));
    }
  }
  if (host_.network) {
    std::set<std::uint32_t> taken;
    for (const auto& [id, sandbox] : sandboxes_) {
      if (sandbox.slot) taken.insert(*sandbox.slot);
    }
    ATOLL_TRY(host_.network->keep_only(taken));
  }
  if (!sandboxes_.empty())
    log::info("found sandboxes of an earlier warden",
              {{"count", std::to_string(sandboxes_.size())}});
  return {};
}

// What a directory and a cgroup say of a sandbox, and its first process if it has one.
Result<Warden::Sandbox> Warden::adopt(const std::string& id) {
  Sandbox sandbox;
  auto directory = sys::open_beneath(host_.sandboxes, id, O_RDONLY | O_DIRECTORY);
  // First of all: somebody may still be at work on it.
  if (directory) {
    ATOLL_TRY(tidy_memory(id, *directory, sandbox));
    auto name = sys::read_beneath(*directory, kTemplateName, wire::kIdSize);
    if (name && wire::validate_id(*name, "template")) sandbox.template_id = std::move(*name);
  }
  auto mark = directory ? read_mark(*directory) : Result<std::optional<Mark>>(std::nullopt);
  if (!mark) log::error("a sandbox's mark", {{"sandbox", id}, {"error", mark.error().message}});
  if (mark && *mark) {
    sandbox.whole = true;
    // /run is empty after a boot of the host; until the disk is gone nobody else may use its ids.
    auto claimed = host_.ranges.claim((*mark)->slot, id);
    if (claimed) sandbox.slot = (*mark)->slot;
    if (!claimed)
      log::error("the id range of a sandbox is lost",
                 {{"sandbox", id}, {"error", claimed.error().message}});
  }
  ATOLL_TRY_ASSIGN(std::optional<sys::Cgroup> cgroup, host_.cgroups.find(id));
  if (!cgroup) return sandbox;
  ATOLL_TRY_ASSIGN(std::vector<pid_t> pids, cgroup->processes());
  for (pid_t pid : pids) {
    auto pidfd = sys::open_pidfd(pid);
    auto status = sys::read_trusted("/proc/" + std::to_string(pid) + "/status");
    if (!pidfd || !status || pid_inside(*status) != 1) continue;
    if (is_dying(*status)) {
      // Killed by a warden that died before it was gone, perhaps frozen.
      ATOLL_TRY(cgroup->thaw());
      ATOLL_TRY(sys::wait_readable(*pidfd, kDyingWait));
    }
    auto control = find_control_dir(pid);
    // All of it was read of the same process, which lives.
    if (sys::has_ended(*pidfd)) continue;
    if (control) sandbox.control_dir = std::move(*control);
    sandbox.pidfd = std::move(*pidfd);
    sandbox.pid = pid;
    sandbox.warm = true;  // it may have a nursery, and must not get two
    auto frozen = cgroup->frozen();
    sandbox.frozen = frozen && *frozen;
    auto freezing = cgroup->freezing();
    if (!sandbox.frozen && freezing && *freezing) {
      // Asked to freeze by a warden that died before it was done: nobody was told that it is.
      ATOLL_TRY(cgroup->thaw());
    }
    break;
  }
  return sandbox;
}

}  // namespace atl::jail
