// Snapshots on disk: HOME/snapshots/INSTANCE/ID with
//
//   disk.img   a copy of a sandbox's disk, never written again
//   flat.img   the same and everything of the layers below it in one, if it was made (compact.h)
//   memory/    what src/snapshot wrote, if there is memory
//   complete   the mark: whose ids the files carry, what disk.img lies over
//
// All of it belongs to root and is closed to everybody else. A directory without a mark is the
// remains of something that was cut off. Thread safety: none; another process may make a flat
// image meanwhile.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/jail/mark.h"
#include "runtime/spec.h"
#include "sys/fd.h"

namespace atl::jail {

inline constexpr const char* kFlatImageName = "flat.img";
inline constexpr const char* kMemoryName = "memory";

struct StoredSnapshot {
  runtime::SnapshotId id;
  bool whole = false;  // false: remains, only good for removal
  Mark mark;
  std::uint64_t memory_bytes = 0;
  std::uint64_t disk_bytes = 0;
};

// Layers that sandboxes, or launches under way, lie over.
using UsedLayers = std::set<LayerRef>;
// By the marks of all sandboxes in this directory (HOME/sandboxes/INSTANCE). An unreadable mark is
// an error: what it needs is not known.
Result<UsedLayers> layers_of_sandboxes(const sys::UniqueFd& sandboxes);

class SnapshotStore {
 public:
  // `home` is open for reading.
  static Result<SnapshotStore> open(const sys::UniqueFd& home, const std::string& instance);

  // An empty directory, 0700; already_exists. Until `publish` it is remains.
  Result<sys::UniqueFd> begin(const runtime::SnapshotId& id) const;
  // Everything in it is on the host's disk: writes the mark, durably. `layers` of the mark are
  // those of the source sandbox; they are shortened (see below) on the way.
  Result<void> publish(const runtime::SnapshotId& id, Mark mark) const;

  // not_found: there is no such snapshot, or only remains.
  Result<sys::UniqueFd> directory(const runtime::SnapshotId& id) const;
  Result<Mark> mark_of(const runtime::SnapshotId& id) const;
  Result<std::vector<StoredSnapshot>> list() const;

  // What a new sandbox from this snapshot lies over, itself first: for Layers::open and for the
  // mark of that sandbox.
  Result<std::vector<LayerRef>> chain_of(const runtime::SnapshotId& id) const;
  // The same view with fewer layers: cut after the first that has a flat image, which is used.
  std::vector<LayerRef> shortened(std::vector<LayerRef> layers) const;

  // failed_precondition: something of it is used, or another snapshot lies over it. not_found.
  // Remains are removed too.
  Result<void> remove(const runtime::SnapshotId& id, const UsedLayers& used) const;
  // Of a snapshot that has a flat image: drops its own disk and lets go of the layers below, if
  // nobody uses it any more. True: that is done. False: somebody does, or there is no flat image.
  Result<bool> let_go(const runtime::SnapshotId& id, const UsedLayers& used) const;

 private:
  SnapshotStore(sys::UniqueFd all, std::string instance)
      : all_(std::move(all)), instance_(std::move(instance)) {}
  // The instance's directory, which is there as long as it has a snapshot.
  Result<sys::UniqueFd> mine() const;
  Result<std::vector<std::string>> names() const;
  bool has_flat(const runtime::SnapshotId& id) const;
  Result<UsedLayers> layers_of_snapshots(const runtime::SnapshotId& except) const;
  sys::UniqueFd all_;
  std::string instance_;
};

}  // namespace atl::jail
