#include "executor/rate_limiter.h"

#include <algorithm>

namespace atl::executor {

double RateLimiter::filled(const Bucket& bucket, Clock::time_point now) const {
  const double passed = std::chrono::duration<double>(now - bucket.at).count();
  const double per_second = double(rate_.count) / double(rate_.per.count());
  return std::min(double(rate_.count), bucket.left + std::max(0.0, passed) * per_second);
}

bool RateLimiter::take(std::string address, Clock::time_point now) {
  std::lock_guard lock(mutex_);
  if (buckets_.size() >= kMostAddresses) forget_full(now);
  // More addresses than anybody has: the newcomers share one bucket.
  if (buckets_.size() >= kMostAddresses && !buckets_.contains(address)) address.clear();
  const auto [it, fresh] =
      buckets_.try_emplace(std::move(address), Bucket{double(rate_.count), now});
  Bucket& bucket = it->second;
  bucket.left = filled(bucket, now);
  bucket.at = now;
  if (bucket.left < 1) return false;
  bucket.left -= 1;
  return true;
}

void RateLimiter::forget_full(Clock::time_point now) {
  std::erase_if(buckets_, [&](const auto& entry) {
    return filled(entry.second, now) >= double(rate_.count);
  });
}

}  // namespace atl::executor
