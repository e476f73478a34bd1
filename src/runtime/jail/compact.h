// Chains of layers made one. A snapshot of a sandbox that was made from a snapshot, and so on, lies
// over ever more layers; past kMaxChain of them it gets a flat image: the content of its own disk
// and of all layers below, over the template, which new sandboxes then use instead. Running ones
// keep what they have.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "runtime/jail/layers.h"
#include "runtime/jail/snapshot_store.h"
#include "sys/fd.h"

namespace atl::jail {

inline constexpr std::size_t kMaxChain = 8;

// Merges directories that are, or were, upper layers of overlays (the nearest first) into `into`,
// an empty directory of a filesystem that is mounted for writing. What it hides of a template below
// stays hidden: whiteouts, opaque and redirected directories. Hard links within a layer, extended
// attributes, owners, modes and times are kept.
Result<void> merge_layers(const std::vector<sys::UniqueFd>& layers, const sys::UniqueFd& into);

// Gives the snapshot a flat image if its chain is longer than `longest`. Takes as long as copying
// its files does: call it in a process of its own, which may be killed at any time. Preconditions:
// as of Layers::open. False: nothing to do.
Result<bool> compact(const SnapshotStore& store, Layers& layers, const runtime::SnapshotId& id,
                     std::size_t longest = kMaxChain);

}  // namespace atl::jail
