// Id ranges: every sandbox of every server on a machine has 65,536 user and group ids of its own.
//
// A slot n means the ids n*65536 .. n*65536+65535. A taken slot is a file of that number in one
// directory for the whole machine, linked with its whole text in one go, so that servers which know
// nothing of each other never share a range. Its text names the owner: home, instance and sandbox,
// one per line.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "sys/fd.h"

namespace atl::jail {

inline constexpr std::uint32_t kFirstSlot = 10000;
inline constexpr std::uint32_t kEndSlot = 60000;

struct RangeOwner {
  std::string home;
  std::string instance;
  std::string sandbox;
  bool operator==(const RangeOwner&) const = default;
};

// Numbers that a directory of slots hands out: first <= n < end.
struct SlotBounds {
  std::uint32_t first = kFirstSlot;
  std::uint32_t end = kEndSlot;
};

struct OrphanSlot {
  std::uint32_t slot;
  RangeOwner owner;
};

struct TakenSlot {
  std::uint32_t slot;
  std::string sandbox;
};

class Ranges {
 public:
  static Result<Ranges> open(const std::string& directory, std::string home, std::string instance,
                             SlotBounds bounds = {});

  // A free slot, round robin: a range just freed comes back as late as possible.
  Result<std::uint32_t> take(const std::string& sandbox);
  // The slot that files of a kept disk carry: ours already, or free (the host was started anew).
  // Taken by others: failed_precondition.
  Result<void> claim(std::uint32_t slot, const std::string& sandbox);
  Result<void> give_back(std::uint32_t slot);
  // Slots of this home and instance.
  Result<std::vector<TakenSlot>> mine() const;
  // Frees slots whose home no longer exists.
  void sweep_orphans();
  // The same slots, left to the caller.
  std::vector<OrphanSlot> orphans() const;

  static uid_t first_id(std::uint32_t slot) { return uid_t(slot) * 65536; }

 private:
  Ranges(sys::UniqueFd dir, std::string home, std::string instance, SlotBounds bounds);
  std::optional<std::uint32_t> to_slot(std::string_view name) const;
  Result<RangeOwner> owner_of(const std::string& name) const;

  sys::UniqueFd dir_;
  std::string home_;
  std::string instance_;
  SlotBounds bounds_;
  std::uint32_t next_;
};

// Slot files as text.
std::string to_text(const RangeOwner& owner);
Result<RangeOwner> parse_range_owner(std::string_view text);

// A short name for a server of one home and instance: 16 hexadecimal digits.
std::string instance_name(const std::string& home, const std::string& instance);

}  // namespace atl::jail
