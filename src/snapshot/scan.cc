#include "snapshot/scan.h"

#include <fmt/format.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <map>
#include <set>
#include <unordered_set>

#include "sys/files.h"
#include "sys/namespaces.h"
#include "sys/process.h"

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

namespace atl::snapshot {
namespace {

constexpr std::size_t kMaxProcFile = 64u << 20;
constexpr int kMptcp = 262;
constexpr std::string_view kRemoved = " (deleted)";
constexpr std::size_t kMaxRemoved = 1000;
constexpr std::array kNamespaces = {
    "user", "pid",    "pid_for_children", "mnt", "net", "ipc", "uts",
    "time", "cgroup", "time_for_children"};

bool is_gone(const Error& error) { return error.sys_errno == ENOENT || error.sys_errno == ESRCH; }

Result<std::string> read_link(const sys::UniqueFd& dir, const std::string& name) {
  std::string target(4096, '\0');
  const ssize_t size = ::readlinkat(dir.get(), name.c_str(), target.data(), target.size());
  if (size < 0) return errno_error("readlink " + name);
  target.resize(std::size_t(size));
  return target;
}

// Through the kernel's magic link: what the link stands for.
Result<struct stat> stat_through(const sys::UniqueFd& dir, const std::string& name) {
  struct stat info{};
  if (::fstatat(dir.get(), name.c_str(), &info, 0) != 0) return errno_error("stat " + name);
  return info;
}
Result<sys::UniqueFd> open_through(const sys::UniqueFd& dir, const std::string& name) {
  sys::UniqueFd file(::openat(dir.get(), name.c_str(), O_PATH | O_CLOEXEC));
  if (!file) return errno_error("open " + name);
  return file;
}

Result<std::uint32_t> mount_of(const sys::UniqueFd& file) {
  ATOLL_TRY_ASSIGN(std::string info,
                   sys::read_trusted("/proc/self/fdinfo/" + std::to_string(file.get())));
  const std::size_t at = info.find("mnt_id:\t");
  std::uint32_t id = 0;
  if (at == std::string::npos ||
      std::from_chars(info.data() + at + 8, info.data() + info.size(), id).ec != std::errc())
    return make_error(Errc::internal, "no mnt_id in fdinfo");
  return id;
}

// A file without a place in any tree: shared memory, memfd, huge pages.
bool has_no_path(std::string_view name) {
  return name.starts_with("/memfd:") || name.starts_with("/SYSV") ||
         name.starts_with("/dev/zero") || name.starts_with("/anon_hugepage") ||
         name.starts_with("anon_inode:") || name.starts_with("[");
}

bool is_unchanged(const struct stat& a, const struct stat& b) {
  // An overlay puts the layer's number into the upper bits of an inode's.
  return std::uint32_t(a.st_ino) == std::uint32_t(b.st_ino) && a.st_mode == b.st_mode &&
         a.st_size == b.st_size && a.st_mtim.tv_sec == b.st_mtim.tv_sec &&
         a.st_mtim.tv_nsec == b.st_mtim.tv_nsec && a.st_ctim.tv_sec == b.st_ctim.tv_sec &&
         a.st_ctim.tv_nsec == b.st_ctim.tv_nsec;
}

// `who` is known while one process is looked at; it goes into every message.
class Scanner {
 public:
  explicit Scanner(const CheckpointPlan& plan) : plan_(plan) {}

  Result<Scan> run() {
    ATOLL_TRY(read_pids());
    ATOLL_TRY_ASSIGN(sys::UniqueFd init, open_process(plan_.init));
    ATOLL_TRY(read_mounts(init));
    ATOLL_TRY(read_namespaces(init));
    ATOLL_TRY_ASSIGN(root_, open_through(init, "root"));
    for (const pid_t pid : scan_.pids) {
      auto checked = check_process(pid);
      if (!checked) return std::move(checked).error();
    }
    for (auto& [key, file] : files_) scan_.files.push_back(std::move(file));
    return std::move(scan_);
  }

 private:
  Error refuse(Obstacle obstacle, std::string_view what) const {
    return make_error(Errc::failed_precondition,
                      fmt::format("{}: process {} ({}) {}", name_of(obstacle), status_.inner_pid,
                                  status_.name, what));
  }

  static Result<sys::UniqueFd> open_process(pid_t pid) {
    return sys::open_trusted("/proc/" + std::to_string(pid), O_RDONLY | O_DIRECTORY);
  }

