// How many points of a metric a client gets: one per step, and the step grows with the range.
#pragma once

#include <chrono>
#include <vector>

#include "store/records.h"

namespace atl::engine {

std::chrono::seconds step_for(std::chrono::nanoseconds range);

// The mean of the samples of each step, stamped with the beginning of the step, or with `from` when
// that is later. `samples` are in time order.
std::vector<store::MetricRecord> thin(const std::vector<store::MetricRecord>& samples,
                                      Timestamp from, std::chrono::seconds step);

}  // namespace atl::engine
