#include "sys/namespaces.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>

#include "sys/files.h"
#include "sys/process.h"

namespace atl::sys {
namespace {

constexpr const char* name_of(int type) { return type == CLONE_NEWNET ? "net" : "mnt"; }

}  // namespace

Result<UniqueFd> own_namespace(const std::string& name) {
  return open_trusted("/proc/self/ns/" + name, O_RDONLY);
}

Result<InNamespace> InNamespace::enter(const UniqueFd& target, int type) {
  ATOLL_TRY_ASSIGN(UniqueFd home, own_namespace(name_of(type)));
  if (::setns(target.get(), type) != 0) return errno_error("setns");
  return InNamespace(std::move(home), type);
}

InNamespace::~InNamespace() {
  if (home_) ATOLL_CHECK(::setns(home_.get(), type_) == 0);
}

Result<UniqueFd> new_network_namespace() {
  ATOLL_TRY_ASSIGN(UniqueFd home, own_namespace("net"));
  if (::unshare(CLONE_NEWNET) != 0) return errno_error("unshare");
  auto made = own_namespace("net");
  ATOLL_CHECK(::setns(home.get(), CLONE_NEWNET) == 0);
  return made;
}

Result<UniqueFd> new_user_namespace(const IdMap& map, uid_t owner) {
  // Somebody must be in it while the maps are written; they can be written only from outside. It
  // keeps nothing open (locks are held by descriptors) and ends with its maker.
  const pid_t maker = ::getpid();
  ATOLL_TRY_ASSIGN(Cloned cloned, clone_process(CLONE_NEWUSER, nullptr, owner));
  if (cloned.pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::close_range(0, ~0U, 0);
    if (::getppid() != maker) ::_exit(0);
    for (;;) ::pause();
  }
  const Child holder(cloned.pid, std::move(cloned.pidfd));
  const std::string proc = "/proc/" + std::to_string(holder.pid());
  ATOLL_TRY_ASSIGN(UniqueFd dir, open_trusted(proc, O_PATH | O_DIRECTORY));
  const std::string text = std::to_string(map.inside) + " " + std::to_string(map.outside) + " " +
                           std::to_string(map.count) + "\n";
  ATOLL_TRY(write_beneath(dir, "uid_map", text));
  ATOLL_TRY(write_beneath(dir, "gid_map", text));
  return open_trusted(proc + "/ns/user", O_RDONLY);
}

Result<void> pin_namespace(const UniqueFd& target, const std::string& path) {
  {
    UniqueFd file(::open(path.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0400));
    if (!file) return errno_error(path);
  }
  const std::string source = "/proc/self/fd/" + std::to_string(target.get());
  if (::mount(source.c_str(), path.c_str(), nullptr, MS_BIND, nullptr) != 0)
    return errno_error("pin " + path);
  return {};
}

Result<UniqueFd> open_pinned(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return errno_error(path);
  struct statfs info{};
  if (::fstatfs(fd.get(), &info) != 0) return errno_error(path);
  if (info.f_type != NSFS_MAGIC) return make_error(Errc::not_found, path + " is no pin");
  return fd;
}

Result<void> unpin_namespace(const std::string& path) {
  // A second pin over the first can be left by a process that was killed.
  while (::umount2(path.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) == 0) {
  }
  if (errno != EINVAL && errno != ENOENT) return errno_error("unpin " + path);
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return errno_error("unlink " + path);
  return {};
}

}  // namespace atl::sys
