// A filesystem that stands still: everything written is on its device, and whoever writes waits.
//
// The kernel keeps it so until it is told otherwise, whatever becomes of who asked. So a guard, a
// process of its own, thaws it as soon as the one that froze it has gone.
#pragma once

#include "base/result.h"
#include "sys/fd.h"
#include "sys/process.h"

namespace atl::sys {

class FrozenFilesystem {
 public:
  // `directory` is any directory of it, open for reading. failed_precondition: it is frozen
  // already. Preconditions: the process has one thread.
  static Result<FrozenFilesystem> freeze(const UniqueFd& directory);
  FrozenFilesystem(FrozenFilesystem&&) noexcept = default;
  FrozenFilesystem& operator=(FrozenFilesystem&&) = delete;
  ~FrozenFilesystem();

  Result<void> thaw();

 private:
  FrozenFilesystem(UniqueFd directory, UniqueFd leash, Child guard)
      : directory_(std::move(directory)), leash_(std::move(leash)), guard_(std::move(guard)) {}
  UniqueFd directory_;  // empty: thawed
  UniqueFd leash_;      // its end is what the guard waits for
  Child guard_;
};

// False: it was not frozen.
Result<bool> thaw_filesystem(const UniqueFd& directory);

}  // namespace atl::sys
