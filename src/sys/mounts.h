// Mounts by descriptor (fsopen, fsmount, open_tree, mount_setattr, move_mount).
//
// A mount is built detached, gets all its attributes, and is attached last: nobody sees it half
// restricted. A DetachedMount that is dropped before that vanishes.
#pragma once

#include <sys/mount.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "sys/fd.h"

namespace atl::sys {

// Bits of MOUNT_ATTR_*: MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV, MOUNT_ATTR_NOEXEC,
// ...
using MountAttrs = std::uint64_t;

class DetachedMount {
 public:
  DetachedMount() = default;
  // A private copy of the mount under `tree` (a directory or a file), starting there, without
  // mounts below it.
  static Result<DetachedMount> clone_tree(const UniqueFd& tree);

  // Adds attributes; never removes one.
  Result<void> restrict_to(MountAttrs attrs) const;
  // Shifts owners by the map of a user namespace. Preconditions: not attached yet, not idmapped
  // yet.
  Result<void> idmap(const UniqueFd& user_namespace) const;
  // Puts it over `target`, a directory or file of the caller's mount namespace. It stays there when
  // this object goes.
  Result<void> attach(const UniqueFd& target) const;

  // Its root; paths below it can be opened from here even while it is attached nowhere.
  const UniqueFd& fd() const { return fd_; }
  explicit operator bool() const { return bool(fd_); }
  explicit DetachedMount(UniqueFd fd) : fd_(std::move(fd)) {}

 private:
  UniqueFd fd_;
};

// A filesystem being configured.
class FsContext {
 public:
  static Result<FsContext> open(const std::string& type);
  Result<void> set(const std::string& key, const std::string& value);
  Result<void> set_flag(const std::string& key);
  // Pairs of key and value; an empty value is a flag.
  Result<void> set_options(const std::vector<std::pair<std::string, std::string>>& options);
  Result<void> set_fd(const std::string& key, const UniqueFd& fd);
  Result<DetachedMount> mount(MountAttrs attrs);

 private:
  explicit FsContext(UniqueFd fd, std::string type) : fd_(std::move(fd)), type_(std::move(type)) {}
  // The kernel says in words what it dislikes; errno alone is mostly EINVAL.
  Error failure(std::string_view what) const;
  UniqueFd fd_;
  std::string type_;
};

// Makes the whole tree of the caller's mount namespace private, so that no mount travels to or from
// elsewhere.
Result<void> make_all_private();
// Makes `new_root` (a mount of the caller's namespace) the root and drops the old one.
Result<void> change_root(const UniqueFd& new_root);
Result<void> unmount_lazily(const std::string& path);
// By its root, whatever is mounted over it.
Result<void> unmount_lazily(const DetachedMount& attached);

}  // namespace atl::sys
