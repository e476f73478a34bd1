#include "sys/freeze.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/fs.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "base/log.h"

namespace atl::sys {
namespace {

constexpr std::chrono::seconds kGuardDeadline{10};

[[noreturn]] void stand_guard(int directory, int leash) {
  // Signals for the group or the terminal are not meant for it; SIGKILL is what it is there for.
  ::setsid();
  for (int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGPIPE}) ::signal(number, SIG_IGN);
  ::prctl(PR_SET_NAME, "atoll-thaw");
  if (::dup2(directory, 0) != 0 || ::dup2(leash, 1) != 1) ::_exit(1);
  ::close_range(2, ~0U, 0);
  char byte = 0;
  while (::read(1, &byte, 1) < 0 && errno == EINTR) {
  }
  // EINVAL: the one that froze it has thawed it.
  ::_exit(::ioctl(0, FITHAW, 0) == 0 || errno == EINVAL ? 0 : 1);
}

}  // namespace

Result<bool> thaw_filesystem(const UniqueFd& directory) {
  if (::ioctl(directory.get(), FITHAW, 0) == 0) return true;
  if (errno == EINVAL) return false;
  return errno_error("thaw a filesystem");
}

Result<FrozenFilesystem> FrozenFilesystem::freeze(const UniqueFd& directory) {
  UniqueFd own = duplicate(directory);
  if (!own) return errno_error("dup");
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error("pipe2");
  UniqueFd leash(ends[0]);
  UniqueFd held(ends[1]);
  ATOLL_TRY_ASSIGN(Cloned cloned, clone_process(0, nullptr));
  if (cloned.pid == 0) {
    held.reset();
    stand_guard(own.get(), leash.get());
  }
  Child guard(cloned.pid, std::move(cloned.pidfd));
  // Dropping the guard would kill it; from here on it is needed.
  if (::ioctl(own.get(), FIFREEZE, 0) != 0) {
    if (errno == EBUSY)
      return make_error(Errc::failed_precondition, "the filesystem is frozen already");
    return errno_error("freeze a filesystem");
  }
  return FrozenFilesystem(std::move(own), std::move(held), std::move(guard));
}

Result<void> FrozenFilesystem::thaw() {
  if (!directory_) return {};
  ATOLL_TRY(thaw_filesystem(directory_));
  directory_.reset();
  leash_.reset();
  ATOLL_TRY(guard_.wait(kGuardDeadline));
  return {};
}

FrozenFilesystem::~FrozenFilesystem() {
  auto thawed = thaw();
  if (thawed) return;
  log::error("a filesystem stays frozen", {{"error", thawed.error().message}});
  leash_.reset();
  if (guard_) guard_.release();  // it tries once more
}

}  // namespace atl::sys
