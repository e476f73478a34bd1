#include "runtime/jail/disk_copy.h"

#include <fcntl.h>

#include <cerrno>
#include <optional>

#include "base/log.h"
#include "runtime/jail/disk.h"
#include "runtime/jail/ext4.h"
#include "runtime/jail/launch.h"
#include "sys/files.h"
#include "sys/freeze.h"
#include "sys/loop.h"
#include "sys/mounts.h"

namespace atl::jail {
namespace {

using Clock = std::chrono::steady_clock;

// In the sandbox's directory while its filesystem may be frozen.
constexpr const char* kCopyingName = "disk.copying";
// Marks, directories and what the host itself writes meanwhile.
constexpr std::uint64_t kSpareSpace = 16ull << 20;

// The root of the filesystem on a device that is in use; another mount of the same filesystem.
Result<sys::UniqueFd> root_of(const sys::LoopDevice& device) {
  ATOLL_TRY_ASSIGN(sys::FsContext context, sys::FsContext::open("ext4"));
  ATOLL_TRY(context.set("source", device.path()));
  ATOLL_TRY_ASSIGN(sys::DetachedMount mount, context.mount(MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC));
  return sys::open_beneath(mount.fd(), "", O_RDONLY | O_DIRECTORY);
}

Result<DiskCopy> copy_image(const sys::UniqueFd& image, const sys::UniqueFd& to,
                            const std::string& name) {
  ATOLL_TRY_ASSIGN(Uuid uuid, new_uuid());
  ATOLL_TRY_ASSIGN(sys::UniqueFd copy, sys::open_beneath(to, "", O_TMPFILE | O_RDWR, 0400));
  ATOLL_TRY(sys::copy_sparse(image, copy));
  ATOLL_TRY(make_distinct(copy, uuid));
  ATOLL_TRY(sys::link_as(copy, to, name));
  ATOLL_TRY_ASSIGN(struct stat info, sys::stat_of(copy));
  return DiskCopy{std::uint64_t(info.st_blocks) * 512, {}};
}

// The mark is made before the filesystem stands still and goes after it has moved on.
class CopyingMark {
 public:
  static Result<CopyingMark> set(const sys::UniqueFd& sandbox) {
    ATOLL_TRY(sys::remove_file(sandbox, kCopyingName));
    ATOLL_TRY(sys::publish_file(sandbox, kCopyingName, "", 0600));
    return CopyingMark(sandbox);
  }
  CopyingMark(CopyingMark&& other) noexcept : sandbox_(std::exchange(other.sandbox_, nullptr)) {}
  ~CopyingMark() {
    if (sandbox_ == nullptr) return;
    auto removed = sys::remove_file(*sandbox_, kCopyingName);
    if (!removed) log::error("mark of a copy", {{"error", removed.error().message}});
  }

 private:
  explicit CopyingMark(const sys::UniqueFd& sandbox) : sandbox_(&sandbox) {}
  const sys::UniqueFd* sandbox_;
};

}  // namespace

Result<DiskCopy> copy_disk(const sys::UniqueFd& from, const sys::UniqueFd& to,
                           const std::string& name) {
  const auto begin = Clock::now();
  ATOLL_TRY_ASSIGN(std::uint64_t bytes, occupied(from, kImageName));
  ATOLL_TRY(check_space(to, bytes));
  ATOLL_TRY_ASSIGN(sys::UniqueFd image, sys::open_beneath(from, kImageName, O_RDONLY));
  ATOLL_TRY_ASSIGN(std::optional<sys::LoopDevice> device, sys::LoopDevice::find(image));
  if (!device) {
    // At rest: locked, and repaired if need be, as for a boot.
    ATOLL_TRY_ASSIGN(Disk disk, open_kept(from, kImageName));
    ATOLL_TRY_ASSIGN(DiskCopy copy, copy_image(disk.image, to, name));
    copy.still = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
    return copy;
  }
  ATOLL_TRY_ASSIGN(CopyingMark mark, CopyingMark::set(from));
  ATOLL_TRY_ASSIGN(sys::UniqueFd root, root_of(*device));
  ATOLL_TRY_ASSIGN(sys::FrozenFilesystem frozen, sys::FrozenFilesystem::freeze(root));
  auto copy = copy_image(image, to, name);
  auto thawed = frozen.thaw();
  if (!copy) return copy;
  if (!thawed) {
    ATOLL_TRY(sys::remove_file(to, name));
    return std::move(thawed).error();
  }
  copy->still = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
  return copy;
}

Result<void> flush_copy(const sys::UniqueFd& dir, const std::string& name) {
  ATOLL_TRY_ASSIGN(sys::UniqueFd copy, sys::open_beneath(dir, name, O_RDONLY));
  return sys::flush_to_disk(copy);
}

Result<void> end_interrupted_copy(const sys::UniqueFd& sandbox) {
  auto mark = sys::stat_at(sandbox, kCopyingName);
  if (!mark && mark.error().sys_errno == ENOENT) return {};
  if (!mark) return std::move(mark).error();
  auto image = sys::open_beneath(sandbox, kImageName, O_RDONLY);
  if (!image && image.error().sys_errno != ENOENT) return std::move(image).error();
  if (image) {
    ATOLL_TRY_ASSIGN(std::optional<sys::LoopDevice> device, sys::LoopDevice::find(*image));
    if (device) {
      ATOLL_TRY_ASSIGN(sys::UniqueFd root, root_of(*device));
      ATOLL_TRY(sys::thaw_filesystem(root));
    }
  }
  return sys::remove_file(sandbox, kCopyingName);
}

Result<void> check_space(const sys::UniqueFd& dir, std::uint64_t bytes) {
  ATOLL_TRY_ASSIGN(const sys::Space space, sys::space_of(dir));
  if (space.total - space.used >= bytes + kSpareSpace) return {};
  return make_error(Errc::resource_exhausted,
                    "the host's disk has no room for " + std::to_string(bytes >> 20) + " MB more");
}

Result<std::uint64_t> occupied(const sys::UniqueFd& dir, const std::string& name) {
  auto info = sys::stat_at(dir, name);
  if (!info && info.error().sys_errno == ENOENT) return std::uint64_t(0);
  if (!info) return std::move(info).error();
  return std::uint64_t(info->st_blocks) * 512;
}

}  // namespace atl::jail
