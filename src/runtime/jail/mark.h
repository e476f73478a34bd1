// The mark of a whole sandbox or snapshot: a file in its directory, written when its making was
// completed and removed before anything of it is.
//
// It decides what a warden says of a directory that it finds: with the mark there is a whole disk
// (the sandbox runs, or is dead and can boot again; the snapshot can be used), without it there are
// the remains of a launch, a snapshot or a removal that was cut off, only good for removal. The
// file appears and disappears in one system call, so a crash at any moment leaves one or the other.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "runtime/spec.h"
#include "sys/fd.h"

namespace atl::jail {

inline constexpr const char* kMarkName = "complete";

// A read-only layer of an overlay: what one snapshot holds.
struct LayerRef {
  runtime::SnapshotId snapshot;
  // False: its own disk, which lies over the next layer of the list. True: its flat disk, which has
  // everything of the layers below in it too and lies over the template.
  bool flat = false;
  auto operator<=>(const LayerRef&) const = default;
};

struct Mark {
  // The id range of the sandbox; kept here because /run is empty after a boot. Of a snapshot: what
  // its files carry.
  std::uint32_t slot = 0;
  // The id range that the files of the disk carry, where it is another one. 0: the same.
  std::uint32_t disk_slot = 0;
  // What the disk lies over, the nearest first; the template is below all of them.
  std::vector<LayerRef> layers;

  std::uint32_t files_slot() const { return disk_slot != 0 ? disk_slot : slot; }
  bool operator==(const Mark&) const = default;
};

// `directory` is the sandbox's or the snapshot's.
Result<void> write_mark(const sys::UniqueFd& directory, const Mark& mark);
// Puts another one in its place in one step.
Result<void> replace_mark(const sys::UniqueFd& directory, const Mark& mark);
// nullopt: there is none.
Result<std::optional<Mark>> read_mark(const sys::UniqueFd& directory);
// Fine if there is none.
Result<void> remove_mark(const sys::UniqueFd& directory);

// One line each: `slot N`, `disk N` if it is another, `layer ID` or `flat ID` for each layer.
std::string to_text(const Mark& mark);
Result<Mark> parse_mark(std::string_view text);

// Longer chains than this are refused: the kernel would take some 500.
inline constexpr std::size_t kMaxLayers = 64;

}  // namespace atl::jail
