#include "runtime/jail/launch.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "runtime/jail/init.h"
#include "runtime/jail/memory_files.h"
#include "runtime/jail/stage.h"
#include "sys/datagram.h"
#include "sys/files.h"
#include "sys/namespaces.h"
#include "sys/self.h"

namespace atl::jail {
namespace {

using Clock = std::chrono::steady_clock;

void report_undo(const char* what, const Result<void>& result) {
  if (!result)
    log::error("undo of a launch failed", {{"what", what}, {"error", result.error().message}});
}

std::chrono::microseconds since(Clock::time_point begin) {
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
}

// Puts one entry into the upper layer. `lower` is the template's root, `base` the first id of the
// sandbox.
Result<void> add_upper_entry(const sys::UniqueFd& upper, const sys::UniqueFd& lower,
                             const UpperEntry& entry, uid_t base) {
  // Not through links: a template in which /etc is a link is refused, not followed.
  auto beneath = sys::open_beneath(lower, entry.path, O_PATH | O_NOFOLLOW);
  if (!beneath && beneath.error().sys_errno != ENOENT && beneath.error().sys_errno != ELOOP)
    return std::move(beneath).error();
  const bool missing = !beneath && beneath.error().sys_errno == ENOENT;
  if (entry.kind == UpperEntry::Kind::directory) {
    mode_t mode = entry.mode;
    uid_t owner = base;
    gid_t group = base;
    if (!missing) {
      if (!beneath)
        return make_error(Errc::failed_precondition,
                          "the template's /" + entry.path + " is a link");
      ATOLL_TRY_ASSIGN(struct stat info, sys::stat_of(*beneath));
      if (!S_ISDIR(info.st_mode)) {
        return make_error(Errc::failed_precondition,
                          "the template's /" + entry.path + " is not a directory");
      }
      mode = info.st_mode & 07777;
      if (info.st_uid < kIdsPerSandbox) owner = base + info.st_uid;
      if (info.st_gid < kIdsPerSandbox) group = base + info.st_gid;
    }
    ATOLL_TRY(sys::make_dir(upper, entry.path, mode, sys::IfExists::fail));
    return sys::change_owner(upper, entry.path, owner, group);
  }
  if (entry.kind == UpperEntry::Kind::file_if_missing && !missing) return {};
  return sys::create_file(upper, entry.path, entry.content, entry.mode, base);
}

}  // namespace

class Launch::Executor {
 public:
  explicit Executor(Launch& launch) : l_(launch), host_(launch.host_) {}

  Result<void> operator()(const MakeDirectory&) {
    ATOLL_TRY(sys::make_dir(host_.sandboxes, l_.spec_.id, 0700, sys::IfExists::fail));
    l_.rollback_.add([this_ = &l_] {
      report_undo("directory", sys::remove_tree(this_->host_.sandboxes, this_->spec_.id));
    });
    ATOLL_TRY_ASSIGN(l_.directory_,
                     sys::open_beneath(host_.sandboxes, l_.spec_.id, O_RDONLY | O_DIRECTORY));
    return {};
  }

  Result<void> operator()(const TakeRange&) {
    ATOLL_TRY_ASSIGN(l_.slot_, host_.ranges.take(l_.spec_.id));
    l_.rollback_.add(
        [this_ = &l_] { report_undo("range", this_->host_.ranges.give_back(this_->slot_)); });
    return {};
  }

  Result<void> operator()(const CopyImage& a) {
    ATOLL_TRY_ASSIGN(l_.disk_, host_.disks.take(a.bytes));
    return sys::link_as(l_.disk_.image, l_.directory_, kImageName);
  }

  Result<void> operator()(const OpenDirectory&) {
    auto opened = sys::open_beneath(host_.sandboxes, l_.spec_.id, O_RDONLY | O_DIRECTORY);
    if (!opened && opened.error().sys_errno == ENOENT)
      return make_error(Errc::not_found, "no sandbox " + l_.spec_.id);
    if (!opened) return std::move(opened).error();
    l_.directory_ = std::move(*opened);
    return {};
  }

