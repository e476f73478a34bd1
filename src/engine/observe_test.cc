// Metrics, logs, audit, figures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/agent_client.h"
#include "engine/testing/fixture.h"
#include "engine/thinning.h"

namespace atl::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Fixture;
using testing::ManualClock;

SandboxId make(Fixture& f, const std::function<void(CreateCommand&)>& change = {}) {
  auto command = f.command();
  if (change) change(command);
  auto made = f.run(f.engine->create(command));
  EXPECT_TRUE(made.ok()) << made.error().message;
  return made->record.id;
}

TEST(Metrics, SampledWhileItRuns) {
  Fixture f({.sample_every = milliseconds(20)});
  const SandboxId id = make(f);
  ASSERT_TRUE(Fixture::eventually(
      [&] { return f.store->metrics(id, {}, now() + seconds(1), 100)->size() >= 5; }));
  const auto metrics = f.engine->metrics(f.caller(), id, std::nullopt, std::nullopt);
  ASSERT_TRUE(metrics.ok());
  ASSERT_GE(metrics->size(), 1u) << "one per five seconds";
  const auto& metric = metrics->front();
  EXPECT_EQ(metric.cpu_count, 2u);
  EXPECT_EQ(metric.mem_total, 512ull << 20);
  EXPECT_EQ(metric.mem_used, 32ull << 20);
  EXPECT_EQ(metric.mem_cache, 8ull << 20);
  EXPECT_EQ(metric.disk_total, 1ull << 30);
  EXPECT_GT(metric.cpu_used_pct, 0);
  EXPECT_LE(metric.cpu_used_pct, 100);
  const auto last = f.engine->last_metrics(f.caller(), {id, *SandboxId::parse("iunknown")});
  EXPECT_EQ(last.size(), 1u);
  EXPECT_TRUE(last.contains(id.str()));
  EXPECT_TRUE(f.engine->last_metrics({"another", "k", {}}, {id}).empty());
  const Timestamp long_ago = now() - std::chrono::hours(3);
  EXPECT_TRUE(f.engine->metrics(f.caller(), id, long_ago, long_ago + seconds(60))->empty());
  EXPECT_EQ(f.engine->metrics(f.caller(), id, long_ago + seconds(1), long_ago).error().message,
            "Invalid time range for metrics");
  EXPECT_EQ(f.engine->metrics({"another", "k", {}}, id, {}, {}).error().code, Errc::not_found);

  ASSERT_TRUE(f.run(f.engine->pause(f.caller(), id, true)).ok());
  std::this_thread::sleep_for(milliseconds(60));
  const auto count = f.store->metrics(id, {}, now() + seconds(1), 10'000)->size();
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(f.store->metrics(id, {}, now() + seconds(1), 10'000)->size(), count)
      << "a paused one uses nothing";
}

TEST(Metrics, TheStepGrowsWithTheRange) {
  using std::chrono::hours;
  EXPECT_EQ(step_for(std::chrono::minutes(59)), seconds(5));
  EXPECT_EQ(step_for(hours(1)), seconds(30));
  EXPECT_EQ(step_for(hours(6)), seconds(60));
  EXPECT_EQ(step_for(hours(12)), seconds(120));
  EXPECT_EQ(step_for(hours(24)), seconds(300));
  EXPECT_EQ(step_for(hours(24 * 7)), seconds(900));

  const Timestamp start = from_ns(1'767'225'600'000'000'000);
  std::vector<store::MetricRecord> samples;
  for (int i = 0; i < 24; ++i) {
    samples.push_back({.at = start + seconds(2 + 5 * i), .cpu_used_pct = double(i)});
  }
  const auto points = thin(samples, start, seconds(30));
  ASSERT_EQ(points.size(), 4u);
  EXPECT_EQ(points[0].at, start);
  EXPECT_EQ(points[1].at, start + seconds(30));
  EXPECT_DOUBLE_EQ(points[0].cpu_used_pct, 2.5);
  EXPECT_EQ(thin(samples, start + seconds(1), seconds(30))[0].at, start + seconds(1))
      << "never before the range";
  EXPECT_TRUE(thin({}, start, seconds(5)).empty());
}

TEST(Logs, WhatHappenedAndWhatTheAgentSays) {
  Fixture f;
  f.runtime.agent_logs =
      R"({"entries":[{"seq":1,"timestamp":"2026-01-01T00:00:00Z","level":"warn","message":"from inside","fields":{"pid":7}},)"
      R"({"seq":2,"timestamp":"2999-01-01T00:00:00Z","level":"info","message":"future"},{"seq":"x"},7],"next":3})";
  const SandboxId id = make(f);
  ASSERT_TRUE(f.run(f.engine->pause(f.caller(), id, true)).ok());
  ASSERT_TRUE(f.run(f.engine->connect(f.caller(), id, seconds(60))).ok());
  const auto messages = [&](LogQuery query = {}) {
    auto logs = f.run(f.engine->logs(f.caller(), id, query));
    EXPECT_TRUE(logs.ok());
    std::vector<std::string> out;
    for (const auto& line : *logs) {
      EXPECT_LE(line.at, now());
      out.push_back(line.message);
    }
    return out;
  };
  EXPECT_THAT(messages(),
              ::testing::UnorderedElementsAre("from inside", "sandbox created", "sandbox paused",
                                              "sandbox resumed", "future"));
  EXPECT_THAT(messages(), ::testing::SizeIs(5)) << "lines are taken once";
  EXPECT_THAT(messages({.least = store::LogLevel::warn}), ::testing::ElementsAre("from inside"));
  EXPECT_EQ(f.run(f.engine->logs({"another", "k", {}}, id, {})).error().code, Errc::not_found);
  ASSERT_TRUE(f.run(f.engine->kill(f.caller(), id)).ok());
  EXPECT_THAT(messages(), ::testing::Contains("sandbox killed")) << "kept after the kill";
  EXPECT_EQ(f.run(f.engine->logs(f.caller(), *SandboxId::parse("iunknown"), {})).error().code,
            Errc::not_found);
}

TEST(Logs, AnAgentIsNotTrusted) {
  const Timestamp latest = now();
  for (const char* bad : {"", "[]", "{}", R"({"entries":7})", "nonsense"}) {
    EXPECT_FALSE(parse_agent_logs(bad, 0, latest).ok()) << bad;
  }
  std::string many = R"({"entries":[)";
  for (int i = 1; i <= 2000; ++i) {
    many += (i > 1 ? "," : "") + std::string(R"({"seq":)") + std::to_string(i) + "}";
  }
  many += "]}";
  EXPECT_EQ(parse_agent_logs(many, 0, latest)->entries.size(), kMaxAgentLines);
  const std::string long_line = R"({"entries":[{"seq":5,"message":")" + std::string(100'000, 'x') +
                                R"(","level":9,"fields":{"a":[1,2]}},{"seq":4},{"seq":6}]})";
  const auto logs = parse_agent_logs(long_line, 4, latest);
  ASSERT_TRUE(logs.ok());
  ASSERT_EQ(logs->entries.size(), 2u) << "numbers only rise";
  EXPECT_EQ(logs->entries[0].record.message.size(), kMaxAgentMessage);
  EXPECT_EQ(logs->entries[0].record.fields.at("a"), "[1,2]");
  EXPECT_EQ(logs->entries[0].record.at, latest);
}

