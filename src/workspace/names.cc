#include "workspace/names.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/encoding.h"
#include "base/ids.h"
#include "store/blobs/key.h"
#include "store/workspace_name.h"

namespace atl::workspace {
namespace {

using blobs::decode_segment;
using blobs::encode_segment;

constexpr std::size_t kTimeDigits = 15;
constexpr std::size_t kVersionLength = kTimeDigits + 1 + 8;

bool is_lower_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

Error bad_path(std::string_view why) {
  return make_error(Errc::invalid_argument, "invalid path: " + std::string(why));
}

// Microseconds, in hex digits of a fixed length.
std::string time_text(Timestamp at) {
  const auto micros =
      std::chrono::duration_cast<std::chrono::microseconds>(at.time_since_epoch()).count();
  std::string out(kTimeDigits, '0');
  auto rest = std::uint64_t(std::max<std::int64_t>(micros, 0));
  for (std::size_t i = kTimeDigits; i-- > 0; rest >>= 4) out[i] = "0123456789abcdef"[rest & 15];
  return out;
}

std::optional<Timestamp> parse_time(std::string_view text) {
  if (text.size() != kTimeDigits || !is_lower_hex(text)) return std::nullopt;
  std::uint64_t micros = 0;
  std::from_chars(text.data(), text.data() + text.size(), micros, 16);
  if (micros > std::uint64_t(INT64_MAX) / 1000) return std::nullopt;
  return Timestamp(std::chrono::microseconds(micros));
}

std::vector<std::string_view> split(std::string_view text, char by) {
  std::vector<std::string_view> out;
  for (std::size_t begin = 0;;) {
    const std::size_t end = std::min(text.find(by, begin), text.size());
    out.push_back(text.substr(begin, end - begin));
    if (end == text.size()) return out;
    begin = end + 1;
  }
}

Result<void> check_characters(std::string_view path) {
  if (!is_valid_utf8(path)) return bad_path("it is not UTF-8");
  for (std::size_t i = 0; i < path.size(); ++i) {
    const auto c = static_cast<unsigned char>(path[i]);
    // U+0080 to U+009F are control characters too: C2 80 to C2 9F.
    const bool c1 =
        c == 0xc2 && i + 1 < path.size() && static_cast<unsigned char>(path[i + 1]) < 0xa0;
    if (c < 0x20 || c == 0x7f || c1) return bad_path("it has a control character");
  }
  return {};
}

// "/a/b" as "a/b", each component encoded.
std::string encode_path(std::string_view path) {
  std::string out;
  for (const std::string_view part : split(path.substr(1), '/')) {
    if (!out.empty()) out += '/';
    out += encode_segment(part);
  }
  return out;
}

}  // namespace

Result<void> check_name(std::string_view name) { return store::check_workspace_name(name); }

Result<std::string> normalise_path(std::string_view path) {
  if (path.empty()) return bad_path("it is empty");
  if (path.size() > kMaxPath) return bad_path("it is too long (at most 600 bytes)");
  ATOLL_TRY(check_characters(path));
  std::string out;
  std::size_t encoded = 0;
  std::size_t depth = 0;
  for (const std::string_view part : split(path, '/')) {
    if (part.empty()) continue;
    if (part == "." || part == "..") return bad_path("'.' and '..' are not allowed in it");
    const std::size_t size = encode_segment(part).size();
    if (size > blobs::kMaxSegment) return bad_path("a name in it is too long (at most 240 bytes)");
    encoded += size + 1;
    if (++depth > kMaxPathDepth) return bad_path("it is too deep (at most 64 folders)");
    out += '/';
    out += part;
  }
  if (out.empty()) return bad_path("it names no file");
  if (path.back() == '/') return bad_path("it ends with '/', so it names a folder");
  if (encoded > kMaxPath) {
    return bad_path("it is too long (at most 600 bytes; spaces and punctuation count three)");
  }
  return out;
}

Result<std::string> normalise_folder(std::string_view path) {
  while (!path.empty() && path.back() == '/') path.remove_suffix(1);
  if (path.empty()) return std::string("/");
  return normalise_path(path);
}

std::string Place::settings() const {
  return "m/" + encode_segment(team) + "/" + encode_segment(name);
}
std::string Place::entries() const {
  return "i/" + encode_segment(team) + "/" + encode_segment(name) + "/";
}
std::string Place::contents() const {
  return "d/" + encode_segment(team) + "/" + encode_segment(name) + "/";
}
std::string Place::versions(std::string_view path) const { return below(path) + "@"; }
std::string Place::below(std::string_view folder) const {
  return folder == "/" ? entries() : entries() + encode_path(folder) + "/";
}
std::string Place::content(std::string_view data) const {
  // The last two digits are random: as many directories as that keep each of them short.
  return contents() + std::string(data.substr(data.size() - 2)) + "/" + std::string(data);
}

std::string entry_key(const Place& place, const Version& version) {
  return place.versions(version.file.path) + version.file.version + "." +
         std::to_string(version.file.size) + "." + version.file.sha256 + "." + version.data;
}

std::optional<Version> parse_entry(const Place& place, std::string_view key) {
  const std::string base = place.entries();
  if (!key.starts_with(base)) return std::nullopt;
  key.remove_prefix(base.size());
  const std::size_t mark = key.rfind("/@");
  if (mark == std::string_view::npos) return std::nullopt;
  Version out;
  for (const std::string_view part : split(key.substr(0, mark), '/')) {
    const auto name = decode_segment(part);
    if (!name) return std::nullopt;
    out.file.path += '/';
    out.file.path += *name;
  }
  const auto fields = split(key.substr(mark + 2), '.');
  if (fields.size() != 4) return std::nullopt;
  const auto at = time_of_version(fields[0]);
  const char* end = fields[1].data() + fields[1].size();
  const auto [stop, error] = std::from_chars(fields[1].data(), end, out.file.size);
  if (!at || error != std::errc() || stop != end) return std::nullopt;
  if (fields[2].size() != 64 || !is_lower_hex(fields[2])) return std::nullopt;
  if (!time_of_data(fields[3])) return std::nullopt;
  out.file.version = fields[0];
  out.file.modified_at = *at;
  out.file.sha256 = fields[2];
  out.data = fields[3];
  return out;
}

std::string make_version(Timestamp at) { return time_text(at) + "-" + random_hex(4); }

std::optional<Timestamp> time_of_version(std::string_view version) {
  if (version.size() != kVersionLength || version[kTimeDigits] != '-') return std::nullopt;
  if (!is_lower_hex(version.substr(kTimeDigits + 1))) return std::nullopt;
  return parse_time(version.substr(0, kTimeDigits));
}

std::string make_data(std::string_view server, Timestamp at) {
  return std::string(server) + "-" + time_text(at) + "-" + random_hex(8);
}

std::optional<Timestamp> time_of_data(std::string_view data) {
  const auto parts = split(data, '-');
  if (parts.size() != 3 || parts[2].size() != 16 || !is_lower_hex(parts[2])) return std::nullopt;
  if (parts[0].empty() || !is_lower_hex(parts[0])) return std::nullopt;
  return parse_time(parts[1]);
}

std::optional<std::string> data_of_key(std::string_view key) {
  if (!key.starts_with("d/")) return std::nullopt;
  const std::string_view data = key.substr(key.rfind('/') + 1);
  if (!time_of_data(data)) return std::nullopt;
  return std::string(data);
}

std::optional<Place> place_of_content(std::string_view key) {
  const auto parts = split(key, '/');
  if (parts.size() != 5 || parts[0] != "d") return std::nullopt;
  const auto team = decode_segment(parts[1]);
  const auto name = decode_segment(parts[2]);
  if (!team || !name) return std::nullopt;
  return Place{*team, *name};
}

}  // namespace atl::workspace