  Result<void> operator()(const KeepRange& a) {
    ATOLL_TRY(host_.ranges.claim(a.slot, l_.spec_.id));
    l_.slot_ = a.slot;
    return {};
  }

  Result<void> operator()(const OpenImage&) {
    ATOLL_TRY_ASSIGN(l_.disk_, open_kept(l_.directory_, kImageName));
    return {};
  }

  Result<void> operator()(const MountDisk& a) {
    if (!l_.disk_.mount) {
      ATOLL_TRY(mount_disk(l_.disk_, a, l_.spec_.kept ? Content::kept : Content::empty));
    }
    l_.disk_.image.reset();
    return {};
  }

  Result<void> operator()(const FillUpper& a) {
    ATOLL_TRY(open_template(a.template_id));
    const uid_t base = Ranges::first_id(l_.slot_);
    for (const char* name : {"upper", "work"}) {
      ATOLL_TRY(sys::change_owner(l_.disk_.mount.fd(), name, base, base));
    }
    ATOLL_TRY_ASSIGN(sys::UniqueFd upper,
                     sys::open_beneath(l_.disk_.mount.fd(), "upper", O_RDONLY | O_DIRECTORY));
    for (const UpperEntry& entry : a.entries) {
      auto added = add_upper_entry(upper, l_.template_root_, entry, base);
      if (!added) return std::move(added).error().with("/" + entry.path);
    }
    return {};
  }

  Result<void> operator()(const MakeControlDir& a) {
    ATOLL_TRY_ASSIGN(sys::FsContext context, sys::FsContext::open("tmpfs"));
    ATOLL_TRY(context.set_options(a.options));
    ATOLL_TRY_ASSIGN(l_.control_,
                     context.mount(MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC));
    ATOLL_TRY_ASSIGN(const std::string boot_id, boot_id_for(a));
    ATOLL_TRY(sys::create_file(l_.control_.fd(), "boot_id", boot_id + "\n", 0444, 0));
    // The agent is mounted over this file; the directory hides directories of procfs.
    ATOLL_TRY(sys::create_file(l_.control_.fd(), kAgentName, "", 0444, 0));
    ATOLL_TRY(sys::make_dir(l_.control_.fd(), "empty", 0555, sys::IfExists::fail));
    ATOLL_TRY(sys::make_dir(l_.control_.fd(), kKernelsName, 0555, sys::IfExists::fail));
    ATOLL_TRY(host_.programs.note(l_.directory_, l_.programs_));
    ATOLL_TRY_ASSIGN(l_.control_dir_,
                     sys::open_beneath(l_.control_.fd(), "", O_PATH | O_DIRECTORY));
    if (!a.for_restore) return {};
    const uid_t base = Ranges::first_id(l_.slot_);
    return sys::change_owner(l_.control_.fd(), ".", base, base);
  }

  Result<void> operator()(const MakeCgroup& a) {
    ATOLL_TRY_ASSIGN(sys::Cgroup cgroup, host_.cgroups.create(l_.spec_.id));
    l_.cgroup_ = std::move(cgroup);
    l_.rollback_.add(
        [this_ = &l_] { report_undo("cgroup", this_->cgroup_->remove(std::chrono::seconds(5))); });
    for (const CgroupWrite& write : a.writes) {
      if (write.only_if_present && !l_.cgroup_->has_file(write.controller, write.file)) continue;
      ATOLL_TRY(l_.cgroup_->write(write.controller, write.file, write.value));
    }
    return {};
  }