  Result<void> read_pids() {
    ATOLL_TRY_ASSIGN(std::string text,
                     sys::read_trusted(plan_.cgroup + "/cgroup.procs", kMaxProcFile));
    const char* at = text.data();
    const char* const end = at + text.size();
    while (at < end) {
      pid_t pid = 0;
      const auto [next, error] = std::from_chars(at, end, pid);
      // A pid of 0 is one that this process cannot see.
      if (error != std::errc() || pid <= 0)
        return make_error(Errc::internal, "cgroup.procs is not as expected");
      at = next + 1;
      if (in_tree_.insert(pid).second) scan_.pids.push_back(pid);
    }
    if (!in_tree_.contains(plan_.init))
      return make_error(Errc::failed_precondition, "the first process is not in the cgroup");
    return {};
  }

  Result<void> read_mounts(const sys::UniqueFd& init) {
    ATOLL_TRY_ASSIGN(std::string text, sys::read_beneath(init, "mountinfo", kMaxProcFile));
    ATOLL_TRY_ASSIGN(std::vector<MountLine> mounts, parse_mountinfo(text));
    ATOLL_TRY_ASSIGN(scan_.external_mounts, check_mounts(mounts, plan_.mounts));
    for (const MountLine& mount : mounts) {
      own_mounts_.insert(mount.id);
      own_devices_.insert(mount.device);
    }
    for (const MountLine& mount : mounts) {
      const auto& external = scan_.external_mounts;
      if (std::find(external.begin(), external.end(), mount.path) == external.end()) continue;
      shared_mounts_.push_back(mount);
    }
    return {};
  }

  Result<void> read_namespaces(const sys::UniqueFd& init) {
    for (std::size_t i = 0; i < kNamespaces.size(); ++i) {
      ATOLL_TRY_ASSIGN(namespaces_[i], namespace_of(init, kNamespaces[i]));
    }
    ATOLL_TRY_ASSIGN(sys::UniqueFd network,
                     sys::open_trusted(fmt::format("/proc/{}/ns/net", plan_.init), O_RDONLY));
    ATOLL_TRY_ASSIGN(sys::InNamespace inside, sys::InNamespace::enter(network, CLONE_NEWNET));
    sys::UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!socket) return errno_error("socket");
    return option(socket, SO_NETNS_COOKIE, network_);
  }

  // 0: this kernel does not have that kind, or the process has ended and has none.
  static Result<std::uint64_t> namespace_of(const sys::UniqueFd& process, const char* name) {
    auto info = stat_through(process, std::string("ns/") + name);
    if (!info && is_gone(info.error())) return std::uint64_t(0);
    if (!info) return std::move(info).error();
    return std::uint64_t(info->st_ino);
  }

  template <class Value>
  static Result<void> option(const sys::UniqueFd& socket, int name, Value& value) {
    socklen_t size = sizeof(value);
    if (::getsockopt(socket.get(), SOL_SOCKET, name, &value, &size) != 0)
      return errno_error("getsockopt");
    return {};
  }

  Result<void> check_process(pid_t pid) {
    ATOLL_TRY_ASSIGN(sys::UniqueFd process, open_process(pid));
    ATOLL_TRY_ASSIGN(std::string text, sys::read_beneath(process, "status"));
    ATOLL_TRY_ASSIGN(status_, parse_status(text));
    scan_.inner_pids.push_back(status_.inner_pid);
    if (pid != plan_.init && !in_tree_.contains(status_.parent))
      return refuse(Obstacle::outside_process, "is no descendant of the first process");
    ATOLL_TRY(check_tracers(process));
    if (status_.state == 'Z' || status_.state == 'X') return {};
    ATOLL_TRY(check_namespaces(process));
    ATOLL_TRY(check_descriptors(process, pid));
    ATOLL_TRY(check_file(process, "exe"));
    for (const char* name : {"cwd", "root"}) {
      ATOLL_TRY_ASSIGN(struct stat info, stat_through(process, name));
      if (!own_devices_.contains(info.st_dev))
        return refuse(Obstacle::foreign_file, "is in a directory outside");
    }
    return check_maps(process);
  }

  Result<void> check_tracers(const sys::UniqueFd& process) {
    ATOLL_TRY_ASSIGN(sys::UniqueFd tasks,
                     sys::open_beneath(process, "task", O_RDONLY | O_DIRECTORY));
    ATOLL_TRY_ASSIGN(std::vector<std::string> names, sys::list_dir(tasks));
    for (const std::string& name : names) {
      ATOLL_TRY_ASSIGN(std::string text, sys::read_beneath(tasks, name + "/status"));
      ATOLL_TRY_ASSIGN(TaskStatus task, parse_status(text));
      if (task.tracer != 0) return refuse(Obstacle::traced, "is being traced");
      if (task.state == 'T' || task.state == 't') return refuse(Obstacle::stopped, "is stopped");
      // One that was stopped and then frozen looks as if it waited for a disk.
      if (task.state == 'Z' || task.state == 'X') continue;
      ATOLL_TRY_ASSIGN(std::string place, sys::read_beneath(tasks, name + "/wchan"));
      if (place.find("do_signal_stop") != std::string::npos)
        return refuse(Obstacle::stopped, "is stopped");
    }
    return {};
  }

