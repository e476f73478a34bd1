// Keys of blobs: how names of users become parts of them.
//
// A segment is 1 to 240 bytes: letters, digits, '_', '-', '.', '=', '@' and what UTF-8 uses beyond
// ASCII; it does not begin with a dot. So a segment is a good file name and never "." or "..".
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace atl::blobs {

inline constexpr std::size_t kMaxSegment = 240;
inline constexpr std::size_t kMaxKey = 900;
inline constexpr std::size_t kMaxDepth = 80;

// Any text as part of a segment: letters, digits, '_', '-', inner dots and non-ASCII stand for
// themselves, other bytes become =XX. '@' is never in the result. Different texts have different
// encodings.
std::string encode_segment(std::string_view text);
std::optional<std::string> decode_segment(std::string_view segment);

// invalid_argument: not a key.
Result<void> check_key(std::string_view key);

}  // namespace atl::blobs