  Result<void> operator()(const CloneInit& a) {
    ATOLL_TRY_ASSIGN(std::vector<sys::UniqueFd> entrances, l_.cgroup_->entrances());
    ATOLL_TRY_ASSIGN(auto ends, sys::seqpacket_pair());
    ATOLL_TRY_ASSIGN(
        sys::Cloned cloned,
        sys::clone_process(a.flags, a.into_cgroup ? l_.cgroup_->clone_target() : nullptr,
                           Ranges::first_id(l_.slot_)));
    if (cloned.pid == 0) {
      ends.first.reset();  // or the end of the warden would go unnoticed
      run_init({l_.plan_, host_.filters, host_.faults, std::move(ends.second), std::move(entrances),
                std::move(l_.control_), sandbox_address(l_.slot_)});
    }
    l_.init_ = sys::Child(cloned.pid, std::move(cloned.pidfd));
    l_.channel_ = std::move(ends.first);
    l_.control_ = sys::DetachedMount();
    l_.rollback_.add([this_ = &l_] { this_->end_process(); });
    return {};
  }

  Result<void> operator()(const MapIds& a) {
    const std::string proc = "/proc/" + std::to_string(l_.init_.pid());
    ATOLL_TRY_ASSIGN(sys::UniqueFd dir, sys::open_trusted(proc, O_PATH | O_DIRECTORY));
    const std::string map =
        "0 " + std::to_string(Ranges::first_id(l_.slot_)) + " " + std::to_string(a.count) + "\n";
    ATOLL_TRY(sys::write_beneath(dir, "uid_map", map));
    ATOLL_TRY(sys::write_beneath(dir, "gid_map", map));
    ATOLL_TRY_ASSIGN(l_.user_namespace_, sys::open_trusted(proc + "/ns/user", O_RDONLY));
    return {};
  }

  Result<void> operator()(const SetOomScore& a) {
    ATOLL_TRY_ASSIGN(sys::UniqueFd dir, sys::open_trusted("/proc/" + std::to_string(l_.init_.pid()),
                                                          O_PATH | O_DIRECTORY));
    return sys::write_beneath(dir, "oom_score_adj", std::to_string(a.score));
  }

  Result<void> operator()(const ApplyNetworkPolicy& a) {
    ATOLL_TRY(host_.network->apply(l_.slot_, a.policy, Network::Tenant::fresh));
    l_.rollback_.add(
        [this_ = &l_] { report_undo("network", this_->host_.network->disconnect(this_->slot_)); });
    return {};
  }

  Result<void> operator()(const ConnectNetwork&) {
    return host_.network->connect(l_.slot_, l_.init_.pid());
  }

  Result<void> operator()(const IdmapTemplate& a) {
    ATOLL_TRY(open_template(a.template_id));
    ATOLL_TRY_ASSIGN(l_.lower_, sys::DetachedMount::clone_tree(l_.template_root_));
    ATOLL_TRY(l_.lower_.restrict_to(MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV));
    return l_.lower_.idmap(l_.user_namespace_);
  }

  Result<void> operator()(const OpenSnapshotLayers&) {
    if (l_.spec_.kept) {
      ATOLL_TRY_ASSIGN(std::optional<Mark> mark, read_mark(l_.directory_));
      if (mark) l_.chain_ = mark->layers;
    } else {
      ATOLL_TRY_ASSIGN(l_.chain_, host_.snapshots.chain_of(l_.spec_.snapshot));
    }
    ATOLL_TRY_ASSIGN(l_.snapshot_layers_, host_.layers.open(host_.snapshots, l_.chain_, l_.slot_));
    return {};
  }

  Result<void> operator()(const InheritUpper&) {
    const uid_t base = Ranges::first_id(l_.slot_);
    ATOLL_TRY(sys::change_owner(l_.disk_.mount.fd(), "work", base, base));
    ATOLL_TRY_ASSIGN(sys::UniqueFd upper,
                     sys::open_beneath(l_.disk_.mount.fd(), "upper", O_RDONLY | O_DIRECTORY));
    return prepare_upper(upper, l_.snapshot_layers_.lowers.front().fd());
  }

