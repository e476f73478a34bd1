#include "runtime/jail/disk.h"

#include <fcntl.h>

#include <cerrno>
#include <chrono>

#include "base/log.h"
#include "runtime/jail/ext4.h"
#include "sys/files.h"
#include "sys/loop.h"
#include "sys/process.h"

namespace atl::jail {
namespace {

constexpr std::chrono::seconds kMkfsDeadline{60};
constexpr std::chrono::seconds kRepairDeadline{10};
constexpr std::size_t kMaxSpares = 4;
// Names how images are formatted: another way, another suffix.
constexpr const char* kEmptySuffix = ".seed.img";

Result<std::string> find_tool(const std::string& name) {
  for (const char* dir : {"/usr/sbin/", "/sbin/"}) {
    if (sys::is_executable(dir + name)) return dir + name;
  }
  return make_error(Errc::failed_precondition, name + " is not installed");
}

// No journal: the disk of a sandbox does not survive a crash of the host. No resize inode and one
// flex group: the metadata of a fresh image is small and in one piece, so that a copy costs 0.1 ms
// instead of 1 ms. lazy_itable_init: tables in a sparse file are zero. metadata_csum_seed: a copy
// can get another UUID by a change of its superblock alone.
Result<void> format(const std::string& path) {
  sys::SpawnOptions options;
  ATOLL_TRY_ASSIGN(options.path, find_tool("mkfs.ext4"));
  options.argv = {"mkfs.ext4",
                  "-q",
                  "-F",
                  "-b",
                  "4096",
                  "-I",
                  "256",
                  "-i",
                  "16384",
                  "-m",
                  "0",
                  "-G",
                  "4096",
                  "-O",
                  "^has_journal,^resize_inode,sparse_super2,metadata_csum_seed",
                  "-E",
                  "lazy_itable_init=1,nodiscard",
                  path};
  options.env = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin"};
  ATOLL_TRY_ASSIGN(sys::Child child, sys::spawn(options));
  ATOLL_TRY_ASSIGN(std::optional<sys::ExitStatus> status, child.wait(kMkfsDeadline));
  if (!status) return make_error(Errc::deadline_exceeded, "mkfs.ext4 did not finish");
  if (!status->success()) return make_error(Errc::internal, "mkfs.ext4 failed");
  return {};
}

// The host went down while the disk was mounted.
Result<void> repair(const sys::UniqueFd& image) {
  sys::SpawnOptions options;
  ATOLL_TRY_ASSIGN(options.path, find_tool("e2fsck"));
  options.argv = {"e2fsck", "-f", "-y", sys::path_of(image)};
  options.env = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin"};
  ATOLL_TRY_ASSIGN(sys::Child child, sys::spawn(options));
  ATOLL_TRY_ASSIGN(std::optional<sys::ExitStatus> status, child.wait(kRepairDeadline));
  if (!status) return make_error(Errc::deadline_exceeded, "e2fsck did not finish");
  // 0: nothing to do, 1: repaired.
  if (status->kind != sys::ExitStatus::Kind::exited || status->value > 1)
    return make_error(Errc::data_loss, "the disk of this sandbox cannot be repaired");
  return {};
}

}  // namespace

Result<sys::UniqueFd> make_image(const sys::UniqueFd& dir, std::uint64_t bytes) {
  ATOLL_TRY_ASSIGN(sys::UniqueFd file, sys::open_beneath(dir, "", O_TMPFILE | O_RDWR, 0600));
  ATOLL_TRY(sys::set_size(file, bytes));
  ATOLL_TRY(format(sys::path_of(file)));
  ATOLL_TRY(sys::flush_to_disk(file));
  return file;
}

Result<sys::UniqueFd> Disks::empty_image(std::uint64_t bytes) {
  const std::string name = std::to_string(bytes) + kEmptySuffix;
  auto existing = sys::open_beneath(dir_, name, O_RDONLY);
  if (existing || existing.error().sys_errno != ENOENT) return existing;
  // Without a name until complete. Servers of one home may do the same at once: the first one's
  // stays.
  auto made = [&]() -> Result<sys::UniqueFd> {
    ATOLL_TRY_ASSIGN(sys::UniqueFd file, make_image(dir_, bytes));
    auto named = sys::link_as(file, dir_, name);
    if (!named && named.error().sys_errno != EEXIST) return std::move(named).error();
    return file;
  }();
  if (!made) return std::move(made).error().with("make disk image");
  return made;
}

Result<Disk> Disks::copy(std::uint64_t bytes) {
  ATOLL_TRY_ASSIGN(sys::UniqueFd empty, empty_image(bytes));
  Disk disk;
  ATOLL_TRY_ASSIGN(disk.image, sys::open_beneath(dir_, "", O_TMPFILE | O_RDWR, 0600));
  ATOLL_TRY(sys::copy_sparse(empty, disk.image));
  ATOLL_TRY(sys::try_lock(disk.image));  // without a name nobody else can hold it
  return disk;
}

Result<Disk> Disks::take(std::uint64_t bytes) {
  ++taken_;
  failing_ = false;
  last_bytes_ = bytes;
  for (std::size_t i = 0; i < spares_.size(); ++i) {
    if (spares_[i].bytes != bytes) continue;
    Disk disk = std::move(spares_[i].disk);
    spares_.erase(spares_.begin() + std::ptrdiff_t(i));
    return disk;
  }
  return copy(bytes);
}

bool Disks::refill(const MountDisk& how) {
  // A warden that makes one sandbox and ends needs no spares.
  if (failing_ || taken_ < 2) return false;
  std::erase_if(spares_, [this](const Spare& spare) { return spare.bytes != last_bytes_; });
  if (spares_.size() >= kMaxSpares) return false;
  auto made = [&]() -> Result<Disk> {
    ATOLL_TRY_ASSIGN(Disk disk, copy(last_bytes_));
    ATOLL_TRY(mount_disk(disk, how, Content::empty));
    return disk;
  }();
  if (!made) {
    log::warn("no spare disk", {{"error", made.error().message}});
    failing_ = true;
    return false;
  }
  spares_.push_back({last_bytes_, std::move(*made)});
  return true;
}

Result<Disk> open_kept(const sys::UniqueFd& dir, const std::string& name) {
  Disk disk;
  auto opened = sys::open_beneath(dir, name, O_RDWR);
  if (!opened && opened.error().sys_errno == ENOENT)
    return make_error(Errc::not_found, "this sandbox has no disk");
  if (!opened) return std::move(opened).error();
  disk.image = std::move(*opened);
  ATOLL_TRY_ASSIGN(bool free, sys::try_lock(disk.image));
  if (!free) return make_error(Errc::failed_precondition, "the disk is in use");
  ATOLL_TRY_ASSIGN(bool clean, is_clean(disk.image));
  if (!clean) {
    ATOLL_TRY(repair(disk.image));
  }
  return disk;
}

Result<bool> is_unmounted(const sys::UniqueFd& dir, const std::string& name) {
  auto image = sys::open_beneath(dir, name, O_RDONLY);
  if (!image && image.error().sys_errno == ENOENT) return true;
  if (!image) return std::move(image).error();
  return sys::try_lock(*image);
}

Result<void> mount_disk(Disk& disk, const MountDisk& how, Content content) {
  ATOLL_TRY_ASSIGN(sys::LoopDevice device, sys::LoopDevice::attach(disk.image));
  ATOLL_TRY_ASSIGN(sys::FsContext context, sys::FsContext::open("ext4"));
  ATOLL_TRY(context.set("source", device.path()));
  ATOLL_TRY(context.set_options(how.options));
  ATOLL_TRY_ASSIGN(disk.mount, context.mount(how.attrs));
  if (content == Content::kept) return {};
  for (const char* name : {"upper", "work"}) {
    ATOLL_TRY(sys::make_dir(disk.mount.fd(), name, 0755, sys::IfExists::fail));
  }
  return {};
}

}  // namespace atl::jail
