// Metrics, logs, audit and teams.
#include <gtest/gtest.h>

#include <filesystem>

#include "store/keys.h"
#include "store/store.h"

namespace atl::store {
namespace {

namespace fs = std::filesystem;
using std::chrono::hours;
using std::chrono::seconds;

class HistoryTest : public testing::Test {
 protected:
  HistoryTest() {
    std::string pattern = (fs::temp_directory_path() / "atoll-store-XXXXXX").string();
    dir_ = mkdtemp(pattern.data());
    auto opened = Store::open((dir_ / "state.db").string());
    EXPECT_TRUE(opened.ok());
    store = std::move(opened).value();
  }
  ~HistoryTest() override { fs::remove_all(dir_); }

  fs::path dir_;
  std::unique_ptr<Store> store;
  const SandboxId a = *SandboxId::parse("ia");
  const SandboxId b = *SandboxId::parse("ib");
  const Timestamp start = from_ns(1'767'225'600'000'000'000);
};

TEST_F(HistoryTest, MetricsInTimeOrder) {
  std::vector<Sample> samples;
  for (int i = 0; i < 250; ++i) {
    MetricRecord metric{.at = start + seconds(5 * i), .cpu_count = 2, .cpu_used_pct = i * 0.25};
    metric.mem_used = 1ull << 40;
    metric.disk_total = std::uint64_t(i);
    samples.push_back({i % 2 == 0 ? a : b, i % 10 == 0, metric});
  }
  ASSERT_TRUE(store->insert_metrics(samples).ok());
  auto all = store->metrics(a, start, start + hours(1), 1000);
  ASSERT_TRUE(all.ok());
  ASSERT_EQ(all->size(), 125u);
  EXPECT_EQ(all->at(3).at, start + seconds(30));
  EXPECT_EQ(all->at(3).cpu_used_pct, 1.5);
  EXPECT_EQ(all->at(3).mem_used, 1ull << 40);
  EXPECT_EQ(all->at(3).disk_total, 6u);
  auto some = store->metrics(a, start + seconds(10), start + seconds(30), 1000);
  ASSERT_EQ(some->size(), 3u) << "both ends belong to the range";
  EXPECT_EQ(store->metrics(a, start, start + hours(1), 2)->front().at, start + seconds(1230));

  // Fine samples go first, coarse ones later.
  EXPECT_EQ(*store->purge_metrics(start + hours(1), start), 225);
  EXPECT_EQ(store->metrics(a, start, start + hours(1), 1000)->size(), 25u);
  EXPECT_EQ(*store->purge_metrics(start + hours(1), start + seconds(100)), 2);
}

TEST_F(HistoryTest, LogsAreFilteredAndTrimmed) {
  std::vector<LogLine> lines;
  for (int i = 0; i < 10; ++i) {
    LogRecord record{.at = start + seconds(i), .level = LogLevel(i % 4)};
    record.message = "line " + std::to_string(i);
    record.fields = {{"n", std::to_string(i)}};
    lines.push_back({record, i < 5 ? "" : "boot", i});
  }
  ASSERT_TRUE(store->append_logs(a, lines).ok());
  ASSERT_TRUE(store->append_logs(b, {lines[0]}).ok());
  auto all = store->logs(a, {});
  ASSERT_EQ(all->size(), 10u);
  EXPECT_EQ(all->at(2).message, "line 2");
  EXPECT_EQ(all->at(2).level, LogLevel::warn);
  EXPECT_EQ(all->at(2).fields.at("n"), "2");
  EXPECT_EQ(store->logs(a, {.limit = 3, .newest_first = true})->front().message, "line 9");
  EXPECT_EQ(store->logs(a, {.least = LogLevel::error})->size(), 2u);
  EXPECT_EQ(store->logs(a, {.search = "line 7"})->size(), 1u);
  EXPECT_EQ(store->logs(a, {.search = "%"})->size(), 0u) << "no pattern, just text";
  EXPECT_EQ(store->logs(a, {.from = start + seconds(2), .to = start + seconds(4)})->size(), 3u);
  EXPECT_EQ(*store->last_agent_seq(a, "boot"), 9);
  EXPECT_EQ(*store->last_agent_seq(a, "other"), 0);
  ASSERT_TRUE(store->trim_logs(a, 4).ok());
  EXPECT_EQ(store->logs(a, {})->size(), 4u);
  EXPECT_EQ(store->logs(a, {})->front().message, "line 6");
  ASSERT_TRUE(store->trim_logs(a, 100).ok());
  EXPECT_EQ(store->logs(a, {})->size(), 4u);
  EXPECT_EQ(store->logs(b, {})->size(), 1u);
}

TEST_F(HistoryTest, AKilledSandboxIsForgottenWithItsHistory) {
  for (const SandboxId& id : {a, b}) {
    SandboxRecord record{.id = id};
    record.team_id = store->default_team().id;
    record.created_at = start;
    record.end_at = start + (id == a ? hours(1) : hours(30));
    record.state = SandboxState::killed;
    ASSERT_TRUE(store->insert_sandbox(record).ok());
    ASSERT_TRUE(store->append_logs(id, {{LogRecord{.at = start}, "", 0}}).ok());
    ASSERT_TRUE(store->insert_metrics({{id, true, MetricRecord{.at = start}}}).ok());
  }
  EXPECT_EQ(*store->purge_killed(start + hours(25)), 1);
  EXPECT_FALSE(store->find_sandbox(a)->has_value());
  EXPECT_TRUE(store->logs(a, {})->empty());
  EXPECT_TRUE(store->metrics(a, start, start, 10)->empty());
  EXPECT_TRUE(store->find_sandbox(b)->has_value());
  EXPECT_EQ(store->logs(b, {})->size(), 1u);
  EXPECT_EQ(store->metrics(b, start, start, 10)->size(), 1u);
}

TEST_F(HistoryTest, AuditNewestFirst) {
  for (int i = 0; i < 5; ++i) {
    AuditRecord record{.at = start + seconds(i), .team_id = i < 3 ? "t1" : "t2", .key_id = "k"};
    record.action = "sandbox.create";
    record.subject = "i" + std::to_string(i);
    record.detail = "d";
    record.peer = "192.0.2.1";
    ASSERT_TRUE(store->insert_audit(record).ok());
  }
  auto all = store->audit({});
  ASSERT_EQ(all->size(), 5u);
  EXPECT_EQ(all->front().subject, "i4");
  EXPECT_EQ(all->front().peer, "192.0.2.1");
  EXPECT_EQ(all->front().action, "sandbox.create");
  EXPECT_EQ(store->audit({.team_id = "t1"})->size(), 3u);
  EXPECT_EQ(store->audit({.subject = "i1"})->size(), 1u);
  EXPECT_EQ(store->audit({.from = start + seconds(3)})->size(), 2u);
  EXPECT_EQ(store->audit({.limit = 2})->size(), 2u);
  EXPECT_EQ(*store->purge_audit(start + seconds(2)), 2);
  EXPECT_EQ(store->audit({})->size(), 3u);
}

TEST_F(HistoryTest, TeamsHaveKeysOfTheirOwn) {
  auto team = store->create_team("others");
  ASSERT_TRUE(team.ok());
  EXPECT_EQ(store->create_team("others").error().code, Errc::already_exists);
  EXPECT_EQ(store->create_team("default").error().code, Errc::already_exists);
  ASSERT_EQ(store->list_teams()->size(), 2u);
  EXPECT_EQ(store->list_teams()->front().id, store->default_team().id);
  EXPECT_EQ((*store->find_team("others"))->id, team->id);
  EXPECT_EQ((*store->find_team(team->id))->name, "others");
  EXPECT_FALSE(store->find_team("nobody")->has_value());

  auto key = create_key(*store, team->id, "first");
  ASSERT_TRUE(key.ok());
  EXPECT_EQ((*verify_key(*store, key->secret))->team_id, team->id);
  EXPECT_FALSE(*store->rename_key(store->default_team().id, key->record.id, "stolen"));
  EXPECT_TRUE(*store->rename_key(team->id, key->record.id, "second"));
  EXPECT_EQ(store->list_keys(team->id)->front().name, "second");
  EXPECT_TRUE(store->list_keys(store->default_team().id)->empty());
}

}  // namespace
}  // namespace atl::store
