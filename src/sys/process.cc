#include "sys/process.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <linux/securebits.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "sys/self.h"

namespace atl::sys {
namespace {

constexpr int kPidfdIdType = 3;  // P_PIDFD, which <sys/wait.h> of some C libraries lacks

ExitStatus to_status(const siginfo_t& info) {
  if (info.si_code == CLD_EXITED) return {ExitStatus::Kind::exited, info.si_status};
  return {ExitStatus::Kind::signaled, info.si_status};
}

}  // namespace

Child& Child::operator=(Child&& other) noexcept {
  if (this != &other) {
    end();
    pid_ = std::exchange(other.pid_, 0);
    pidfd_ = std::move(other.pidfd_);
  }
  return *this;
}

Result<void> Child::signal(int number) const { return signal_pidfd(pidfd_, number); }

Result<std::optional<ExitStatus>> Child::wait(std::chrono::milliseconds at_most) {
  ATOLL_TRY_ASSIGN(bool ended, wait_readable(pidfd_, at_most));
  if (!ended) return std::optional<ExitStatus>();
  siginfo_t info{};
  if (::waitid(idtype_t(kPidfdIdType), id_t(pidfd_.get()), &info, WEXITED | WNOHANG) != 0)
    return errno_error("waitid");
  if (info.si_pid == 0) return std::optional<ExitStatus>();
  pid_ = 0;
  pidfd_.reset();
  return std::optional<ExitStatus>(to_status(info));
}

UniqueFd Child::release() {
  pid_ = 0;
  return std::move(pidfd_);
}

void Child::end() {
  if (pid_ <= 0) return;
  if (!signal(SIGKILL)) {
    // ESRCH: it is a zombie already, reaping follows.
  }
  siginfo_t info{};
  while (::waitid(idtype_t(kPidfdIdType), id_t(pidfd_.get()), &info, WEXITED) != 0 &&
         errno == EINTR) {
  }
  pid_ = 0;
  pidfd_.reset();
}

Result<void> signal_pidfd(const UniqueFd& pidfd, int number) {
  if (::syscall(SYS_pidfd_send_signal, pidfd.get(), number, nullptr, 0) != 0)
    return errno_error("pidfd_send_signal");
  return {};
}

Result<UniqueFd> open_pidfd(pid_t pid) {
  UniqueFd fd(int(::syscall(SYS_pidfd_open, pid, 0)));
  if (!fd) return errno_error("pidfd_open");
  return fd;
}

Result<bool> is_child(const UniqueFd& pidfd) {
  siginfo_t info{};
  if (::waitid(idtype_t(kPidfdIdType), id_t(pidfd.get()), &info, WEXITED | WNOHANG | WNOWAIT) == 0)
    return true;
  if (errno == ECHILD) return false;
  return errno_error("waitid");
}

bool has_ended(const UniqueFd& pidfd) {
  pollfd entry{pidfd.get(), POLLIN, 0};
  return ::poll(&entry, 1, 0) == 1;
}

Result<bool> wait_readable(const UniqueFd& fd, std::chrono::milliseconds at_most) {
  const auto deadline = std::chrono::steady_clock::now() + at_most;
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd entry{fd.get(), POLLIN, 0};
    const int n = ::poll(&entry, 1, left.count() > 0 ? int(left.count()) : 0);
    if (n > 0) return true;
    if (n == 0) return false;
    if (errno != EINTR) return errno_error("poll");
  }
}

namespace {

// The effective uid of this thread, and nothing else: capabilities and the uid of file accesses
// stay. Raw calls: the C library's would change every thread.
class BorrowedUid {
 public:
  static Result<BorrowedUid> take(uid_t uid) {
    const int bits = ::prctl(PR_GET_SECUREBITS);
    if (bits < 0 || ::prctl(PR_SET_SECUREBITS, unsigned(bits) | SECBIT_NO_SETUID_FIXUP) != 0)
      return errno_error("keep capabilities over a change of uid");
    if (::syscall(SYS_setresuid, -1, uid, -1) != 0) return errno_error("setresuid");
    BorrowedUid borrowed;
    ::syscall(SYS_setfsuid, ::getuid());
    if (::syscall(SYS_setfsuid, -1) != long(::getuid())) return errno_error("setfsuid");
    return borrowed;
  }
  BorrowedUid(BorrowedUid&& other) noexcept : mine_(std::exchange(other.mine_, false)) {}
  ~BorrowedUid() {
    if (mine_) give_back();
  }
  void keep() { mine_ = false; }

