#include "store/records.h"

namespace atl::store {

std::string_view to_string(SandboxState state) {
  switch (state) {
    case SandboxState::creating:
      return "creating";
    case SandboxState::running:
      return "running";
    case SandboxState::pausing:
      return "pausing";
    case SandboxState::paused:
      return "paused";
    case SandboxState::resuming:
      return "resuming";
    case SandboxState::killing:
      return "killing";
    case SandboxState::killed:
      return "killed";
    case SandboxState::snapshotting:
      return "snapshotting";
  }
  return "killed";
}

std::optional<SandboxState> parse_state(std::string_view text) {
  for (auto state : {SandboxState::creating, SandboxState::running, SandboxState::pausing,
                     SandboxState::paused, SandboxState::resuming, SandboxState::killing,
                     SandboxState::killed, SandboxState::snapshotting}) {
    if (to_string(state) == text) return state;
  }
  return std::nullopt;
}

std::string_view to_string(MemoryTier tier) {
  switch (tier) {
    case MemoryTier::none:
      return "none";
    case MemoryTier::frozen:
      return "frozen";
    case MemoryTier::dumped:
      return "dumped";
  }
  return "none";
}

std::optional<MemoryTier> parse_memory_tier(std::string_view text) {
  for (auto tier : {MemoryTier::none, MemoryTier::frozen, MemoryTier::dumped}) {
    if (to_string(tier) == text) return tier;
  }
  return std::nullopt;
}

std::string_view to_string(SnapshotState state) {
  switch (state) {
    case SnapshotState::making:
      return "making";
    case SnapshotState::ready:
      return "ready";
    case SnapshotState::doomed:
      return "doomed";
  }
  return "doomed";
}

std::optional<SnapshotState> parse_snapshot_state(std::string_view text) {
  for (auto state : {SnapshotState::making, SnapshotState::ready, SnapshotState::doomed}) {
    if (to_string(state) == text) return state;
  }
  return std::nullopt;
}

std::string_view to_string(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return "debug";
    case LogLevel::info:
      return "info";
    case LogLevel::warn:
      return "warn";
    case LogLevel::error:
      return "error";
  }
  return "info";
}

std::optional<LogLevel> parse_log_level(std::string_view text) {
  for (auto level : {LogLevel::debug, LogLevel::info, LogLevel::warn, LogLevel::error}) {
    if (to_string(level) == text) return level;
  }
  return std::nullopt;
}

}  // namespace atl::store
