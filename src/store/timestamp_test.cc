#include "store/timestamp.h"

#include <gtest/gtest.h>

namespace atl {
namespace {

TEST(Timestamp, PrintsUtcWithSixDigits) {
  EXPECT_EQ(to_rfc3339(from_ns(0)), "1970-01-01T00:00:00.000000Z");
  EXPECT_EQ(to_rfc3339(from_ns(1'767'225'599'123'456'789)), "2025-12-31T23:59:59.123456Z");
}

TEST(Timestamp, WhatWasPrintedParsesToTheSameInstant) {
  for (int i = 0; i < 100; ++i) {
    const Timestamp t = now() + std::chrono::microseconds(i * 7'919);
    EXPECT_EQ(parse_rfc3339(to_rfc3339(t)), t);
  }
}

TEST(Timestamp, ParsesEveryFormThatClientsSend) {
  const Timestamp t = from_ns(1'767'225'599'120'000'000);
  EXPECT_EQ(parse_rfc3339("2025-12-31T23:59:59.12Z"), t);
  EXPECT_EQ(parse_rfc3339("2025-12-31T23:59:59.120000000Z"), t);
  EXPECT_EQ(parse_rfc3339("2026-01-01T01:29:59.12+01:30"), t);
  EXPECT_EQ(parse_rfc3339("2025-12-31t15:59:59.120-08:00"), t);
  EXPECT_EQ(parse_rfc3339("2025-12-31T23:59:59z"), t - std::chrono::milliseconds(120));
}

TEST(Timestamp, RefusesEverythingElse) {
  for (const char* text :
       {"", "2025", "2025-12-31", "2025-12-31T23:59:59", "2025-13-01T00:00:00Z",
        "2025-02-30T00:00:00Z", "2025-12-31T24:00:00Z", "2025-12-31T23:60:00Z",
        "2025-12-31T23:59:59.Z", "2025-12-31T23:59:59Zx", "2025-12-31T23:59:59+0100",
        "x025-12-31T23:59:59Z", "9999-12-31T23:59:59Z", "1969-12-31T23:59:59Z"}) {
    EXPECT_FALSE(parse_rfc3339(text)) << text;
  }
}

}  // namespace
}  // namespace atl
