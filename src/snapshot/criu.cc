#include "snapshot/criu.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <optional>
#include <thread>

#include "snapshot/workspace.h"
#include "sys/files.h"
#include "sys/self.h"

namespace atl::snapshot {
namespace {

constexpr std::chrono::milliseconds kLook{20};  // for cancel(), which may come before the poll
constexpr std::chrono::milliseconds kSoon{2};   // for what can be done meanwhile
constexpr std::chrono::seconds kStill{30};      // without a byte more
constexpr std::chrono::seconds kGiveUp{10};     // after it was told to
constexpr std::size_t kMaxComplaint = 300;
using Clock = std::chrono::steady_clock;
constexpr const char* kGhostLimit = "67108864";

std::atomic<bool> cancelled{false};
static_assert(std::atomic<bool>::is_always_lock_free);

// The same for both directions: what CRIU is to expect of connections, deleted files, locks.
void add_shared(std::vector<std::string>& arguments) {
  arguments.insert(arguments.end(), {"-v2", "--manage-cgroups=ignore", "--tcp-established",
                                     "--skip-in-flight", "--link-remap", "--file-locks",
                                     "--ghost-limit", kGhostLimit, "--empty-ns", "net"});
}

// Runs in the child; returns only on failure.
Error become_criu(Run& run) {
  auto prepared = [&]() -> Result<void> {
    ATOLL_TRY(sys::reset_signals());
    ::signal(SIGXFSZ, SIG_IGN);  // a write beyond RLIMIT_FSIZE fails and does not end it
    sys::set_file_mask(022);     // images are read by the sandbox's ids too
    for (const sys::UniqueFd& file : run.cgroup_entrances) {
      ATOLL_TRY(sys::write_value(file, "0"));
    }
    if (!run.cgroup_entrances.empty()) {
      ATOLL_TRY(sys::unshare(CLONE_NEWCGROUP));
    }
    ATOLL_TRY_ASSIGN(sys::UniqueFd null, sys::open_null());
    std::vector<std::pair<int, int>> fds = std::move(run.fds);
    fds.emplace_back(null.get(), 0);
    for (const int number : {1, 2})
      fds.emplace_back(run.output >= 0 ? run.output : null.get(), number);
    ATOLL_TRY(sys::place_descriptors(std::move(fds)));
    // Its number may be another file's by now; nothing of this function closes anything any more.
    null.release();
    return sys::new_session();
  }();
  if (!prepared) return std::move(prepared).error();
  return sys::exec(run.command.front(), run.command, run.env);
}

}  // namespace

void cancel() noexcept { cancelled.store(true, std::memory_order_relaxed); }
bool is_cancelled() { return cancelled.load(std::memory_order_relaxed); }
Result<void> check_cancelled() {
  if (is_cancelled()) return make_error(Errc::aborted, "cancelled");
  return {};
}

std::vector<std::string> dump_arguments(const DumpCommand& command) {
  std::vector<std::string> arguments = {"dump",
                                        "-t",
                                        std::to_string(command.init),
                                        "-D",
                                        command.images,
                                        "-o",
                                        kDumpLog,
                                        "--leave-running",
                                        "--network-lock",
                                        "skip",
                                        "--freeze-cgroup",
                                        command.cgroup};
  add_shared(arguments);
  for (const std::string& path : command.external_mounts)
    arguments.insert(arguments.end(), {"--external", fmt::format("mnt[{0}]:{0}", path)});
  for (const std::string& file : command.external_files)
    arguments.insert(arguments.end(), {"--external", file});
  return arguments;
}

std::vector<std::string> restore_arguments(const RestoreCommand& command) {
  std::vector<std::string> arguments = {
      "restore",    "-D",         command.images,    "-W",
      command.work, "-o",         kRestoreLog,       "--restore-detached",
      "--root",     command.root, "--action-script", command.hook};
  add_shared(arguments);
  for (const auto& [path, source] : command.mounts)
    arguments.insert(arguments.end(), {"--external", fmt::format("mnt[{}]:{}", path, source)});
  for (const auto& [fd, file] : command.inherited)
    arguments.insert(arguments.end(), {"--inherit-fd", fmt::format("fd[{}]:{}", fd, file)});
  return arguments;
}

std::vector<std::string> command_line(const std::string& prefix, const std::string& preload,
                                      std::vector<std::string> arguments) {
  std::vector<std::string> line = {prefix + "/usr/lib64/ld-linux-x86-64.so.2", "--library-path",
                                   prefix + "/usr/lib/x86_64-linux-gnu"};
  if (!preload.empty()) line.insert(line.end(), {"--preload", preload});
  line.push_back(prefix + "/usr/sbin/criu");
  std::move(arguments.begin(), arguments.end(), std::back_inserter(line));
  return line;
}

std::string first_complaint(std::string_view log) {
  // Hosts without CAP_SYS_RESOURCE: it goes on with the limit it has.
  constexpr std::string_view kHarmless = "Can't setup RLIMIT_NOFILE";
  while (!log.empty()) {
    const std::size_t end = log.find('\n');
    const std::string_view line = log.substr(0, end);
    log.remove_prefix(end == std::string_view::npos ? log.size() : end + 1);
    const std::size_t at = line.find("Error (");
    if (at == std::string_view::npos || line.find(kHarmless) != std::string_view::npos) continue;
    const std::size_t text = line.find("): ", at);
    std::string out(text == std::string_view::npos ? line.substr(at) : line.substr(text + 3));
    for (char& c : out) {
      if (c < 0x20 || c > 0x7e) c = '?';
    }
    if (out.size() > kMaxComplaint) out.resize(kMaxComplaint);
    return out;
  }
  return {};
}

bool tells_of_no_space(std::string_view log) {
  constexpr std::array<std::string_view, 2> kTexts = {"No space left on device",
                                                      "Disk quota exceeded"};
  return std::any_of(kTexts.begin(), kTexts.end(), [&](std::string_view text) {
    return log.find(text) != std::string_view::npos;
  });
}

Result<sys::UniqueFd> new_output() {
  sys::UniqueFd output(::memfd_create("criu", MFD_CLOEXEC));
  if (!output) return errno_error("memfd_create");
  return output;
}
std::string text_of_output(const sys::UniqueFd& output) {
  auto text = sys::read_at(output, 0, 64 << 10);
  return text ? std::move(*text) : std::string();
}

namespace {

class Watcher {
 public:
  explicit Watcher(const Watch* watch) : watch_(watch) {}

