#include "sys/mounts.h"

#include <fcntl.h>
#include <sys/syscall.h>

#include <cerrno>

namespace atl::sys {

Result<DetachedMount> DetachedMount::clone_tree(const UniqueFd& tree) {
  UniqueFd fd(::open_tree(tree.get(), "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH));
  if (!fd) return errno_error("open_tree");
  return DetachedMount(std::move(fd));
}

Result<void> DetachedMount::restrict_to(MountAttrs attrs) const {
  mount_attr attr{};
  attr.attr_set = attrs;
  if (::mount_setattr(fd_.get(), "", AT_EMPTY_PATH, &attr, sizeof(attr)) != 0)
    return errno_error("mount_setattr");
  return {};
}

Result<void> DetachedMount::idmap(const UniqueFd& user_namespace) const {
  mount_attr attr{};
  attr.attr_set = MOUNT_ATTR_IDMAP;
  attr.userns_fd = std::uint64_t(user_namespace.get());
  if (::mount_setattr(fd_.get(), "", AT_EMPTY_PATH, &attr, sizeof(attr)) != 0)
    return errno_error("idmap");
  return {};
}

Result<void> DetachedMount::attach(const UniqueFd& target) const {
  if (::move_mount(fd_.get(), "", target.get(), "",
                   MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) != 0) {
    return errno_error("move_mount");
  }
  return {};
}

Result<FsContext> FsContext::open(const std::string& type) {
  UniqueFd fd(::fsopen(type.c_str(), FSOPEN_CLOEXEC));
  if (!fd) return errno_error("fsopen " + type);
  return FsContext(std::move(fd), type);
}

Error FsContext::failure(std::string_view what) const {
  const int saved = errno;
  Error error = errno_error(what, saved);
  char line[256];
  // One message per read, "e text" for an error; ENODATA at the end.
  for (int i = 0; i < 8; ++i) {
    const ssize_t n = ::read(fd_.get(), line, sizeof(line));
    if (n <= 0) break;
    std::string_view text(line, std::size_t(n));
    while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
    if (text.starts_with("e ")) error.message += "; " + std::string(text.substr(2));
  }
  return std::move(error).with(type_);
}

Result<void> FsContext::set(const std::string& key, const std::string& value) {
  if (::fsconfig(fd_.get(), FSCONFIG_SET_STRING, key.c_str(), value.c_str(), 0) != 0)
    return failure("set " + key);
  return {};
}

Result<void> FsContext::set_flag(const std::string& key) {
  if (::fsconfig(fd_.get(), FSCONFIG_SET_FLAG, key.c_str(), nullptr, 0) != 0)
    return failure("set " + key);
  return {};
}

Result<void> FsContext::set_options(
    const std::vector<std::pair<std::string, std::string>>& options) {
  for (const auto& [key, value] : options) {
    ATOLL_TRY(value.empty() ? set_flag(key) : set(key, value));
  }
  return {};
}

Result<void> FsContext::set_fd(const std::string& key, const UniqueFd& fd) {
  if (::fsconfig(fd_.get(), FSCONFIG_SET_FD, key.c_str(), nullptr, fd.get()) != 0)
    return failure("set " + key);
  return {};
}

Result<DetachedMount> FsContext::mount(MountAttrs attrs) {
  if (::fsconfig(fd_.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0)
    return failure("create");
  UniqueFd fd(::fsmount(fd_.get(), FSMOUNT_CLOEXEC, unsigned(attrs)));
  if (!fd) return failure("fsmount");
  return DetachedMount(std::move(fd));
}

Result<void> make_all_private() {
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return errno_error("make mounts private");
  return {};
}

Result<void> change_root(const UniqueFd& new_root) {
  if (::fchdir(new_root.get()) != 0) return errno_error("fchdir");
  // With both arguments "." the old root ends up on top of the new one, and is dropped by the next
  // call: no directory for it is needed (pivot_root(2), NOTES).
  if (::syscall(SYS_pivot_root, ".", ".") != 0) return errno_error("pivot_root");
  if (::umount2(".", MNT_DETACH) != 0) return errno_error("detach the old root");
  if (::chdir("/") != 0) return errno_error("chdir /");
  return {};
}

Result<void> unmount_lazily(const DetachedMount& attached) {
  // Through procfs, because umount2 takes no descriptor; the link leads to the mount itself.
  const std::string path = "/proc/self/fd/" + std::to_string(attached.fd().get());
  if (::umount2(path.c_str(), MNT_DETACH) != 0) return errno_error("unmount");
  return {};
}

Result<void> unmount_lazily(const std::string& path) {
  if (::umount2(path.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) != 0)
    return errno_error("unmount " + path);
  return {};
}

}  // namespace atl::sys
