#include "sys/namespaces.h"

#include <linux/magic.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>

#include "sys/files.h"

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