  Result<void> check_namespaces(const sys::UniqueFd& process) {
    for (std::size_t i = 0; i < kNamespaces.size(); ++i) {
      ATOLL_TRY_ASSIGN(std::uint64_t id, namespace_of(process, kNamespaces[i]));
      if (id != namespaces_[i])
        return refuse(Obstacle::namespaces,
                      fmt::format("has a {} namespace of its own", kNamespaces[i]));
    }
    return {};
  }

  Result<void> check_descriptors(const sys::UniqueFd& process, pid_t pid) {
    ATOLL_TRY_ASSIGN(sys::UniqueFd dir, sys::open_beneath(process, "fd", O_RDONLY | O_DIRECTORY));
    ATOLL_TRY_ASSIGN(std::vector<std::string> names, sys::list_dir(dir));
    sys::UniqueFd pidfd;
    for (const std::string& name : names) {
      ATOLL_TRY_ASSIGN(std::string target, read_link(dir, name));
      if (const auto obstacle = obstacle_of_link(target))
        return refuse(*obstacle, "has a descriptor of " + target.substr(0, 64));
      if (target.starts_with("socket:[")) {
        if (!pidfd) {
          ATOLL_TRY_ASSIGN(pidfd, sys::open_pidfd(pid));
        }
        ATOLL_TRY(check_socket(pidfd, std::atoi(name.c_str())));
      } else if (target.starts_with('/') && !has_no_path(target)) {
        ATOLL_TRY(check_file(dir, name));
        ATOLL_TRY(note_removed(dir, name, target));
      }
    }
    return {};
  }

  Result<void> check_socket(const sys::UniqueFd& pidfd, int number) {
    sys::UniqueFd socket(int(::syscall(SYS_pidfd_getfd, pidfd.get(), number, 0)));
    if (!socket) return errno_error("pidfd_getfd");
    int family = 0;
    int protocol = 0;
    std::uint64_t network = 0;
    ATOLL_TRY(option(socket, SO_DOMAIN, family));
    ATOLL_TRY(option(socket, SO_PROTOCOL, protocol));
    ATOLL_TRY(option(socket, SO_NETNS_COOKIE, network));
    constexpr std::array kFamilies = {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK, AF_PACKET};
    if (std::find(kFamilies.begin(), kFamilies.end(), family) == kFamilies.end())
      return refuse(Obstacle::socket, fmt::format("has a socket of family {}", family));
    if ((family == AF_INET || family == AF_INET6) && protocol == kMptcp)
      return refuse(Obstacle::socket, "has a socket of MPTCP");
    if (network != network_)
      return refuse(Obstacle::outside_socket, "has a connection to somebody outside");
    return {};
  }

  Result<void> check_maps(const sys::UniqueFd& process) {
    ATOLL_TRY_ASSIGN(std::string text, sys::read_beneath(process, "maps", kMaxProcFile));
    ATOLL_TRY_ASSIGN(std::vector<MapLine> maps, parse_maps(text));
    std::set<std::pair<std::uint64_t, std::uint64_t>> seen;
    for (const MapLine& map : maps) {
      if (has_no_path(map.name)) continue;
      const bool removed = map.name.ends_with(kRemoved);
      if (is_private(map.device) && !removed) continue;
      // Files of shared mounts may be mapped through the sandbox's and through another's.
      if (!own_devices_.contains(map.device) && !seen.emplace(map.device, map.inode).second)
        continue;
      const std::string link = fmt::format("map_files/{:x}-{:x}", map.begin, map.end);
      ATOLL_TRY(check_file(process, link));
      if (removed) {
        ATOLL_TRY_ASSIGN(std::string target, read_link(process, link));
        ATOLL_TRY(note_removed(process, link, target));
      }
    }
    return {};
  }

  Result<void> note_removed(const sys::UniqueFd& dir, const std::string& link,
                            const std::string& target) {
    if (!target.ends_with(kRemoved) || !target.starts_with('/')) return {};
    ATOLL_TRY_ASSIGN(sys::UniqueFd file, open_through(dir, link));
    ATOLL_TRY_ASSIGN(struct stat info, sys::stat_of(file));
    if (!S_ISREG(info.st_mode) || info.st_nlink == 0) return {};
    const std::string path = target.substr(1, target.size() - 1 - kRemoved.size());
    for (const RemovedName& known : scan_.removed) {
      if (known.path == path && known.inode == info.st_ino && known.device == info.st_dev)
        return {};
    }
    if (scan_.removed.size() >= kMaxRemoved)
      return refuse(Obstacle::descriptor, "has too many files with removed names");
    scan_.removed.push_back({path, info.st_dev, info.st_ino, std::move(file)});
    return {};
  }