 private:
  BorrowedUid() = default;
  // A process that cannot return to its own uid must not go on.
  static void give_back() {
    if (::syscall(SYS_setresuid, -1, ::getuid(), -1) != 0) ::abort();
  }
  bool mine_ = true;
};

}  // namespace

Result<Cloned> clone_process(std::uint64_t flags, const UniqueFd* into_cgroup,
                             std::optional<uid_t> owner) {
  std::optional<BorrowedUid> borrowed;
  if (owner) {
    ATOLL_TRY_ASSIGN(BorrowedUid taken, BorrowedUid::take(*owner));
    borrowed.emplace(std::move(taken));
  }
  int pidfd = -1;
  clone_args args{};
  args.flags = flags | CLONE_PIDFD;
  args.pidfd = std::uint64_t(std::uintptr_t(&pidfd));
  args.exit_signal = SIGCHLD;
  if (into_cgroup != nullptr) {
    args.flags |= CLONE_INTO_CGROUP;
    args.cgroup = std::uint64_t(into_cgroup->get());
  }
  const long pid = ::syscall(SYS_clone3, &args, sizeof(args));
  if (pid < 0) return errno_error("clone3");
  if (pid == 0) {
    // In the new namespace the caller's uid has no name; the child takes the one it wants itself.
    if (borrowed) borrowed->keep();
    return Cloned{};
  }
  return Cloned{pid_t(pid), UniqueFd(pidfd)};
}

void kill_self() {
  ::kill(::getpid(), SIGKILL);
  for (;;) ::pause();
}

void exit_now(int code) { ::_exit(code); }

Result<Child> spawn(const SpawnOptions& options) {
  std::vector<char*> argv;
  for (const std::string& arg : options.argv) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> env;
  for (const std::string& entry : options.env) env.push_back(const_cast<char*>(entry.c_str()));
  env.push_back(nullptr);

  int report[2];
  if (::pipe2(report, O_CLOEXEC) != 0) return errno_error("pipe2");
  UniqueFd read_end(report[0]);
  UniqueFd write_end(report[1]);

  ATOLL_TRY_ASSIGN(Cloned cloned, clone_process(0, nullptr));
  if (cloned.pid == 0) {
    auto prepared = [&]() -> Result<void> {
      std::vector<std::pair<int, int>> fds = options.fds;
      const auto has = [&](int number) {
        for (const auto& [from, to] : fds) {
          if (to == number) return true;
        }
        return false;
      };
      ATOLL_TRY_ASSIGN(UniqueFd null, open_null());
      for (int number : {0, 1}) {
        if (!has(number)) fds.emplace_back(null.get(), number);
      }
      if (!has(2)) fds.emplace_back(2, 2);
      ATOLL_TRY(place_descriptors(fds));
      return reset_signals();
    }();
    int failed =
        prepared ? 0 : (prepared.error().sys_errno != 0 ? prepared.error().sys_errno : EIO);
    if (failed == 0) {
      ::execve(options.path.c_str(), argv.data(), env.data());
      failed = errno;
    }
    (void)!::write(write_end.get(), &failed,
                   sizeof(failed));  // the parent sees a closed pipe otherwise
    ::_exit(127);
  }

  Child child(cloned.pid, std::move(cloned.pidfd));
  write_end.reset();
  int failed = 0;
  ssize_t n = 0;
  while ((n = ::read(read_end.get(), &failed, sizeof(failed))) < 0 && errno == EINTR) {
  }
  if (n == ssize_t(sizeof(failed))) return errno_error("exec " + options.path, failed);
  return child;
}

}  // namespace atl::sys