  Result<void> operator()(const MountRoot& a) {
    ATOLL_TRY_ASSIGN(sys::FsContext context, sys::FsContext::open("overlay"));
    ATOLL_TRY(context.set_options(a.options));
    ATOLL_TRY(a.layers_by_fd ? add_layers_by_fd(context) : add_layers_by_stage(context));
    auto mounted = context.mount(a.attrs);
    clear_stage();
    // The overlay remembers which lower layer it was made over.
    if (!mounted && mounted.error().sys_errno == ESTALE && l_.spec_.kept)
      return make_error(Errc::failed_precondition,
                        "the template is another than the one this disk was made over");
    if (!mounted) return std::move(mounted).error();
    l_.root_ = std::move(*mounted);
    return {};
  }

  // Nothing runs inside, so nothing changes underway; links are not followed all the same.
  Result<void> operator()(const RestoreMountPoints& a) {
    const uid_t base = Ranges::first_id(l_.slot_);
    for (const std::string& path : a.paths) {
      const std::size_t slash = path.rfind('/');
      const std::string parent = slash == std::string::npos ? "" : path.substr(0, slash);
      const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
      auto restored = [&]() -> Result<void> {
        ATOLL_TRY_ASSIGN(sys::UniqueFd dir,
                         sys::open_beneath(l_.root_.fd(), parent, O_RDONLY | O_DIRECTORY));
        auto info = sys::stat_at(dir, name);
        if (info && S_ISDIR(info->st_mode)) return {};
        if (info) return make_error(Errc::failed_precondition, "not a directory");
        if (info.error().sys_errno != ENOENT) return std::move(info).error();
        ATOLL_TRY(sys::make_dir(dir, name, 0755, sys::IfExists::fail));
        return sys::change_owner(dir, name, base, base);
      }();
      if (!restored) return std::move(restored).error().with("/" + path);
    }
    return {};
  }

  Result<void> operator()(const RetireMemory&) {
    ATOLL_TRY_ASSIGN(bool there, has_memory(l_.directory_));
    return there ? use_memory(l_.directory_) : Result<void>();
  }
  Result<void> operator()(const OpenMemory&) { return l_.open_memory(); }
  Result<void> operator()(const MakeIdMap& a) {
    const uid_t base = Ranges::first_id(l_.slot_);
    ATOLL_TRY_ASSIGN(l_.user_namespace_, sys::new_user_namespace({0, base, a.count}, base));
    return {};
  }
  Result<void> operator()(const StartRestore&) { return l_.start_restore(); }

  Result<void> operator()(const HandOverRoot&) {
    const std::byte go[1] = {std::byte{1}};
    const int fd = l_.root_.fd().get();
    ATOLL_TRY(sys::send_datagram(l_.channel_, go, std::span(&fd, 1), sys::Wait::yes));
    l_.root_ = sys::DetachedMount();
    return {};
  }

  template <class Other>
  Result<void> operator()(const Other&) {
    return make_error(Errc::internal, "not a step of the warden");
  }

 private:
  // Processes that go on are still in the boot they began in.
  Result<std::string> boot_id_for(const MakeControlDir& a) {
    if (l_.spec_.memory == runtime::Memory::kept) {
      auto kept = sys::read_beneath(l_.directory_, kBootIdName, wire::kBootIdSize);
      if (kept && kept->size() == a.boot_id.size()) return kept;
    }
    ATOLL_TRY(sys::remove_file(l_.directory_, kBootIdName));
    ATOLL_TRY(sys::create_file(l_.directory_, kBootIdName, a.boot_id, 0600, 0));
    return a.boot_id;
  }

  Result<void> open_template(const std::string& id) {
    if (l_.template_root_) return {};
    auto opened = sys::open_beneath(host_.templates, id + "/rootfs", O_PATH | O_DIRECTORY);
    if (!opened && opened.error().sys_errno == ENOENT)
      return make_error(Errc::not_found, "no template " + id);
    if (!opened) return std::move(opened).error();
    l_.template_root_ = std::move(*opened);
    return {};
  }

