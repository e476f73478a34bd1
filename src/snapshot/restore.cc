#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <optional>
#include <sstream>

#include "snapshot/checksum.h"
#include "snapshot/criu.h"
#include "snapshot/embed.h"
#include "snapshot/image.h"
#include "snapshot/manifest.h"
#include "snapshot/patch.h"
#include "snapshot/snapshot.h"
#include "snapshot/steps.h"
#include "snapshot/workspace.h"
#include "sys/files.h"
#include "sys/process.h"

namespace atl::snapshot {
namespace {

constexpr std::size_t kMaxLog = 16u << 20;
constexpr std::size_t kMaxMessage = 64;
constexpr int kFirstInherited = 10;
constexpr std::uint64_t kLargeImage = 1u << 20;
constexpr std::chrono::seconds kHookPatience{10};

Error damaged(std::string what) { return make_error(Errc::data_loss, std::move(what)); }

// A mount of what an open directory is, also if the descriptor came from another mount namespace
// that has it under the same name.
Result<sys::DetachedMount> mount_of_dir(const sys::UniqueFd& dir) {
  auto direct = sys::DetachedMount::clone_tree(dir);
  if (direct) return direct;
  std::string path(4096, '\0');
  const std::string link = "/proc/self/fd/" + std::to_string(dir.get());
  const ssize_t size = ::readlink(link.c_str(), path.data(), path.size());
  if (size <= 0) return std::move(direct).error();
  path.resize(std::size_t(size));
  ATOLL_TRY_ASSIGN(sys::UniqueFd again, sys::open_trusted(path, O_PATH | O_DIRECTORY));
  ATOLL_TRY_ASSIGN(struct stat mine, sys::stat_of(dir));
  ATOLL_TRY_ASSIGN(struct stat theirs, sys::stat_of(again));
  if (mine.st_dev != theirs.st_dev || mine.st_ino != theirs.st_ino)
    return make_error(Errc::internal, "the directory has another name here");
  return sys::DetachedMount::clone_tree(again);
}

// All processes stand still under CRIU, so none is missed; and with the signal pending none runs on
// when CRIU, which traces them, has gone.
void kill_tree(pid_t pid) {
  auto tasks = sys::open_trusted("/proc/" + std::to_string(pid) + "/task", O_RDONLY | O_DIRECTORY);
  auto threads = tasks ? sys::list_dir(*tasks) : Result<std::vector<std::string>>(tasks.error());
  for (const std::string& thread : threads ? *threads : std::vector<std::string>()) {
    auto children = sys::read_beneath(*tasks, thread + "/children");
    std::istringstream numbers(children ? *children : std::string());
    for (pid_t child = 0; numbers >> child;) kill_tree(child);
  }
  ::kill(pid, SIGKILL);
}

class Restore {
 public:
  explicit Restore(RestorePlan plan) : plan_(std::move(plan)) {}
  // The kernel does not remove a file on which something is mounted for the one who removes it.
  ~Restore() {
    if (!command_.images.empty()) (void)sys::unmount_lazily(command_.images);
  }

  Result<Restored> run() {
    ATOLL_TRY(check());
    steps_.done("check");
    ATOLL_TRY(prepare());
    steps_.done("prepare");
    ATOLL_TRY(run_restore());
    steps_.done("restore");
    return Restored{init_, std::move(pidfd_), steps_.take()};
  }

 private:
  // ---- before anything is made
  Result<void> check() {
    ATOLL_TRY_ASSIGN(manifest_, read_manifest(*plan_.directory));
    ATOLL_TRY_ASSIGN(Host here, this_host(plan_.tools));
    ATOLL_TRY(check_host(manifest_, here));
    ATOLL_TRY(check_facts(manifest_, plan_.facts));
    if (plan_.memory_limit != 0 && manifest_.memory_bytes + kRestoreMargin > plan_.memory_limit)
      return make_error(
          Errc::resource_exhausted,
          fmt::format("the dump needs {} MB of memory and the sandbox may have {} MB",
                      (manifest_.memory_bytes + kRestoreMargin) >> 20, plan_.memory_limit >> 20));
    auto images = sys::open_beneath(*plan_.directory, kImagesName, O_RDONLY | O_DIRECTORY);
    if (!images) return damaged("the dump has no images");
    images_ = std::move(*images);
    return check_images();
  }

