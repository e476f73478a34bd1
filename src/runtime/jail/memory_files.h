// The memory of a sandbox as files in its directory, and how they come and go.
//
//   memory.new/   being written
//   memory/       whole: the sandbox is dumped, whatever may still run of it
//   memory.used/  a restore has begun to run from it; never used again
//   memory.lock   whoever dumps holds it (flock), also if its warden is gone; names its process
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>

#include "base/result.h"
#include "runtime/jail/snapshot_store.h"
#include "sys/fd.h"

namespace atl::jail {

inline constexpr const char* kNewMemoryName = "memory.new";
inline constexpr const char* kUsedMemoryName = "memory.used";

// Facts of an image: the sandbox or snapshot that it belongs to, and what its disk lies over.
inline constexpr const char* kOwnerFact = "of";
inline constexpr const char* kLayersFact = "layers";
std::string layers_fact(const std::vector<LayerRef>& layers);

// `directory` is the sandbox's, in all of these.

Result<bool> has_memory(const sys::UniqueFd& directory);
// An empty memory.new, whatever was there before; open.
Result<sys::UniqueFd> make_new_memory(const sys::UniqueFd& directory);
// memory.new becomes memory, for good: also after the host's end.
Result<void> publish_memory(const sys::UniqueFd& directory);
// memory becomes memory.used, for good.
Result<void> use_memory(const sys::UniqueFd& directory);
// A step of the removal of memory.used; false: nothing is left. Each takes a millisecond or two:
// the kernel gives a large file back in one go, and whoever waits for that processor waits with it.
Result<bool> remove_some_used_memory(const sys::UniqueFd& directory);
// What is left of unfinished dumps and of images that were used.
Result<void> remove_stale_memory(const sys::UniqueFd& directory);

// The lock of a dump. failed_precondition: somebody holds it.
Result<sys::UniqueFd> lock_memory(const sys::UniqueFd& directory);
// By the holder: for whoever wants to cancel it.
Result<void> sign_lock(const sys::UniqueFd& lock);
// Waits for a dump of an earlier warden, and cancels it if it takes longer than `grace`.
// deadline_exceeded if that does not help.
Result<void> await_lock(const sys::UniqueFd& directory, std::chrono::milliseconds grace,
                        std::chrono::milliseconds at_most);

// The image and the names in the directory are on the host's disk when this returns.
Result<void> flush_disk(const sys::UniqueFd& directory);

}  // namespace atl::jail