  Result<void> add_layers_by_fd(sys::FsContext& context) {
    ATOLL_TRY_ASSIGN(sys::UniqueFd upper,
                     sys::open_beneath(l_.disk_.mount.fd(), "upper", O_PATH | O_DIRECTORY));
    ATOLL_TRY_ASSIGN(sys::UniqueFd work,
                     sys::open_beneath(l_.disk_.mount.fd(), "work", O_PATH | O_DIRECTORY));
    for (const sys::DetachedMount& lower : l_.snapshot_layers_.lowers) {
      ATOLL_TRY(context.set_fd("lowerdir+", lower.fd()));
    }
    ATOLL_TRY(context.set_fd("lowerdir+", l_.lower_.fd()));
    ATOLL_TRY(context.set_fd("upperdir", upper));
    return context.set_fd("workdir", work);
  }

  // Older kernels take layers by name only, and only from mounts of the caller's namespace. The
  // names are relative to the stage, so that mountinfo inside shows no path of the host.
  Result<void> add_layers_by_stage(sys::FsContext& context) {
    if (!l_.snapshot_layers_.lowers.empty())
      return make_error(Errc::failed_precondition, "this kernel takes no layers by descriptor");
    const std::string stage = kStage;
    ATOLL_TRY_ASSIGN(sys::UniqueFd lower,
                     sys::open_trusted(stage + "/" + kStageLower, O_PATH | O_DIRECTORY));
    ATOLL_TRY(l_.lower_.attach(lower));
    lower_staged_ = true;
    ATOLL_TRY_ASSIGN(sys::UniqueFd disk,
                     sys::open_trusted(stage + "/" + kStageDisk, O_PATH | O_DIRECTORY));
    ATOLL_TRY(l_.disk_.mount.attach(disk));
    disk_staged_ = true;
    ATOLL_TRY(sys::change_dir(stage));
    ATOLL_TRY(context.set("lowerdir", kStageLower));
    ATOLL_TRY(context.set("upperdir", std::string(kStageDisk) + "/upper"));
    return context.set("workdir", std::string(kStageDisk) + "/work");
  }

  void clear_stage() {
    const std::string stage = kStage;
    if (lower_staged_) report_undo("stage", sys::unmount_lazily(stage + "/" + kStageLower));
    if (disk_staged_) report_undo("stage", sys::unmount_lazily(stage + "/" + kStageDisk));
    if (lower_staged_ || disk_staged_) report_undo("stage", sys::change_dir("/"));
    lower_staged_ = disk_staged_ = false;
  }

