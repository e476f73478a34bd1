#include "mcp/protocol/version.h"

#include <algorithm>

namespace atl::mcp {
namespace {

constexpr std::string_view kVersions[] = {"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"};

}  // namespace

std::span<const std::string_view> protocol_versions() { return kVersions; }

bool is_protocol_version(std::string_view version) {
  return std::find(std::begin(kVersions), std::end(kVersions), version) != std::end(kVersions);
}

std::string_view negotiate_version(std::string_view asked) {
  const auto* found = std::find(std::begin(kVersions), std::end(kVersions), asked);
  return found != std::end(kVersions) ? *found : kVersions[0];
}

bool allows_batches(std::string_view version) { return version == "2025-03-26"; }

}  // namespace atl::mcp
