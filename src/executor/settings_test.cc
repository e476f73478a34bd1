#include "executor/settings.h"

#include <gtest/gtest.h>

#include "executor/rate_limiter.h"

namespace atl::executor {
namespace {

using namespace std::chrono_literals;

TEST(ExecutorSettings, TimesAreWrittenAsPeopleWriteThem) {
  const std::pair<const char*, std::chrono::seconds> good[] = {
      {"10s", 10s},  {"90s", 90s}, {"2m", 120s}, {"1m30s", 90s},
      {"1h", 3600s}, {"7", 7s},    {"0m5s", 5s}, {"0h59m59s", 3599s}};
  for (const auto& [text, expected] : good) {
    const auto parsed = parse_time(text);
    ASSERT_TRUE(parsed.ok()) << text;
    EXPECT_EQ(*parsed, expected) << text;
  }
  for (const char* bad : {"", "s", "m30s", "1m30", "30s1m", "1s1s", "-5s", "1.5s", "10 s", "10S",
                          "0s", "2h", "10ms", "99999999999999999999s", "1d", " 10s"}) {
    EXPECT_EQ(parse_time(bad).error().code, Errc::invalid_argument) << bad;
  }
}

TEST(ExecutorSettings, SizesAreWrittenAsDockerTakesThem) {
  const std::pair<const char*, std::uint64_t> good[] = {
      {"256m", 256ull << 20}, {"256M", 256ull << 20},      {"256mb", 256ull << 20},
      {"1g", 1ull << 30},     {"1GiB", 1ull << 30},        {"262144k", 256ull << 20},
      {"64m", 64ull << 20},   {"268435456", 256ull << 20}, {"268435456b", 256ull << 20}};
  for (const auto& [text, expected] : good) {
    const auto parsed = parse_memory(text);
    ASSERT_TRUE(parsed.ok()) << text;
    EXPECT_EQ(*parsed, expected) << text;
  }
  for (const char* bad : {"", "m", "63m", "0", "-1g", "1.5g", "256 m", "256x", "256mi", "256mbb",
                          "99999999999999g", "2t"}) {
    EXPECT_EQ(parse_memory(bad).error().code, Errc::invalid_argument) << bad;
  }
}

TEST(ExecutorSettings, Rates) {
  EXPECT_EQ(*parse_rate("5/s"), (Rate{5, 1s}));
  EXPECT_EQ(*parse_rate("5/second"), (Rate{5, 1s}));
  EXPECT_EQ(*parse_rate("100/m"), (Rate{100, 60s}));
  EXPECT_EQ(*parse_rate("1/minute"), (Rate{1, 60s}));
  EXPECT_EQ(*parse_rate("off"), std::nullopt);
  EXPECT_EQ(*parse_rate(""), std::nullopt);
  for (const char* bad : {"5", "0/s", "5/h", "/s", "-1/s", "5 /s", "1.5/s", "s", "5/ss"}) {
    EXPECT_EQ(parse_rate(bad).error().code, Errc::invalid_argument) << bad;
  }
}

TEST(RateLimiter, RefillsEvenlyPerAddress) {
  RateLimiter limiter({2, 1s});
  const RateLimiter::Clock::time_point start{};
  EXPECT_TRUE(limiter.take("10.0.0.1", start));
  EXPECT_TRUE(limiter.take("10.0.0.1", start));
  EXPECT_FALSE(limiter.take("10.0.0.1", start));
  EXPECT_TRUE(limiter.take("10.0.0.2", start)) << "another client has its own";
  EXPECT_FALSE(limiter.take("10.0.0.1", start + 400ms));
  EXPECT_TRUE(limiter.take("10.0.0.1", start + 500ms));
  EXPECT_FALSE(limiter.take("10.0.0.1", start + 600ms));
  // Never more than the count, however long it was quiet.
  EXPECT_TRUE(limiter.take("10.0.0.1", start + 1h));
  EXPECT_TRUE(limiter.take("10.0.0.1", start + 1h));
  EXPECT_FALSE(limiter.take("10.0.0.1", start + 1h));
}

TEST(RateLimiter, IsBounded) {
  RateLimiter limiter({1, 1s});
  const RateLimiter::Clock::time_point start{};
  for (std::size_t i = 0; i < RateLimiter::kMostAddresses; ++i)
    ASSERT_TRUE(limiter.take("client " + std::to_string(i), start));
  // All buckets are empty: newcomers share one.
  EXPECT_TRUE(limiter.take("new", start));
  EXPECT_FALSE(limiter.take("newer", start));
  // Full ones are forgotten.
  EXPECT_TRUE(limiter.take("newest", start + 2s));
  EXPECT_TRUE(limiter.take("newest of all", start + 2s));
}

}  // namespace
}  // namespace atl::executor
