#include "base/log.h"

#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <fmt/format.h>

#include <atomic>
#include <boost/json.hpp>

namespace atl::log {
namespace {

std::atomic<Level> g_least{Level::info};
std::atomic<Format> g_format{Format::text};

constexpr std::string_view name(Level level) {
  switch (level) {
    case Level::debug:
      return "debug";
    case Level::info:
      return "info";
    case Level::warn:
      return "warn";
    case Level::error:
      return "error";
  }
  return "info";
}

std::string timestamp() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm parts{};
  gmtime_r(&now.tv_sec, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                     now.tv_nsec / 1000000);
}

}  // namespace

void configure(Level least, Format format) {
  g_least = least;
  g_format = format;
}

void write(Level level, std::string_view message, Fields fields) {
  if (level < g_least.load(std::memory_order_relaxed)) return;
  std::string line;
  if (g_format.load(std::memory_order_relaxed) == Format::json) {
    boost::json::object o;
    o["ts"] = timestamp();
    o["level"] = name(level);
    o["msg"] = message;
    for (const auto& [key, value] : fields) o[key] = value;
    line = boost::json::serialize(o);
  } else {
    line = fmt::format("{} {:5} {}", timestamp(), name(level), message);
    for (const auto& [key, value] : fields) line += fmt::format(" {}={}", key, value);
  }
  line += '\n';
  // One write per line keeps lines of several threads and processes whole.
  if (::write(STDERR_FILENO, line.data(), line.size()) < 0) return;
}

}  // namespace atl::log
