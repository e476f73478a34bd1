#include "mcp/cut.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/encoding.h"

namespace atl::mcp {
namespace {

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// The longest prefix of at most `limit` bytes that does not end inside a character.
std::string_view whole_prefix(std::string_view text, std::size_t limit) {
  if (text.size() <= limit) return text;
  while (limit > 0 && continues(text[limit])) --limit;
  return text.substr(0, limit);
}

std::string_view whole_suffix(std::string_view text, std::size_t limit) {
  if (text.size() <= limit) return text;
  std::size_t begin = text.size() - limit;
  while (begin < text.size() && continues(text[begin])) ++begin;
  return text.substr(begin);
}

}  // namespace

std::string cut_middle(std::string_view text, std::size_t limit, std::string_view how) {
  if (text.size() <= limit) return std::string(text);
  const std::string_view head = whole_prefix(text, limit / 2);
  const std::string_view tail = whole_suffix(text.substr(head.size()), limit - limit / 2);
  const std::size_t omitted = text.size() - head.size() - tail.size();
  return cut_middle(head, tail, omitted, limit, how);
}

std::string cut_middle(std::string_view head, std::string_view tail, std::uint64_t omitted,
                       std::size_t limit, std::string_view how) {
  if (omitted == 0) {
    if (tail.empty()) return cut_middle(head, limit, how);
    return cut_middle(std::string(head) + std::string(tail), limit, how);
  }
  const std::string_view kept_head = whole_prefix(head, limit / 2);
  const std::string_view kept_tail = whole_suffix(tail, limit - limit / 2);
  omitted += head.size() - kept_head.size() + tail.size() - kept_tail.size();
  std::string out(kept_head);
  if (!out.empty() && out.back() != '\n') out += '\n';
  out += fmt::format("[... {} bytes left out", omitted);
  if (!how.empty()) out += fmt::format("; {}", how);
  out += " ...]\n";
  out += kept_tail;
  return out;
}

std::string to_utf8(std::string_view bytes) {
  if (is_valid_utf8(bytes)) return std::string(bytes);
  std::string out;
  out.reserve(bytes.size() + bytes.size() / 8);
  for (std::size_t i = 0; i < bytes.size();) {
    // The longest run of good bytes in steps of a character.
    const auto lead = static_cast<unsigned char>(bytes[i]);
    const std::size_t length = lead < 0x80 ? 1 : lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    const std::string_view piece = bytes.substr(i, length);
    if (piece.size() == length && is_valid_utf8(piece)) {
      out += piece;
      i += length;
    } else {
      out += "\xEF\xBF\xBD";
      ++i;
    }
  }
  return out;
}

std::string readable_size(std::uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} bytes", bytes);
  double value = double(bytes) / 1024;
  for (const char* unit : {"KiB", "MiB", "GiB"}) {
    if (value < 1024) return fmt::format("{:.1f} {}", value, unit);
    value /= 1024;
  }
  return fmt::format("{:.1f} TiB", value);
}

}  // namespace atl::mcp
