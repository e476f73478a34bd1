#include "runtime/jail/trial.h"

#include <fcntl.h>

#include "sys/files.h"

namespace atl::jail {
namespace {

constexpr const char* kRunDir = "/run/atoll";
constexpr const char* kTestedName = "criu-tested";
constexpr std::size_t kMaxTested = 4096;

// What the trial depends on; empty if it cannot be told.
std::string trial_of(const MemoryTools& tools) {
  auto stamp = sys::read_trusted(tools.criu + "/stamp", kMaxTested);
  auto boot = sys::read_trusted("/proc/sys/kernel/random/boot_id");
  return stamp && boot ? *boot + tools.criu + "\n" + *stamp : std::string();
}

}  // namespace

std::optional<std::string> remembered_trial(const MemoryTools& tools) {
  const std::string trial = trial_of(tools);
  auto text = sys::read_trusted(std::string(kRunDir) + "/" + kTestedName, kMaxTested);
  if (trial.empty() || !text || !text->starts_with(trial)) return std::nullopt;
  return text->substr(trial.size());
}

void remember_trial(const MemoryTools& tools, std::string_view version) {
  const std::string trial = trial_of(tools);
  auto dir = sys::open_trusted(kRunDir, O_RDONLY | O_DIRECTORY);
  if (trial.empty() || !dir || !sys::remove_file(*dir, kTestedName)) return;
  // Another warden may have been faster; without it the next one tries again.
  (void)sys::publish_file(*dir, kTestedName, trial + std::string(version), 0600);
}

Result<snapshot::Tools> tried_tools(const MemoryTools& tools) {
  if (auto version = remembered_trial(tools)) return snapshot::Tools{tools.criu, *version};
  return snapshot::find_tools(tools.criu);
}

}  // namespace atl::jail
