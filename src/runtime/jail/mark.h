// The mark of a whole sandbox: a file in its directory, written when its launch was completed and
// removed before anything of it is.
//
// It decides what a warden says of a directory that it finds: with the mark there is a whole disk
// (the sandbox runs, or is dead and can boot again), without it there are the remains of a launch
// or of a removal that was cut off, only good for destroy. The file appears and disappears in one
// system call, so a crash at any moment leaves one or the other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "sys/fd.h"

namespace atl::jail {

inline constexpr const char* kMarkName = "complete";

struct Mark {
  std::uint32_t slot =
      0;  // the id range of the files; kept here because /run is empty after a boot
  bool operator==(const Mark&) const = default;
};

// `directory` is the sandbox's.
Result<void> write_mark(const sys::UniqueFd& directory, const Mark& mark);
// nullopt: there is none.
Result<std::optional<Mark>> read_mark(const sys::UniqueFd& directory);
// Fine if there is none.
Result<void> remove_mark(const sys::UniqueFd& directory);

std::string to_text(const Mark& mark);
Result<Mark> parse_mark(std::string_view text);

}  // namespace atl::jail
