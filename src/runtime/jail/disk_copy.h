// Copies of sandboxes' disks, made while nothing runs in the sandbox.
//
// The filesystem is frozen for the copy (sys/freeze.h) if it is mounted. Blocks are shared where
// the host's filesystem can do that; else only what the image occupies is copied. The copy gets a
// UUID of its own: overlayfs tells the layers of one root by theirs.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "sys/fd.h"

namespace atl::jail {

struct DiskCopy {
  std::uint64_t bytes = 0;  // that the copy occupies
  std::chrono::microseconds still{0};
};

// The disk (kImageName) of the sandbox with the directory `from` becomes the file `name` of `to`,
// which is locked by nobody. Preconditions: the sandbox is frozen, or dead and settled, and stays
// so until this returns; single thread. Whatever happens, also to this process, the sandbox's
// filesystem is not left frozen. resource_exhausted: no space; nothing is left in `to` after an
// error. The source may run on when this returns, but the copy is not on the host's disk yet.
Result<DiskCopy> copy_disk(const sys::UniqueFd& from, const sys::UniqueFd& to,
                           const std::string& name);
// Waits until the copy `name` of `dir` is on the host's disk.
Result<void> flush_copy(const sys::UniqueFd& dir, const std::string& name);

// For a warden that finds a sandbox which somebody was copying: thaws its filesystem if it is
// frozen. Fine if it is not, or not mounted. Preconditions: the copier has ended.
Result<void> end_interrupted_copy(const sys::UniqueFd& sandbox);

// resource_exhausted unless the filesystem of `dir` has room for that much and a little more.
Result<void> check_space(const sys::UniqueFd& dir, std::uint64_t bytes);
// What the file `name` of `dir` occupies; 0 if there is none.
Result<std::uint64_t> occupied(const sys::UniqueFd& dir, const std::string& name);

}  // namespace atl::jail