  Result<void> check_images() {
    ATOLL_TRY_ASSIGN(std::vector<std::string> names, sys::list_dir(images_));
    if (names.size() != manifest_.images.size())
      return damaged("files of the dump are missing or new");
    for (const auto& [name, sum] : manifest_.images) {
      auto file = sys::open_beneath(images_, name, O_RDONLY | O_NOFOLLOW);
      if (!file) return damaged("a file of the dump is missing: " + name);
      ATOLL_TRY_ASSIGN(struct stat info, sys::stat_of(*file));
      if (!S_ISREG(info.st_mode) || std::uint64_t(info.st_size) != sum.size)
        return damaged("a file of the dump has another size: " + name);
      if (sum.size >= kLargeImage) {
        large_.emplace_back(std::move(*file), sum);
        continue;
      }
      ATOLL_TRY(check_sum(*file, sum));
    }
    return begin_large();
  }

  static Result<void> check_sum(const sys::UniqueFd& file, const FileSum& expected) {
    ATOLL_TRY_ASSIGN(FileSum sum, sum_of(file));
    if (sum != expected) return damaged("a file of the dump is corrupt");
    return {};
  }

  // Contents of memory are checked beside the restore: no process runs before they are known to be
  // good.
  Result<void> begin_large() {
    if (large_.empty()) return {};
    ATOLL_TRY_ASSIGN(sys::Cloned cloned, sys::clone_process(0, nullptr));
    if (cloned.pid == 0) {
      const bool good = std::all_of(large_.begin(), large_.end(), [](const auto& entry) {
        auto sum = sum_of_mapped(entry.first, entry.second.size);
        return sum && *sum == entry.second;
      });
      sys::exit_now(good ? 0 : 1);
    }
    checker_ = sys::Child(cloned.pid, std::move(cloned.pidfd));
    return {};
  }
  Result<void> end_large() {
    while (checker_) {
      ATOLL_TRY_ASSIGN(std::optional<sys::ExitStatus> status,
                       checker_.wait(std::chrono::milliseconds(50)));
      ATOLL_TRY(check_cancelled());
      if (!status) continue;
      if (!status->success()) return damaged("the contents of memory in the dump are corrupt");
      break;
    }
    return {};
  }

  // ---- the workspace
  Result<void> prepare() {
    ATOLL_TRY_ASSIGN(sys::DetachedMount images, mount_of_dir(images_));
    constexpr sys::MountAttrs kClosed =
        MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
    ATOLL_TRY(images.restrict_to(kClosed));
    if (!manifest_.kept_files.empty()) {
      ATOLL_TRY(open_kept_files());
    }
    ATOLL_TRY_ASSIGN(Workspace made, Workspace::make());
    space_.emplace(std::move(made));
    ATOLL_TRY_ASSIGN(command_.images, space_->attach("images", images));
    ATOLL_TRY(patch_identity());
    ATOLL_TRY_ASSIGN(command_.work, space_->add_dir("work", 0700));
    ATOLL_TRY_ASSIGN(command_.root, space_->attach("root", plan_.root));
    ATOLL_TRY_ASSIGN(command_.hook, space_->add_file("hook", helper_program(), 0755));
    ATOLL_TRY(attach_externals());
    return listen();
  }

  // Of the template as its root, so that their paths inside are those of the template.
  Result<void> open_kept_files() {
    if (plan_.template_root == nullptr)
      return make_error(Errc::failed_precondition, "the dump needs files of its template");
    ATOLL_TRY_ASSIGN(template_, mount_of_dir(*plan_.template_root));
    ATOLL_TRY(template_.restrict_to(MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV));
    for (const KeptFile& kept : manifest_.kept_files) {
      if (!kept.path.starts_with('/')) return damaged("a file of the template has no path");
      auto file = sys::open_beneath(template_.fd(), kept.path.substr(1), O_RDONLY | O_NOFOLLOW);
      if (!file)
        return make_error(Errc::failed_precondition,
                          "the template has no " + kept.path + " any more");
      ATOLL_TRY_ASSIGN(struct stat info, sys::stat_of(*file));
      if (!S_ISREG(info.st_mode) || std::uint64_t(info.st_size) != kept.size)
        return make_error(Errc::failed_precondition, "the template has another " + kept.path);
      const int number = kFirstInherited + int(inherited_.size());
      command_.inherited.emplace_back(number, kept.key);
      inherited_.push_back(std::move(*file));
    }
    return {};
  }

