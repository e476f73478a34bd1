// The superblock of an ext4 image that nobody has mounted, as far as disks and their copies need
// it.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "sys/fd.h"

namespace atl::jail {

using Uuid = std::array<std::uint8_t, 16>;

// Makes the copy of a filesystem one of its own: another UUID, which overlayfs tells layers by, and
// the state of one that was unmounted in good order. `image` is open for reading and writing.
// Preconditions: it was copied while nothing was written to it and everything had been written.
// data_loss: this is no ext4.
Result<void> make_distinct(const sys::UniqueFd& image, const Uuid& uuid);
// False: the host went down while it was mounted for writing, or the kernel met errors in it.
// data_loss: it is cut off.
Result<bool> is_clean(const sys::UniqueFd& image);
Result<Uuid> uuid_of(const sys::UniqueFd& image);

// Random, version 4.
Result<Uuid> new_uuid();

}  // namespace atl::jail
