// RateLimiter: so many requests in such a time from each client address, as a bucket that fills
// again evenly. Thread-safe; bounded: addresses whose bucket is full again are forgotten.
#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <unordered_map>

#include "executor/settings.h"

namespace atl::executor {

class RateLimiter {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kMostAddresses = 10'000;

  explicit RateLimiter(Rate rate) : rate_(rate) {}
  // False: too many.
  bool take(std::string address, Clock::time_point now);

 private:
  struct Bucket {
    double left = 0;
    Clock::time_point at{};
  };
  double filled(const Bucket& bucket, Clock::time_point now) const;
  void forget_full(Clock::time_point now);

  const Rate rate_;
  std::mutex mutex_;
  std::unordered_map<std::string, Bucket> buckets_;
};

}  // namespace atl::executor
