#include <gmock/gmock.h>

#include "api_server/encode.h"
#include "api_server/query.h"
#include "api_server/testing.h"

namespace atl::api {
namespace {

using engine::testing::Got;

net::RequestHead asking(const std::string& query) {
  net::RequestHead head;
  head.target = "/x?" + query;
  return head;
}

TEST(MetricRange, SecondsInOrder) {
  auto range = decode_metric_range(asking("start=10&end=20"));
  ASSERT_TRUE(range.ok());
  EXPECT_EQ(to_ns(*range->start), 10'000'000'000);
  EXPECT_EQ(to_ns(*range->end), 20'000'000'000);
  EXPECT_FALSE(decode_metric_range(asking(""))->start.has_value());
  auto wrong = decode_metric_range(asking("start=20&end=10"));
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().message, "Invalid time range for metrics");
  for (const char* bad : {"start=x", "start=-1", "end=1.5", "end=99999999999999999999"})
    EXPECT_FALSE(decode_metric_range(asking(bad)).ok()) << bad;
  EXPECT_TRUE(decode_metric_range(asking("end=253402300799")).ok()) << "the year 9999";
}

TEST(SandboxIds, AtMostAHundred) {
  EXPECT_EQ(decode_sandbox_ids(asking("sandbox_ids=ia,ib-6532622b"))->size(), 2u);
  std::string many = "sandbox_ids=i0";
  for (int i = 1; i < 100; ++i) many += ",i" + std::to_string(i);
  EXPECT_EQ(decode_sandbox_ids(asking(many))->size(), 100u);
  EXPECT_FALSE(decode_sandbox_ids(asking(many + ",i100")).ok());
  for (const char* bad : {"", "sandbox_ids=", "sandbox_ids=a,,b", "sandbox_ids=A"})
    EXPECT_FALSE(decode_sandbox_ids(asking(bad)).ok()) << bad;
}

TEST(LogQueries, Defaults) {
  auto v1 = decode_logs_v1(asking("start=1500&limit=10"));
  ASSERT_TRUE(v1.ok());
  EXPECT_EQ(to_ns(*v1->from), 1'500'000'000);
  EXPECT_EQ(v1->limit, 10u);
  EXPECT_FALSE(v1->newest_first);
  EXPECT_EQ(decode_logs_v1(asking(""))->limit, 1000u);
  auto v2 = decode_logs_v2(asking("cursor=1500&level=warn&search=oops"));
  ASSERT_TRUE(v2.ok());
  EXPECT_TRUE(v2->newest_first);
  EXPECT_EQ(to_ns(*v2->to), 1'500'000'000);
  EXPECT_FALSE(v2->from.has_value());
  EXPECT_EQ(v2->least, store::LogLevel::warn);
  EXPECT_EQ(v2->search, "oops");
  auto forward = decode_logs_v2(asking("cursor=1500&direction=forward"));
  ASSERT_TRUE(forward.ok());
  EXPECT_FALSE(forward->newest_first);
  EXPECT_TRUE(forward->from.has_value());
  for (const std::string& bad :
       {std::string("direction=up"), std::string("level=loud"), std::string("limit=1001"),
        std::string("limit=-1"), std::string("cursor=x"), "search=" + std::string(257, 'a')})
    EXPECT_FALSE(decode_logs_v2(asking(bad)).ok()) << bad;
}

TEST(LogLines, AreJsonWithALevel) {
  store::LogRecord entry;
  entry.level = store::LogLevel::warn;
  entry.message = "line \"one\"\n";
  entry.fields = {{"pid", "7"}, {"level", "forged"}};
  const auto line = log_line_json(entry);
  const auto inner = parse_json(std::string(line.at("line").as_string())).value();
  EXPECT_EQ(inner.at("level").as_string(), "warn");
  EXPECT_EQ(inner.at("logger").as_string(), "sandbox");
  EXPECT_EQ(inner.at("message").as_string(), entry.message);
  EXPECT_EQ(inner.at("pid").as_string(), "7");
  const auto structured = log_entry_json(entry);
  EXPECT_EQ(structured.at("fields").at("pid").as_string(), "7");
}

TEST(NetworkEcho, NeverTellsThePassword) {
  engine::SandboxInfo info{.record = {.id = *SandboxId::parse("ia")}};
  info.record.network =
      R"({"egressProxy":{"address":"1.2.3.4:1080","username":"u","password":"s3cret"},"denyOut":["8.8.8.8"]})";
  const std::string text = json::serialize(detail_json(info, "d"));
  EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("s3cret")));
  EXPECT_THAT(text, ::testing::HasSubstr("\"username\":\"u\""));
  EXPECT_THAT(text, ::testing::HasSubstr("8.8.8.8"));
}

class ObserveTest : public ApiTest {};

TEST_F(ObserveTest, LogsOfANewSandbox) {
  const std::string id = create();
  const Got v1 = call("GET", "/sandboxes/" + id + "/logs");
  ASSERT_EQ(v1.status, 200) << v1.body;
  const auto logs = parsed(v1).at("logs").as_array();
  EXPECT_EQ(logs.size(), parsed(v1).at("logEntries").as_array().size());
  for (const auto& entry : logs) {
    const auto line = parse_json(std::string(entry.at("line").as_string()));
    ASSERT_TRUE(line.ok());
    EXPECT_TRUE(line->as_object().contains("level"));
  }
  const Got v2 = call("GET", "/v2/sandboxes/" + id + "/logs?limit=0");
  ASSERT_EQ(v2.status, 200);
  EXPECT_EQ(v2.body, R"({"logs":[]})");
}

TEST_F(ObserveTest, MetricsOfANewSandbox) {
  const std::string id = create();
  const Got got = call("GET", "/sandboxes/" + id + "/metrics");
  ASSERT_EQ(got.status, 200) << got.body;
  EXPECT_TRUE(parsed(got).is_array());
  EXPECT_EQ(error_of(call("GET", "/sandboxes/" + id + "/metrics?start=5&end=4"), 400),
            "Invalid time range for metrics");
  const Got all = call("GET", "/sandboxes/metrics?sandbox_ids=" + id + ",nobody");
  ASSERT_EQ(all.status, 200) << all.body;
  EXPECT_FALSE(parsed(all).at("sandboxes").as_object().contains("nobody"));
}

}  // namespace
}  // namespace atl::api
