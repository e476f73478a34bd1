#include "agent/log_ring.h"

#include <gtest/gtest.h>

namespace atl::agent {
namespace {

using Level = LogRing::Level;

std::vector<std::uint64_t> numbers(const json::object& answer) {
  std::vector<std::uint64_t> out;
  for (const json::value& entry : answer.at("entries").as_array())
    out.push_back(entry.at("seq").to_number<std::uint64_t>());
  return out;
}

TEST(LogRing, TheShapeOfAnAnswer) {
  LogRing ring;
  ring.add(Level::info, "process started", {{"pid", "7"}});
  const json::object answer = ring.after(0);
  EXPECT_EQ(answer.at("next").to_number<int>(), 2);
  const json::object& entry = answer.at("entries").as_array().at(0).as_object();
  EXPECT_EQ(entry.at("seq").to_number<int>(), 1);
  EXPECT_EQ(entry.at("level").as_string(), "info");
  EXPECT_EQ(entry.at("message").as_string(), "process started");
  EXPECT_EQ(json::serialize(entry.at("fields")), R"({"pid":"7"})");
  const std::string time(entry.at("timestamp").as_string());
  ASSERT_EQ(time.size(), 24u) << time;
  EXPECT_EQ(time[10], 'T');
  EXPECT_EQ(time[23], 'Z');
}

TEST(LogRing, GoesOnAfterWhatWasSeen) {
  LogRing ring;
  EXPECT_EQ(json::serialize(ring.after(0)), R"({"entries":[],"next":1})");
  for (int i = 0; i < 5; ++i) ring.add(Level::warn, "x");
  EXPECT_EQ(numbers(ring.after(3)), (std::vector<std::uint64_t>{4, 5}));
  EXPECT_EQ(json::serialize(ring.after(5)), R"({"entries":[],"next":6})");
  // Somebody who counts by an earlier boot.
  EXPECT_EQ(json::serialize(ring.after(900)), R"({"entries":[],"next":6})");
}

TEST(LogRing, KeepsTheNewestAndTellsPageByPage) {
  LogRing ring;
  for (std::size_t i = 0; i < kLogEntries + 100; ++i) ring.add(Level::info, "x");
  std::uint64_t after = 0;
  std::size_t total = 0;
  for (int page = 0; page < 20; ++page) {
    const json::object answer = ring.after(after);
    const auto seen = numbers(answer);
    if (seen.empty()) break;
    if (page == 0) {
      EXPECT_EQ(seen.front(), 101u);
    }
    EXPECT_LE(seen.size(), kLogPage);
    total += seen.size();
    after = answer.at("next").to_number<std::uint64_t>() - 1;
    EXPECT_EQ(after, seen.back());
  }
  EXPECT_EQ(total, kLogEntries);
}

TEST(LogRing, BytesAreBounded) {
  LogRing ring;
  for (int i = 0; i < 1000; ++i) ring.add(Level::error, std::string(100'000, 'a'));
  std::size_t total = 0;
  std::uint64_t after = 0;
  for (;;) {
    const json::object answer = ring.after(after);
    const std::string text = json::serialize(answer);
    EXPECT_LT(text.size(), 2 * kLogPageBytes);
    const auto seen = numbers(answer);
    if (seen.empty()) break;
    total += text.size();
    after = seen.back();
  }
  EXPECT_LT(total, 2 * kLogBytes);
  EXPECT_GT(total, kLogBytes / 2);
}

TEST(LogRing, TextIsAlwaysUtf8) {
  EXPECT_EQ(printable("gr\xC3\xBC\xC3\x9F", 100), "gr\xC3\xBC\xC3\x9F");
  EXPECT_EQ(printable("a\xFFz", 100), "a\xEF\xBF\xBDz");
  EXPECT_EQ(printable("\xC3", 100), "\xEF\xBF\xBD");
  EXPECT_EQ(printable("\xED\xA0\x80", 100).find('\xED'), std::string::npos) << "a surrogate";
  EXPECT_EQ(printable("ab\xC3\xBC", 3), "ab");
}

}  // namespace
}  // namespace atl::agent