  // Mounted in the sandbox and nowhere else.
  bool is_private(std::uint64_t device) const {
    return own_devices_.contains(device) &&
           std::none_of(shared_mounts_.begin(), shared_mounts_.end(),
                        [&](const MountLine& mount) { return mount.device == device; });
  }

  // A file that a process holds, by its link in /proc.
  Result<void> check_file(const sys::UniqueFd& dir, const std::string& link) {
    auto opened = open_through(dir, link);
    if (!opened && link == "exe" && is_gone(opened.error())) return {};
    if (!opened) return std::move(opened).error();
    ATOLL_TRY_ASSIGN(struct stat info, sys::stat_of(*opened));
    if (is_private(info.st_dev)) return {};
    // Devices: CRIU finds them by path.
    if (own_devices_.contains(info.st_dev) && !S_ISREG(info.st_mode)) return {};
    ATOLL_TRY_ASSIGN(std::uint32_t mount, mount_of(*opened));
    if (own_mounts_.contains(mount)) return {};
    if (files_.contains({mount, info.st_ino})) return {};
    ATOLL_TRY_ASSIGN(std::string path, read_link(dir, link));
    const std::string shared = path_of_shared(path, info);
    ForeignFile file{mount, info.st_ino, shared, true};
    if (shared.empty()) {
      ATOLL_TRY_ASSIGN(file, describe(std::move(path), info));
      file.mount = mount;
    }
    files_.emplace(std::pair(mount, std::uint64_t(info.st_ino)), std::move(file));
    return {};
  }

  // Where a file is inside that came through somebody else's mount of what is mounted here as well:
  // the zygote's library. Its name begins at the root of the namespace it was mounted in, or, once
  // that is gone, at the mount itself. Empty: it is not inside.
  std::string path_of_shared(const std::string& path, const struct stat& info) const {
    if (!path.starts_with('/')) return {};
    for (const MountLine& mount : shared_mounts_) {
      if (mount.device != info.st_dev) continue;
      for (const std::string& candidate : {path, mount.path + path}) {
        auto own = sys::open_beneath(root_, candidate.substr(1), O_PATH | O_NOFOLLOW);
        if (!own) continue;
        auto found = sys::stat_of(*own);
        if (found && found->st_dev == info.st_dev && found->st_ino == info.st_ino) return candidate;
      }
    }
    return {};
  }

  Result<ForeignFile> describe(std::string path, const struct stat& info) {
    ForeignFile file;
    file.inode = info.st_ino;
    file.path = std::move(path);
    if (plan_.template_root == nullptr || !file.path.starts_with('/') || !S_ISREG(info.st_mode))
      return refuse(Obstacle::foreign_file, "uses a file from outside");
    const std::string below = file.path.substr(1);
    auto original = sys::open_beneath(*plan_.template_root, below, O_PATH | O_NOFOLLOW);
    if (!original) return refuse(Obstacle::foreign_file, "uses a file from outside");
    ATOLL_TRY_ASSIGN(struct stat template_info, sys::stat_of(*original));
    if (template_info.st_dev != info.st_dev || template_info.st_ino != info.st_ino)
      return refuse(Obstacle::foreign_file, "uses a file from outside");
    auto own = sys::open_beneath(root_, below, O_PATH | O_NOFOLLOW);
    if (own) {
      ATOLL_TRY_ASSIGN(struct stat own_info, sys::stat_of(*own));
      file.same = is_unchanged(own_info, template_info);
    }
    return file;
  }

  const CheckpointPlan& plan_;
  Scan scan_;
  TaskStatus status_;
  std::unordered_set<pid_t> in_tree_;
  std::unordered_set<std::uint32_t> own_mounts_;
  std::unordered_set<std::uint64_t> own_devices_;
  std::vector<MountLine> shared_mounts_;  // of files that others mount as well
  std::array<std::uint64_t, kNamespaces.size()> namespaces_{};
  std::uint64_t network_ = 0;
  sys::UniqueFd root_;
  std::map<std::pair<std::uint32_t, std::uint64_t>, ForeignFile> files_;
};

}  // namespace

Result<Scan> scan(const CheckpointPlan& plan) {
  if (plan.init <= 0 || plan.cgroup.empty())
    return make_error(Errc::invalid_argument, "no tree to look at");
  return Scanner(plan).run();
}

}  // namespace atl::snapshot
