#include "store/blobs/key.h"

#include "base/encoding.h"

namespace atl::blobs {
namespace {

bool is_plain(unsigned char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c >= 0x80;
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string encode_segment(std::string_view text) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (is_plain(byte) || (c == '.' && !out.empty())) {
      out += c;
    } else {
      out += '=';
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    }
  }
  return out;
}

std::optional<std::string> decode_segment(std::string_view segment) {
  std::string out;
  for (std::size_t i = 0; i < segment.size(); ++i) {
    if (segment[i] != '=') {
      out += segment[i];
      continue;
    }
    if (i + 2 >= segment.size()) return std::nullopt;
    const int high = hex_value(segment[i + 1]);
    const int low = hex_value(segment[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    out += char(high * 16 + low);
    i += 2;
  }
  if (encode_segment(out) != segment) return std::nullopt;
  return out;
}

Result<void> check_key(std::string_view key) {
  const auto bad = [](const char* why) {
    return make_error(Errc::invalid_argument, std::string("not a key of a blob: ") + why);
  };
  if (key.size() > kMaxKey) return bad("too long");
  if (!is_valid_utf8(key)) return bad("not UTF-8");
  std::size_t depth = 0;
  for (std::size_t begin = 0; begin <= key.size();) {
    const std::size_t end = std::min(key.find('/', begin), key.size());
    const std::string_view segment = key.substr(begin, end - begin);
    if (segment.empty() || segment.size() > kMaxSegment) return bad("the length of a segment");
    if (segment.front() == '.') return bad("a segment begins with a dot");
    for (const char c : segment) {
      if (!is_plain(static_cast<unsigned char>(c)) && c != '.' && c != '=' && c != '@')
        return bad("a character");
    }
    if (++depth > kMaxDepth) return bad("too deep");
    begin = end + 1;
  }
  return {};
}

}  // namespace atl::blobs
