#include <algorithm>

#include "agent/files.h"

namespace atl::agent {
namespace {

constexpr std::string_view kHeaderPrefix = "x-metadata-";
constexpr std::size_t kMaxKeyBytes = 246;  // with the prefix, the 255 that xattr names may have
constexpr std::size_t kMaxTotalBytes = 4096;

bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
}

Error invalid(std::string_view what) {
  return make_error(Errc::invalid_argument, "invalid metadata: " + std::string(what));
}

}  // namespace

Result<Metadata> metadata_from_headers(const net::Headers& headers) {
  Metadata metadata;
  std::size_t total = 0;
  for (const auto& field : headers) {
    if (field.name.size() < kHeaderPrefix.size() ||
        !net::iequals(std::string_view(field.name).substr(0, kHeaderPrefix.size()),
                      kHeaderPrefix)) {
      continue;
    }
    std::string key = field.name.substr(kHeaderPrefix.size());
    for (char& c : key) {
      if (c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
    }
    if (key.empty()) return invalid("a key is empty");
    if (key.size() > kMaxKeyBytes) {
      return invalid("a key is longer than " + std::to_string(kMaxKeyBytes) + " bytes");
    }
    if (!is_printable(key)) return invalid("a key has characters other than printable ASCII");
    if (!is_printable(field.value)) {
      return invalid("the value of '" + key + "' has characters other than printable ASCII");
    }
    if (!metadata.emplace(key, field.value).second) continue;
    total += kMetadataPrefix.size() + key.size() + field.value.size();
    if (total > kMaxTotalBytes) {
      return invalid("keys and values take more than " + std::to_string(kMaxTotalBytes) + " bytes");
    }
  }
  return metadata;
}

}  // namespace atl::agent