  // New ids and host name: patched copies lie over the two images.
  Result<void> patch_identity() {
    ATOLL_TRY(cover("userns-", [&](std::string_view image) {
      return patch_ids(image, plan_.first_id, manifest_.id_count);
    }));
    return cover("utsns-",
                 [&](std::string_view image) { return patch_host_name(image, plan_.hostname); });
  }

  template <class Patch>
  Result<void> cover(std::string_view prefix, Patch patch) {
    std::string name;
    for (const auto& [candidate, sum] : manifest_.images) {
      if (!candidate.starts_with(prefix)) continue;
      if (!name.empty()) return damaged("two images of one kind");
      name = candidate;
    }
    if (name.empty()) return damaged("an image is missing");
    ATOLL_TRY_ASSIGN(std::string image, sys::read_beneath(images_, name, kMaxImageBytes));
    ATOLL_TRY_ASSIGN(std::string patched, patch(image));
    ATOLL_TRY(space_->add_file(name, patched, 0644));
    ATOLL_TRY_ASSIGN(sys::UniqueFd source, sys::open_beneath(space_->dir(), name, O_PATH));
    ATOLL_TRY_ASSIGN(sys::DetachedMount copy, sys::DetachedMount::clone_tree(source));
    ATOLL_TRY_ASSIGN(sys::UniqueFd target,
                     sys::open_beneath(space_->dir(), "images/" + name, O_PATH));
    return copy.attach(target);
  }

  Result<void> attach_externals() {
    std::map<std::string, std::string> sources;
    int number = 0;
    for (const External& external : plan_.externals) {
      ATOLL_TRY_ASSIGN(sources[external.path],
                       space_->attach("mount-" + std::to_string(number++), external.mount));
    }
    for (const Part& part : plan_.parts) {
      const auto of = sources.find(part.of);
      if (of == sources.end()) return make_error(Errc::invalid_argument, "a part of no mount");
      std::string source = of->second;
      if (!part.name.empty()) source += "/" + part.name;
      sources[part.path] = std::move(source);
    }
    for (const std::string& path : manifest_.mounts) {
      const auto source = sources.find(path);
      if (source == sources.end())
        return make_error(Errc::failed_precondition,
                          "the dump has a mount at " + path + " that is not given");
      command_.mounts.emplace_back(path, source->second);
    }
    return {};
  }

  Result<void> listen() {
    socket_path_ = Workspace::path("hook.sock");
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, socket_path_.c_str(), sizeof(address.sun_path) - 1);
    listener_ = sys::UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (!listener_) return errno_error("socket");
    const mode_t old = ::umask(077);
    const int bound =
        ::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
    ::umask(old);
    if (bound != 0) return errno_error("bind");
    if (::listen(listener_.get(), 4) != 0) return errno_error("listen");
    return {};
  }

  // ---- CRIU
  Result<void> run_restore() {
    Run run;
    run.command = command_line(plan_.tools.prefix, preload_path(), restore_arguments(command_));
    run.env = {program_path(), fmt::format("ATOLL_OWNER={}", plan_.first_id),
               "ATOLL_HOOK=" + socket_path_};
    run.cgroup_entrances = std::move(plan_.cgroup_entrances);
    for (std::size_t i = 0; i < inherited_.size(); ++i)
      run.fds.emplace_back(inherited_[i].get(), kFirstInherited + int(i));
    ATOLL_TRY_ASSIGN(output_, new_output());
    run.output = output_.get();
    auto status =
        run_criu(std::move(run), OnCancel::kill, listener_.get(), [this] { return answer_hook(); });
    if (!status) return std::move(status).error();
    if (stage_error_) return std::move(*stage_error_);
    if (!status->success()) return failure(*status);
    if (!pidfd_) return make_error(Errc::internal, "CRIU did not say what it restored");
    if (sys::has_ended(pidfd_))
      return make_error(Errc::internal, "the restored processes ended at once");
    // CRIU goes on if it cannot start its last script. Late is better than never.
    if (!resuming_) {
      ATOLL_TRY(resume());
    }
    space_->keep_knowledge();
    return {};
  }

