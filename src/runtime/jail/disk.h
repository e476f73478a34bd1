// A sandbox's disk: a sparse ext4 image on a loop device, which is what limits how much it can
// write.
//
// One empty image per size is made with mkfs.ext4 and kept; a new sandbox gets a sparse copy of it
// (0.2 MB of metadata).
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "runtime/jail/plan.h"
#include "sys/fd.h"
#include "sys/mounts.h"

namespace atl::jail {

class DiskImages {
 public:
  // `dir` is a directory that only root can write.
  explicit DiskImages(sys::UniqueFd dir) : dir_(std::move(dir)) {}
  // The empty image of that size, made now if there is none yet (takes some 50 ms once).
  Result<sys::UniqueFd> of_size(std::uint64_t bytes);

 private:
  sys::UniqueFd dir_;
};

// Mounts an image through a fresh loop device that goes away with the mount.
Result<sys::DetachedMount> mount_image(const sys::UniqueFd& image, const Options& options,
                                       sys::MountAttrs attrs);

}  // namespace atl::jail
