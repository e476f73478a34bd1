#include "agent/metrics.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>
#include <vector>

#include "agent/file_io.h"

namespace atl::agent {
namespace {

constexpr std::size_t kMaxProcesses = 100'000;

std::string read_proc(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return {};
  char buffer[8192];
  const ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
  return n > 0 ? std::string(buffer, std::size_t(n)) : std::string();
}

std::vector<std::string_view> words(std::string_view text) {
  std::vector<std::string_view> out;
  std::size_t at = 0;
  while ((at = text.find_first_not_of(" \t\n", at)) != std::string_view::npos) {
    const std::size_t end = std::min(text.find_first_of(" \t\n", at), text.size());
    out.push_back(text.substr(at, end - at));
    at = end;
  }
  return out;
}

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [stop, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return value;
}

ProcessTotals sum_processes() {
  ProcessTotals totals;
  DIR* proc = ::opendir("/proc");
  if (!proc) return totals;
  std::size_t seen = 0;
  while (const dirent* entry = ::readdir(proc)) {
    const std::string name = entry->d_name;
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (++seen > kMaxProcesses) break;
    totals.cpu_ticks += parse_stat_ticks(read_proc("/proc/" + name + "/stat")).value_or(0);
    totals.anonymous_pages +=
        parse_statm_anonymous(read_proc("/proc/" + name + "/statm")).value_or(0);
  }
  ::closedir(proc);
  return totals;
}

unsigned usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

}  // namespace

std::optional<std::uint64_t> parse_stat_ticks(std::string_view line) {
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string_view::npos) return std::nullopt;
  const auto fields = words(line.substr(name_end + 1));  // fields[0] is the third, the state
  std::uint64_t sum = 0;
  for (const std::size_t i : {11, 12, 13, 14}) {
    if (i >= fields.size()) return std::nullopt;
    const auto value = number(fields[i]);
    if (!value) return std::nullopt;
    sum += *value;
  }
  return sum;
}

std::optional<std::uint64_t> parse_statm_anonymous(std::string_view line) {
  const auto fields = words(line);
  if (fields.size() < 3) return std::nullopt;
  const auto resident = number(fields[1]);
  const auto shared = number(fields[2]);
  if (!resident || !shared) return std::nullopt;
  return *resident > *shared ? *resident - *shared : 0;
}

MemInfo parse_meminfo(std::string_view text) {
  const auto all = words(text);
  const auto kib = [&all](std::string_view name) -> std::uint64_t {
    const auto found = std::find(all.begin(), all.end(), name);
    if (found == all.end() || found + 1 == all.end()) return 0;
    return number(*(found + 1)).value_or(0) * 1024;
  };
  MemInfo info;
  info.total = kib("MemTotal:");
  info.cache = kib("Cached:") + kib("SReclaimable:");
  const std::uint64_t not_used = kib("MemFree:") + kib("Buffers:") + info.cache;
  info.used = info.total > not_used ? info.total - not_used : 0;
  return info;
}

json::object Metrics::collect() {
  const ProcessTotals totals = sum_processes();
  const unsigned cpus = state_.cpu_count().value_or(usable_cpus());
  const auto now = std::chrono::steady_clock::now();
  double percent = 0;
  if (last_ticks_ && totals.cpu_ticks > *last_ticks_) {
    const double seconds = std::chrono::duration<double>(now - last_time_).count();
    const double used = double(totals.cpu_ticks - *last_ticks_) / double(::sysconf(_SC_CLK_TCK));
    if (seconds > 0) percent = std::clamp(100.0 * used / seconds / cpus, 0.0, 100.0);
  }
  last_ticks_ = totals.cpu_ticks;
  last_time_ = now;

  MemInfo memory;
  if (state_.memory_limit()) {
    memory.total = *state_.memory_limit();
    memory.used =
        std::min(memory.total, totals.anonymous_pages * std::uint64_t(::sysconf(_SC_PAGESIZE)));
  } else {
    memory = parse_meminfo(read_proc("/proc/meminfo"));
  }

  json::object out;
  out["ts"] = std::int64_t(::time(nullptr));
  out["cpu_count"] = cpus;
  out["cpu_used_pct"] = std::round(percent * 100) / 100;
  out["mem_total"] = memory.total;
  out["mem_used"] = memory.used;
  out["mem_cache"] = memory.cache;
  out["mem_total_mib"] = memory.total >> 20;
  out["mem_used_mib"] = memory.used >> 20;
  struct statvfs disk{};
  if (::statvfs("/", &disk) == 0) {
    const std::uint64_t total = std::uint64_t(disk.f_blocks) * disk.f_frsize;
    const std::uint64_t available = std::uint64_t(disk.f_bavail) * disk.f_frsize;
    out["disk_total"] = total;
    out["disk_used"] = total > available ? total - available : 0;
  }
  return out;
}

}  // namespace atl::agent
