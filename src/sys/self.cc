#include "sys/self.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/keyctl.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>

namespace atl::sys {

Result<UniqueFd> open_null() {
  UniqueFd fd(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!fd) return errno_error("open /dev/null");
  return fd;
}

Result<UniqueFd> moved_above(UniqueFd fd, int limit) {
  if (fd.get() > limit) return fd;
  UniqueFd moved(::fcntl(fd.get(), F_DUPFD_CLOEXEC, limit + 1));
  if (!moved) return errno_error("dup");
  return moved;
}

Result<void> place_descriptors(std::vector<std::pair<int, int>> fds) {
  int highest = -1;
  for (const auto& [from, to] : fds) highest = std::max(highest, to);
  // First move every source out of the way of every target.
  for (auto& [from, to] : fds) {
    from = ::fcntl(from, F_DUPFD_CLOEXEC, highest + 1);
    if (from < 0) return errno_error("dup");
  }
  std::vector<bool> used(std::size_t(highest + 1), false);
  for (const auto& [from, to] : fds) {
    if (::dup2(from, to) < 0) return errno_error("dup2");
    used[std::size_t(to)] = true;
  }
  for (int fd = 0; fd <= highest; ++fd) {
    if (!used[std::size_t(fd)]) ::close(fd);
  }
  if (::syscall(SYS_close_range, unsigned(highest + 1), ~0U, 1U << 2 /* CLOSE_RANGE_CLOEXEC */) !=
      0) {
    return errno_error("close_range");
  }
  return {};
}

Result<void> close_all_except(std::vector<int> keep) {
  std::sort(keep.begin(), keep.end());
  unsigned next = 0;
  const auto close_until = [&](unsigned end) {
    return end <= next || ::syscall(SYS_close_range, next, end - 1, 0U) == 0;
  };
  for (int fd : keep) {
    if (!close_until(unsigned(fd))) return errno_error("close_range");
    next = std::max(next, unsigned(fd) + 1);
  }
  if (::syscall(SYS_close_range, next, ~0U, 0U) != 0) return errno_error("close_range");
  return {};
}

Result<void> adopt_orphans() {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return errno_error("prctl PR_SET_CHILD_SUBREAPER");
  return {};
}

namespace {

Result<void> change_mask(int how, int number) {
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, number);
  if (::sigprocmask(how, &one, nullptr) != 0) return errno_error("sigprocmask");
  return {};
}

}  // namespace

Result<BlockedSignal> BlockedSignal::block(int number) {
  ATOLL_TRY(change_mask(SIG_BLOCK, number));
  return BlockedSignal(number);
}

BlockedSignal::~BlockedSignal() {
  if (number_ != 0) (void)unblock_signal(number_);  // fails for no signal that could be blocked
}

Result<void> unblock_signal(int number) { return change_mask(SIG_UNBLOCK, number); }

Result<void> reset_signals() {
  for (int number = 1; number < NSIG; ++number) {
    if (number == SIGKILL || number == SIGSTOP) continue;
    ::signal(number, SIG_DFL);  // NOLINT: fails only for numbers the C library keeps for itself
  }
  sigset_t none;
  sigemptyset(&none);
  if (::sigprocmask(SIG_SETMASK, &none, nullptr) != 0) return errno_error("sigprocmask");
  return {};
}

Result<void> set_parent_death(WithParent what) {
  if (::prctl(PR_SET_PDEATHSIG, what == WithParent::die ? SIGKILL : 0) != 0)
    return errno_error("prctl PR_SET_PDEATHSIG");
  return {};
}

Result<void> unshare(int flags) {
  if (::unshare(flags) != 0) return errno_error("unshare");
  return {};
}

Result<void> new_session() {
  if (::setsid() < 0) return errno_error("setsid");
  return {};
}

Result<void> set_hostname(const std::string& name) {
  if (::sethostname(name.data(), name.size()) != 0) return errno_error("sethostname");
  return {};
}

Result<void> new_session_keyring() {
  if (::syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr) < 0 && errno != ENOSYS) {
    return errno_error("new session keyring");
  }
  return {};
}

Result<void> become_namespace_root() {
  if (::setgroups(0, nullptr) != 0) return errno_error("setgroups");
  if (::setresgid(0, 0, 0) != 0) return errno_error("setresgid");
  if (::setresuid(0, 0, 0) != 0) return errno_error("setresuid");
  return {};
}

Result<void> limit_capabilities(std::uint64_t keep) {
  if (::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0)
    return errno_error("clear ambient capabilities");
  // The kernel says with EINVAL where its capabilities end.
  for (unsigned capability = 0; capability < 64; ++capability) {
    const int known = ::prctl(PR_CAPBSET_READ, capability, 0, 0, 0);
    if (known < 0) break;
    if ((keep >> capability & 1) != 0 || known == 0) continue;
    if (::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0)
      return errno_error("drop a bounding capability");
  }
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (::syscall(SYS_capget, &header, data) != 0) return errno_error("capget");
  data[0].inheritable = 0;
  data[1].inheritable = 0;
  if (::syscall(SYS_capset, &header, data) != 0) return errno_error("capset");
  return {};
}

Result<void> limit_resource(int resource, std::uint64_t soft, std::uint64_t hard) {
  rlimit now{};
  if (::getrlimit(__rlimit_resource(resource), &now) != 0) return errno_error("getrlimit");
  rlimit wanted{};
  wanted.rlim_max = std::min<rlim_t>(hard, now.rlim_max);
  wanted.rlim_cur = std::min<rlim_t>(soft, wanted.rlim_max);
  if (::setrlimit(__rlimit_resource(resource), &wanted) != 0) return errno_error("setrlimit");
  return {};
}

void set_file_mask(mode_t mask) { ::umask(mask); }

void raise_open_files() {
  rlimit now{};
  if (::getrlimit(RLIMIT_NOFILE, &now) != 0) return;
  now.rlim_cur = now.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &now);  // stays as it was otherwise
}

Result<void> install_filter(std::span<const sock_filter> program) {
  sock_fprog description{};
  description.len = static_cast<unsigned short>(program.size());
  description.filter = const_cast<sock_filter*>(program.data());
  if (::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &description) != 0)
    return errno_error("seccomp");
  return {};
}

Result<void> change_dir(const std::string& path) {
  if (::chdir(path.c_str()) != 0) return errno_error("chdir " + path);
  return {};
}

Error exec(const std::string& path, const std::vector<std::string>& argv,
           const std::vector<std::string>& env) {
  std::vector<char*> arguments;
  for (const std::string& arg : argv) arguments.push_back(const_cast<char*>(arg.c_str()));
  arguments.push_back(nullptr);
  std::vector<char*> environment;
  for (const std::string& entry : env) environment.push_back(const_cast<char*>(entry.c_str()));
  environment.push_back(nullptr);
  ::execve(path.c_str(), arguments.data(), environment.data());
  return errno_error("exec " + path);
}

}  // namespace atl::sys
