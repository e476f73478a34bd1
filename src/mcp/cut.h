// Text that is too long for a model: cut in the middle, with a note. And bytes that are no UTF-8,
// which JSON cannot carry.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace atl::mcp {

// At most `limit` bytes of `text` are kept, the beginning and the end, whole characters; between
// them a line says how much was left out. `how` says how to get the rest; may be empty.
std::string cut_middle(std::string_view text, std::size_t limit, std::string_view how);
// The same of a text whose middle is lost already: `omitted` bytes between `head` and `tail`.
std::string cut_middle(std::string_view head, std::string_view tail, std::uint64_t omitted,
                       std::size_t limit, std::string_view how);

// Every byte that belongs to no character becomes U+FFFD.
std::string to_utf8(std::string_view bytes);

// "1.5 MiB"
std::string readable_size(std::uint64_t bytes);

}  // namespace atl::mcp
