// GET /metrics: what the sandbox uses (wire/sandbox-agent.md §10.2).
//
// A sandbox sees neither cgroups nor a /proc/stat or /proc/meminfo of its own, so:
// - CPU time is the sum over the processes of the sandbox of their time and that of their children
// they waited for. PID 1 waits for
//   all orphans, so time of ended processes stays counted.
// - memory in use is the sum of the anonymous resident pages of all processes, and the total is
// what the control plane told. If
//   it told nothing (a virtual machine, a bare agent), /proc/meminfo is the sandbox's own and is
//   used for both.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "agent/state.h"
#include "base/json.h"

namespace atl::agent {

struct ProcessTotals {
  std::uint64_t cpu_ticks = 0;
  std::uint64_t anonymous_pages = 0;
};

// utime + stime + cutime + cstime of a /proc/<pid>/stat line. The program's name may hold anything,
// parentheses too.
std::optional<std::uint64_t> parse_stat_ticks(std::string_view line);
// resident - shared of a /proc/<pid>/statm line.
std::optional<std::uint64_t> parse_statm_anonymous(std::string_view line);
struct MemInfo {
  std::uint64_t total = 0;  // bytes
  std::uint64_t used = 0;
  std::uint64_t cache = 0;
};
MemInfo parse_meminfo(std::string_view text);

class Metrics {
 public:
  explicit Metrics(const AgentState& state) : state_(state) {}
  json::object collect();

 private:
  const AgentState& state_;
  std::optional<std::uint64_t> last_ticks_;
  std::chrono::steady_clock::time_point last_time_;
};

}  // namespace atl::agent
