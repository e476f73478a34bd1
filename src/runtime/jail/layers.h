// Layers: the disks of snapshots as lower layers of overlays.
//
// The image of a snapshot is mounted once, read-only, for all sandboxes over it; each of them gets
// an idmapped clone of that mount, in which the files that carry the ids of the snapshot belong to
// its own. The upper directory that it once was keeps its meaning as a lower layer: whiteouts,
// opaque and redirected directories.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/jail/mark.h"
#include "runtime/jail/snapshot_store.h"
#include "sys/fd.h"
#include "sys/mounts.h"

namespace atl::jail {

// Where images are mounted: a directory for each, in memory.
class LayerPlace {
 public:
  explicit LayerPlace(sys::DetachedMount mount) : mount_(std::move(mount)) {}
  LayerPlace(const LayerPlace&) = delete;
  LayerPlace& operator=(const LayerPlace&) = delete;
  ~LayerPlace();
  const sys::UniqueFd& fd() const { return mount_.fd(); }

 private:
  sys::DetachedMount mount_;
};

// The mounted image of one layer. Unmounted with the last owner; overlays made over it keep what
// they need themselves.
class SharedLayer {
 public:
  SharedLayer(std::shared_ptr<const LayerPlace> place, std::string name, sys::DetachedMount mount,
              sys::UniqueFd upper)
      : place_(std::move(place)),
        name_(std::move(name)),
        mount_(std::move(mount)),
        upper_(std::move(upper)) {}
  SharedLayer(const SharedLayer&) = delete;
  SharedLayer& operator=(const SharedLayer&) = delete;
  ~SharedLayer();
  const sys::UniqueFd& upper() const { return upper_; }  // O_PATH

 private:
  std::shared_ptr<const LayerPlace> place_;
  std::string name_;  // of its directory there
  sys::DetachedMount mount_;
  sys::UniqueFd upper_;
};

struct OpenLayers {
  // One per layer, the nearest first, for `lowerdir+`; the template goes behind them. Not needed
  // any more once the overlay is mounted.
  std::vector<sys::DetachedMount> lowers;
  // Whoever keeps these makes the next `open` of the same layers cheap, and its pages shared.
  std::vector<std::shared_ptr<const SharedLayer>> shared;
};

class Layers {
 public:
  // `place` is an empty directory of the caller's mount namespace, which is private; it is mounted
  // over when the first layer is.
  explicit Layers(std::string place) : path_(std::move(place)) {}

  // The layers as the sandbox of `slot` sees them. not_found: a snapshot is missing. data_loss: its
  // disk is. Preconditions: single thread.
  Result<OpenLayers> open(const SnapshotStore& store, const std::vector<LayerRef>& layers,
                          std::uint32_t slot);

 private:
  Result<std::shared_ptr<const SharedLayer>> mounted(const SnapshotStore& store,
                                                     const LayerRef& layer);
  std::string path_;
  std::shared_ptr<const LayerPlace> place_;
  std::map<LayerRef, std::weak_ptr<const SharedLayer>> mounted_;
};

// Makes `upper`, which is empty, look like the top of `nearest` (upper or lowers.front()) to the
// kernel: same owner, mode and times.
Result<void> prepare_upper(const sys::UniqueFd& upper, const sys::UniqueFd& nearest);

}  // namespace atl::jail