  Launch& l_;
  LaunchHost& host_;
  bool lower_staged_ = false;
  bool disk_staged_ = false;
};

Launch::Launch(LaunchHost& host, LaunchSpec spec)
    : host_(host),
      spec_(std::move(spec)),
      plan_(make_launch_plan(spec_, host_.facts)),
      programs_(host_.programs.current()) {}

Launch::~Launch() {
  // Mounts go before the directory that holds the image, and the undoing needs members that are
  // still whole.
  root_ = sys::DetachedMount();
  lower_ = sys::DetachedMount();
  snapshot_layers_ = {};
  disk_ = Disk();
  rollback_.undo();
}

Result<void> Launch::begin() {
  Executor executor(*this);
  for (const Step& step : plan_) {
    if (step.actor != Actor::warden) continue;
    if (std::holds_alternative<AwaitExec>(step.action)) break;  // the rest is finish()
    if (worker_) break;                                         // advance_restore()
    const auto begin = Clock::now();
    Result<void> done = host_.faults.before(step.name);
    if (done) done = std::visit(executor, step.action);
    if (done) host_.faults.after(step.name);
    if (!done) {
      ATOLL_TRY(ask_process());
      failed_step_ = step.name;
      return done;
    }
    times_.emplace_back(step.name, since(begin));
  }
  handed_over_ = Clock::now();
  return {};
}

// A new process that fails takes along what the warden's steps work on: its namespaces, its
// entries in /proc, the channel. It says why before it ends, so that is known by now, and is the
// reason to give.
Result<void> Launch::ask_process() {
  if (!channel_) return {};
  ATOLL_TRY_ASSIGN(bool spoken, sys::wait_readable(channel_, std::chrono::milliseconds(0)));
  if (!spoken) return {};
  ATOLL_TRY(advance());
  return {};
}

// The peer's end with something unread in it is told once as ECONNRESET, before what it has sent.
Result<sys::Datagram> Launch::next_message() {
  for (int attempt = 0;; ++attempt) {
    auto message = sys::receive_datagram(channel_, sizeof(InitReport), 0, sys::Wait::yes);
    if (message || message.error().sys_errno != ECONNRESET || attempt > 0) return message;
  }
}

Result<bool> Launch::advance() {
  if (worker_) return advance_restore();
  ATOLL_TRY_ASSIGN(sys::Datagram message, next_message());
  if (message.bytes.empty()) {
    if (!reported_ || sys::has_ended(init_.pidfd())) {
      failed_step_ = "exec";
      return make_error(Errc::internal, "the new process ended before it ran the agent");
    }
    ATOLL_TRY(finish());
    return true;
  }
  if (message.bytes.size() != sizeof(InitReport))
    return make_error(Errc::internal, "the new process sent something else");
  InitReport report;
  std::memcpy(&report, message.bytes.data(), sizeof(report));
  if (report.failed == InitReport::die) die_now();
  if (report.failed != InitReport::good) {
    failed_step_ = wire::from_field(report.step);
    Error error{Errc(report.code), report.sys_errno, std::string(wire::from_field(report.message))};
    return error;
  }
  std::size_t index = 0;
  for (const Step& step : plan_) {
    if (step.actor != Actor::init || index >= report.step_count) continue;
    times_.emplace_back(step.name, std::chrono::microseconds(report.micros[index++]));
  }
  reported_ = true;
  return false;
}

Result<void> Launch::finish() {
  failed_step_ = "await_exec";
  ATOLL_TRY(host_.faults.before(failed_step_));
  auto good = check_socket();
  if (!good) {
    failed_step_ = "listen";
    return good;
  }
  host_.faults.after(failed_step_);
  times_.emplace_back(failed_step_, since(handed_over_));

  const auto begin = Clock::now();
  failed_step_ = "mark";
  ATOLL_TRY(host_.faults.before(failed_step_));
  ATOLL_TRY(mark());
  host_.faults.after(failed_step_);
  times_.emplace_back(failed_step_, since(begin));
  failed_step_.clear();
  return {};
}

Result<void> Launch::mark() {
  if (spec_.kept) return {};
  ATOLL_TRY(sys::create_file(directory_, kTemplateName, spec_.template_id, 0600, 0));
  return write_mark(directory_, {slot_, 0, chain_});
}

// Whatever made the socket other than planned, nobody inside may own it.
Result<void> Launch::check_socket() {
  ATOLL_TRY_ASSIGN(struct stat info, sys::stat_at(control_dir_, "agent.sock"));
  if (!S_ISSOCK(info.st_mode) || (info.st_mode & 07777) != 0660 || info.st_uid != 0 ||
      info.st_gid != spec_.server_gid) {
    return make_error(Errc::internal, "the agent's socket has the wrong owner or mode");
  }
  return {};
}

void Launch::end_process() { init_.end(); }

StartedSandbox Launch::take() {
  rollback_.commit();
  StartedSandbox started{slot_, std::move(init_), std::move(control_dir_), {}, {}};
  started.shared = std::move(snapshot_layers_.shared);
  for (sys::DetachedMount& lower : snapshot_layers_.lowers)
    started.layers.push_back(std::move(lower));
  started.layers.push_back(std::move(lower_));
  started.layers.push_back(std::move(disk_.mount));
  return started;
}

}  // namespace atl::jail