  // To be asked now and then. True: CRIU shall give up.
  bool is_stuck() {
    if (watch_ == nullptr) return false;
    const auto now = Clock::now();
    if (now - looked_ < std::chrono::seconds(1)) return stuck_;
    looked_ = now;
    const std::uint64_t size = watch_->size();
    if (size != size_) moved_ = now;
    size_ = size;
    if (now - moved_ > kStill) stuck_ = true;
    return stuck_;
  }
  // It was told to give up at `when`.
  void help(Clock::time_point when) {
    if (watch_ == nullptr || thawed_ || Clock::now() - when < kGiveUp) return;
    thawed_ = true;
    (void)set_frozen(false);
  }
  Result<void> end() const {
    if (!thawed_) return {};
    ATOLL_TRY(set_frozen(true));
    for (const auto limit = Clock::now() + kGiveUp; Clock::now() < limit;) {
      if (auto frozen = is_frozen(watch_->cgroup); frozen && *frozen) return {};
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return make_error(Errc::deadline_exceeded, "the sandbox cannot be frozen again");
  }
  bool stuck() const { return stuck_; }

 private:
  Result<void> set_frozen(bool frozen) const {
    const std::string v1 = watch_->cgroup + "/freezer.state";
    if (sys::presence_of(v1) == sys::Presence::present) {
      ATOLL_TRY_ASSIGN(sys::UniqueFd file, sys::open_trusted(v1, O_WRONLY));
      return sys::write_value(file, frozen ? "FROZEN" : "THAWED");
    }
    ATOLL_TRY_ASSIGN(sys::UniqueFd file,
                     sys::open_trusted(watch_->cgroup + "/cgroup.freeze", O_WRONLY));
    return sys::write_value(file, frozen ? "1" : "0");
  }

  const Watch* watch_;
  Clock::time_point looked_ = Clock::now();
  Clock::time_point moved_ = Clock::now();
  std::uint64_t size_ = 0;
  bool stuck_ = false;
  bool thawed_ = false;
};

Result<sys::ExitStatus> run_watched(Run run, OnCancel on_cancel, const Watch* watch, int poll_fd,
                                    const std::function<Result<void>()>& on_readable) {
  ATOLL_TRY(check_cancelled());
  ATOLL_TRY_ASSIGN(sys::Cloned cloned, sys::clone_process(0, nullptr));
  if (cloned.pid == 0) {
    const Error error = become_criu(run);
    sys::exit_now(127);
  }
  run.cgroup_entrances.clear();
  sys::Child child(cloned.pid, std::move(cloned.pidfd));
  Watcher watcher(watch);
  std::optional<Clock::time_point> told;
  for (;;) {
    std::array<pollfd, 2> entries = {{{child.pidfd().get(), POLLIN, 0}, {poll_fd, POLLIN, 0}}};
    const bool busy = watch != nullptr && !is_cancelled() && watch->meanwhile();
    const auto look = watch != nullptr && !is_cancelled() ? kSoon : kLook;
    const int ready = ::poll(entries.data(), poll_fd >= 0 ? 2 : 1,
                             busy                      ? 0
                             : is_cancelled() && !told ? 1
                                                       : int(look.count()));
    if (ready < 0 && errno != EINTR) return errno_error("poll");
    if ((is_cancelled() || watcher.is_stuck()) && !told) {
      if (on_cancel == OnCancel::kill) return make_error(Errc::aborted, "cancelled");
      // Refused for a moment while the preload library has borrowed the owner: then again.
      const rlimit nothing{0, 0};
      if (::prlimit(child.pid(), RLIMIT_FSIZE, &nothing, nullptr) == 0) told = Clock::now();
    }
    if (told) watcher.help(*told);
    if (ready > 0 && entries[1].revents != 0) {
      auto handled = on_readable();
      if (!handled) return std::move(handled).error();
    }
    if (ready > 0 && entries[0].revents != 0) {
      ATOLL_TRY_ASSIGN(std::optional<sys::ExitStatus> status,
                       child.wait(std::chrono::milliseconds(1000)));
      if (!status) return make_error(Errc::internal, "CRIU ended and cannot be waited for");
      ATOLL_TRY(watcher.end());
      if (watcher.stuck() && !is_cancelled())
        return make_error(Errc::failed_precondition, "criu: did not get on");
      return *status;
    }
  }
}

}  // namespace

Result<sys::ExitStatus> run_criu(Run run, OnCancel on_cancel, int poll_fd,
                                 const std::function<Result<void>()>& on_readable) {
  return run_watched(std::move(run), on_cancel, nullptr, poll_fd, on_readable);
}
Result<sys::ExitStatus> run_dump(Run run, const Watch& watch) {
  return run_watched(std::move(run), OnCancel::full_disk, &watch, -1, nullptr);
}

Result<bool> is_frozen(const std::string& cgroup) {
  auto v1 = sys::read_trusted(cgroup + "/freezer.state", 64);
  if (v1) return *v1 == "FROZEN\n";
  ATOLL_TRY_ASSIGN(std::string v2, sys::read_trusted(cgroup + "/cgroup.events", 4096));
  return ("\n" + v2).find("\nfrozen 1\n") != std::string::npos;
}

}  // namespace atl::snapshot
