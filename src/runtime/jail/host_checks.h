// Checks of the host, for `atoll doctor` and for the warden's own start. Each really tries the
// feature where that is possible.
#pragma once

#include <string>
#include <vector>

namespace atl::jail {

struct Check {
  enum class Status { ok, warn, fail };
  std::string name;
  Status status;
  std::string detail;
  std::string fix;  // what to do about it; empty if there is nothing to do
};

// All of them, in the order in which they are best read. `home` decides which filesystem is looked
// at. Needs root for most.
std::vector<Check> check_host(const std::string& home);

// Overlay accepts layers as descriptors of detached mounts. Preconditions: root.
bool overlay_takes_descriptors();

}  // namespace atl::jail
