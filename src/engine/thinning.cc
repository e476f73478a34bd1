#include "engine/thinning.h"

#include <algorithm>

namespace atl::engine {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

struct Row {
  hours below;
  seconds step;
};

constexpr Row kSteps[] = {{hours(1), seconds(5)},
                          {hours(6), seconds(30)},
                          {hours(12), seconds(60)},
                          {hours(24), seconds(120)},
                          {hours(7 * 24), seconds(300)}};
constexpr seconds kLongest{900};

// Sums of one step.
struct Sum {
  store::MetricRecord last;
  double cpu = 0, mem_used = 0, mem_cache = 0, disk_used = 0;
  std::size_t count = 0;

  void add(const store::MetricRecord& sample) {
    last = sample;
    cpu += sample.cpu_used_pct;
    mem_used += double(sample.mem_used);
    mem_cache += double(sample.mem_cache);
    disk_used += double(sample.disk_used);
    ++count;
  }

  store::MetricRecord mean(Timestamp at) const {
    store::MetricRecord metric = last;
    metric.at = at;
    if (count == 1) return metric;
    metric.cpu_used_pct = cpu / double(count);
    metric.mem_used = std::uint64_t(mem_used / double(count));
    metric.mem_cache = std::uint64_t(mem_cache / double(count));
    metric.disk_used = std::uint64_t(disk_used / double(count));
    return metric;
  }
};

}  // namespace

seconds step_for(std::chrono::nanoseconds range) {
  for (const Row& row : kSteps) {
    if (range < row.below) return row.step;
  }
  return kLongest;
}

std::vector<store::MetricRecord> thin(const std::vector<store::MetricRecord>& samples,
                                      Timestamp from, seconds step) {
  std::vector<store::MetricRecord> points;
  Sum sum;
  std::int64_t current = 0;
  const std::int64_t width = std::chrono::nanoseconds(step).count();
  const auto flush = [&] {
    if (sum.count > 0) points.push_back(sum.mean(std::max(from_ns(current * width), from)));
    sum = Sum();
  };
  for (const store::MetricRecord& sample : samples) {
    const std::int64_t bucket = to_ns(sample.at) / width;
    if (bucket != current) flush();
    current = bucket;
    sum.add(sample);
  }
  flush();
  return points;
}

}  // namespace atl::engine
