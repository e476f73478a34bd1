// A sandbox's disk: a sparse ext4 image on a loop device, which is what limits how much it can
// write.
//
// One empty image per size is made with mkfs.ext4 and kept; a new sandbox gets a sparse copy of it
// (0.1 MB of metadata). Binding a loop device and mounting wait for workers of the kernel, so a
// warden that is asked for many sandboxes keeps a few disks mounted in advance. A spare has no name
// until it is used: a warden that dies leaves none behind.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/jail/plan.h"
#include "sys/fd.h"
#include "sys/mounts.h"

namespace atl::jail {

// A disk that is being made or used. The image is locked (sys::try_lock) before it gets a loop
// device, which then holds the lock: as long as the filesystem is mounted anywhere, nobody else can
// take it.
struct Disk {
  sys::UniqueFd image;
  sys::DetachedMount mount;  // holds the directories `upper` and `work`, both root's
};

class Disks {
 public:
  // `dir` is a directory that only root can write, on the filesystem of the sandboxes.
  explicit Disks(sys::UniqueFd dir) : dir_(std::move(dir)) {}

  // A disk of that size: a spare, which is mounted already, or an image that is not mounted yet.
  Result<Disk> take(std::uint64_t bytes);
  // Makes a spare of the size asked for last, if that pays. False: nothing to do for now.
  bool refill(const MountDisk& how);

 private:
  // The empty image of that size, made now if there is none yet (takes some 50 ms once).
  Result<sys::UniqueFd> empty_image(std::uint64_t bytes);
  Result<Disk> copy(std::uint64_t bytes);

  struct Spare {
    std::uint64_t bytes;
    Disk disk;
  };
  sys::UniqueFd dir_;
  std::vector<Spare> spares_;
  std::uint64_t last_bytes_ = 0;
  std::size_t taken_ = 0;
  bool failing_ = false;  // the last attempt at a spare; tried again after the next take()
};

// An empty filesystem of that size in a file without a name on the filesystem of `dir`.
Result<sys::UniqueFd> make_image(const sys::UniqueFd& dir, std::uint64_t bytes);

// Mounts the image through a fresh loop device that goes away with the mount.
enum class Content { empty, kept };
Result<void> mount_disk(Disk& disk, const MountDisk& how, Content content);

// The image `name` below `dir`, locked, its filesystem whole. failed_precondition if it is mounted,
// not_found if there is none, data_loss if it cannot be repaired.
Result<Disk> open_kept(const sys::UniqueFd& dir, const std::string& name);
// True if the image is mounted nowhere, or does not exist.
Result<bool> is_unmounted(const sys::UniqueFd& dir, const std::string& name);

}  // namespace atl::jail