  Error failure(const sys::ExitStatus& status) const {
    auto log = sys::read_beneath(space_->dir(), std::string("work/") + kRestoreLog, kMaxLog);
    std::string complaint = first_complaint((log ? *log : "") + text_of_output(output_));
    if (complaint.empty()) complaint = fmt::format("CRIU ended with {}", status.value);
    return make_error(Errc::internal, "criu: " + complaint);
  }

  // CRIU waits in its action script. What fails here makes the script fail, and CRIU cleans up; but
  // for the last script, whose outcome is all the same to it: there the processes and CRIU are
  // ended.
  Result<void> answer_hook() {
    sys::UniqueFd peer(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!peer) return errno_error("accept");
    ATOLL_TRY_ASSIGN(bool readable, sys::wait_readable(peer, kHookPatience));
    if (!readable) return make_error(Errc::deadline_exceeded, "the action script is silent");
    char message[kMaxMessage];
    const ssize_t size = ::recv(peer.get(), message, sizeof(message), 0);
    if (size <= 0) return errno_error("recv");
    auto handled = handle_stage({message, std::size_t(size)});
    if (!handled && last_) {
      kill_tree(init_);
      return handled;
    }
    if (!handled && !stage_error_) stage_error_ = std::move(handled).error();
    const char answer = stage_error_ ? 'n' : 'y';
    if (::send(peer.get(), &answer, 1, MSG_NOSIGNAL) != 1) return errno_error("send");
    return {};
  }

  Result<void> handle_stage(std::string_view message) {
    const std::size_t space = message.find(' ');
    pid_t pid = 0;
    if (space == std::string_view::npos ||
        std::from_chars(message.data() + space + 1, message.data() + message.size(), pid).ec !=
            std::errc() ||
        pid <= 0)
      return make_error(Errc::internal, "the action script says something else");
    const std::string_view action = message.substr(0, space);
    if (action == "setup-namespaces") {
      init_ = pid;
      return call(Stage::namespaces);
    }
    if (pid != init_) return make_error(Errc::internal, "the action script says something else");
    if (action == "post-restore") {
      ATOLL_TRY_ASSIGN(pidfd_, sys::open_pidfd(pid));
      ATOLL_TRY(end_large());
      return call(Stage::restored);
    }
    if (action != "pre-resume" || !pidfd_)
      return make_error(Errc::internal, "the action script says something else");
    last_ = true;
    return resume();
  }

  Result<void> resume() {
    ATOLL_TRY(call(Stage::resuming));
    resuming_ = true;
    return {};
  }

  Result<void> call(Stage stage) {
    ATOLL_TRY(check_cancelled());
    if (!plan_.on_stage) return {};
    return plan_.on_stage(stage, init_);
  }

  RestorePlan plan_;
  Manifest manifest_;
  sys::UniqueFd images_;
  std::vector<std::pair<sys::UniqueFd, FileSum>> large_;
  sys::Child checker_;
  sys::DetachedMount template_;
  std::vector<sys::UniqueFd> inherited_;
  std::optional<Workspace> space_;
  RestoreCommand command_;
  std::string socket_path_;
  sys::UniqueFd listener_;
  sys::UniqueFd output_;
  std::optional<Error> stage_error_;
  bool last_ = false;      // CRIU is in its last script
  bool resuming_ = false;  // and it went well
  pid_t init_ = 0;
  sys::UniqueFd pidfd_;
  Steps steps_;
};

}  // namespace

Result<Restored> restore(RestorePlan plan) {
  if (plan.directory == nullptr || !plan.root)
    return make_error(Errc::invalid_argument, "no directory or no root");
  return Restore(std::move(plan)).run();
}

}  // namespace atl::snapshot