TEST(Audit, WhoDidWhat) {
  ManualClock clock;
  Fixture f({.clock = [&] { return clock.now(); }});
  const auto from = [&](CreateCommand& command) { command.caller.peer = "192.0.2.7"; };
  const SandboxId id = make(f, from);
  Caller caller = f.caller();
  caller.peer = "192.0.2.8";
  ASSERT_TRUE(f.engine->set_timeout(caller, id, seconds(100)).ok());
  ASSERT_TRUE(f.run(f.engine->update_network(caller, id, {})).ok());
  ASSERT_TRUE(f.run(f.engine->pause(caller, id, true)).ok());
  ASSERT_TRUE(f.run(f.engine->connect(caller, id, seconds(10))).ok());
  clock.advance(seconds(20));
  f.engine->clock_changed();
  ASSERT_TRUE(Fixture::eventually([&] { return f.engine->live() == 0; }));
  const auto rows = f.store->audit({.subject = id.str()});
  ASSERT_TRUE(rows.ok());
  std::vector<std::string> actions;
  for (const auto& row : *rows) actions.push_back(row.action + " " + row.key_id + " " + row.peer);
  const std::string key = f.caller().key_id;
  EXPECT_THAT(actions,
              ::testing::ElementsAre(
                  "sandbox.kill timer ", "sandbox.resume " + key + " 192.0.2.8",
                  "sandbox.pause " + key + " 192.0.2.8", "sandbox.network " + key + " 192.0.2.8",
                  "sandbox.timeout " + key + " 192.0.2.8", "sandbox.create " + key + " 192.0.2.7"));
}

TEST(Statistics, CountWhatHappens) {
  Fixture f;
  const SandboxId paused = make(f);
  const SandboxId killed = make(f);
  make(f);
  ASSERT_TRUE(f.run(f.engine->pause(f.caller(), paused, true)).ok());
  ASSERT_TRUE(f.run(f.engine->kill(f.caller(), killed)).ok());
  f.runtime.failing_creates = 1;
  EXPECT_FALSE(f.run(f.engine->create(f.command())).ok());
  const Statistics figures = f.engine->statistics();
  EXPECT_EQ(figures.running, 1u);
  EXPECT_EQ(figures.paused, 1u);
  EXPECT_EQ(figures.created, 3u);
  EXPECT_EQ(figures.create_failures, 1u);
  EXPECT_EQ(figures.killed, 1u);
  EXPECT_EQ(figures.paused_total, 1u);
  EXPECT_EQ(figures.create_seconds.size(), 3u);
}

}  // namespace
}  // namespace atl::engine
