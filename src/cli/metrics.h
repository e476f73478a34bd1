// Prometheus: the figures of a server in the text exposition format, for `GET /metrics`.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "engine/engine.h"
#include "net/http_server.h"

namespace atl::cli {

// What the listeners count.
struct Traffic {
  std::atomic<std::uint64_t> requests{0};
  std::atomic<std::uint64_t> in_flight{0};
};

struct ProcessFigures {
  std::uint64_t rss_bytes = 0;
  std::uint64_t open_descriptors = 0;
  double cpu_seconds = 0;
};
// Of this process, from /proc/self; zeros where it cannot be read.
ProcessFigures process_figures();

struct MetricsInput {
  engine::Statistics engine;
  ProcessFigures process;
  std::uint64_t requests = 0;
  std::uint64_t in_flight = 0;
  std::uint64_t connections = 0;
  double uptime_seconds = 0;
};
std::string exposition(const MetricsInput& input);

}  // namespace atl::cli
