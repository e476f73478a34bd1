#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "engine/testing/fixture.h"

namespace atl::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Fixture;
using testing::ManualClock;

Caller stranger() { return Caller{"another-team", "k"}; }

TEST(Engine, CreateMakesInitialisesAndRecords) {
  Fixture f;
  auto command = f.command();
  command.secure = true;
  command.envs = {{"A", "1"}};
  command.metadata = {{"user", "x"}};
  auto made = f.run(f.engine->create(command));
  ASSERT_TRUE(made.ok()) << made.error().message;
  const auto& record = made->record;
  EXPECT_THAT(record.id.str(), ::testing::MatchesRegex("i[a-z0-9]+"));
  EXPECT_EQ(record.id.str().size(), 21u);
  EXPECT_EQ(record.template_id, testing::kTemplateId);
  EXPECT_EQ(record.alias, "base");
  EXPECT_EQ(record.state, SandboxState::running);
  EXPECT_EQ(record.end_at - record.started_at, seconds(60));
  ASSERT_TRUE(made->access_token);
  EXPECT_EQ(made->access_token->size(), 64u);
  EXPECT_FALSE(made->traffic_token);

  ASSERT_EQ(f.runtime.specs().size(), 1u);
  EXPECT_EQ(f.runtime.specs()[0].template_id, "base-1");
  EXPECT_EQ(f.runtime.specs()[0].limits.memory_bytes, 512ull << 20);
  EXPECT_EQ(f.runtime.specs()[0].boot_id.size(), 36u);
  ASSERT_EQ(f.runtime.inits().size(), 1u);
  const auto init = parse_json(f.runtime.inits()[0]).value();
  EXPECT_EQ(init.at("accessToken").as_string(), *made->access_token);
  EXPECT_EQ(init.at("envVars").at("A").as_string(), "1");
  EXPECT_EQ(init.at("defaultUser").as_string(), "user");
  EXPECT_EQ(init.at("sandboxId").as_string(), record.id.str());
  EXPECT_EQ(init.at("templateId").as_string(), testing::kTemplateId);
  EXPECT_EQ(init.at("memoryLimit").to_number<std::int64_t>(), 512ll << 20);
  EXPECT_TRUE(parse_rfc3339(std::string(init.at("timestamp").as_string())));

  // What the client was told is in the store.
  auto row = f.store->find_sandbox(record.id);
  ASSERT_TRUE(row.ok() && row->has_value());
  EXPECT_EQ(**row, record);
  ASSERT_NE(f.engine->route(record.id), nullptr);
  EXPECT_EQ(f.engine->route_by_access_token(*made->access_token)->id(), record.id);
}

TEST(Engine, InsecureSandboxesHaveNoToken) {
  Fixture f;
  auto made = f.run(f.engine->create(f.command()));
  ASSERT_TRUE(made.ok());
  EXPECT_FALSE(made->access_token);
  EXPECT_FALSE(parse_json(f.runtime.inits()[0]).value().as_object().contains("accessToken"));
}

TEST(Engine, TokensStayTheSameOverRestarts) {
  testing::Home home;
  const auto id = *SandboxId::parse("isame");
  const std::string keys = (home.path() / "keys").string();
  auto first = Tokens::load(keys);
  auto second = Tokens::load(keys);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->access_token(id), second->access_token(id));
  EXPECT_NE(first->access_token(id), first->traffic_token(id));
  EXPECT_NE(first->access_token(id), first->access_token(*SandboxId::parse("iother")));
  testing::Home other;
  auto third = Tokens::load((other.path() / "keys").string());
  ASSERT_TRUE(third.ok());
  EXPECT_NE(first->access_token(id), third->access_token(id));
}

TEST(Engine, BadCommandsAreRefusedBeforeAnythingIsMade) {
  Fixture f;
  auto command = f.command();
  command.template_reference = "nothing";
  EXPECT_EQ(f.run(f.engine->create(command)).error().message, "template 'nothing' not found");
  command = f.command();
  command.timeout = seconds(0);
  EXPECT_EQ(f.run(f.engine->create(command)).error().message, "Timeout must be greater than 0");
  command.timeout = std::chrono::hours(25);
  EXPECT_EQ(f.run(f.engine->create(command)).error().message,
            "Timeout cannot be greater than 24 hours");
  EXPECT_TRUE(f.runtime.specs().empty());
  EXPECT_TRUE(f.store->live_sandboxes()->empty());
}

TEST(Engine, AFailedCreateLeavesNothing) {
  Fixture f;
  f.runtime.failing_creates = 1;
  auto failed = f.run(f.engine->create(f.command()));
  ASSERT_FALSE(failed.ok());
  EXPECT_THAT(failed.error().message, ::testing::HasSubstr("mount the root"));
  EXPECT_TRUE(Fixture::eventually([&] { return f.engine->live() == 0; }));

  f.runtime.init_status = 500;  // the agent refuses
  failed = f.run(f.engine->create(f.command()));
  ASSERT_FALSE(failed.ok());
  EXPECT_THAT(failed.error().message, ::testing::HasSubstr("init of the agent"));
  EXPECT_TRUE(Fixture::eventually([&] { return f.engine->live() == 0; }));
  EXPECT_TRUE(f.runtime.alive().empty());
  EXPECT_TRUE(f.store->live_sandboxes()->empty());
  EXPECT_EQ(f.engine->list({.team_id = f.caller().team_id}).items.size(), 0u);
}

TEST(Engine, KillRemovesEverythingAtOnce) {
  Fixture f;
  auto made = f.run(f.engine->create(f.command()));
  ASSERT_TRUE(made.ok());
  const SandboxId id = made->record.id;
  auto route = f.engine->route(id);
  bool told = false;
  bool routed_when_told = true;
  auto subscription = Route::subscribe(route, [&] {
    told = true;
    routed_when_told = f.engine->route(id) != nullptr;
  });
  ASSERT_TRUE(f.run(f.engine->kill(f.caller(), id)).ok());
  EXPECT_TRUE(told);
  EXPECT_FALSE(routed_when_told) << "connections must break only after the route is gone";
  EXPECT_EQ(f.engine->route(id), nullptr);
  EXPECT_EQ(f.engine->info(f.caller(), id).error().code, Errc::not_found);
  EXPECT_TRUE(f.runtime.alive().empty());
  EXPECT_EQ((*f.store->find_sandbox(id))->state, SandboxState::killed);
  EXPECT_EQ(f.run(f.engine->kill(f.caller(), id)).error().code, Errc::not_found);
}

TEST(Engine, ConcurrentKillsGiveOneSuccess) {
  Fixture f;
  auto made = f.run(f.engine->create(f.command()));
  ASSERT_TRUE(made.ok());
  std::vector<std::future<void>> done;
  std::atomic<int> succeeded = 0;
  std::atomic<int> missing = 0;
  const auto kill = [](Fixture& f, SandboxId id, std::atomic<int>& ok,
                       std::atomic<int>& gone) -> net::Task<void> {
    auto killing = f.engine->kill(f.caller(), id);
    auto result = co_await std::move(killing);
    if (result.ok())
      ++ok;
    else if (result.error().code == Errc::not_found)
      ++gone;
  };
  for (int i = 0; i < 8; ++i) {
    done.push_back(net::asio::co_spawn(net::asio::make_strand(f.threads.io),
                                       kill(f, made->record.id, succeeded, missing),
                                       net::asio::use_future));
  }
  for (auto& future : done) future.get();
  EXPECT_EQ(succeeded, 1);
  EXPECT_EQ(missing, 7);
}

TEST(Engine, OtherTeamsSeeNothing) {
  Fixture f;
  auto made = f.run(f.engine->create(f.command()));
  ASSERT_TRUE(made.ok());
  const SandboxId id = made->record.id;
  EXPECT_EQ(f.engine->info(stranger(), id).error().code, Errc::not_found);
  EXPECT_EQ(f.engine->set_timeout(stranger(), id, seconds(1)).error().code, Errc::not_found);
  EXPECT_EQ(f.engine->refresh(stranger(), id, seconds(1)).error().code, Errc::not_found);
  EXPECT_EQ(f.run(f.engine->connect(stranger(), id, seconds(1))).error().code, Errc::not_found);
  EXPECT_EQ(f.run(f.engine->kill(stranger(), id)).error().code, Errc::not_found);
  EXPECT_TRUE(f.engine->list({.team_id = "another-team"}).items.empty());
  EXPECT_TRUE(f.engine->info(f.caller(), id).ok());
}

TEST(Engine, ADestroyThatFailsIsToldAndRepeated) {
  Fixture f;
  auto made = f.run(f.engine->create(f.command()));
  ASSERT_TRUE(made.ok());
  f.runtime.failing_destroys = 2;
  auto killed = f.run(f.engine->kill(f.caller(), made->record.id));
  ASSERT_FALSE(killed.ok());
  EXPECT_THAT(killed.error().message, ::testing::HasSubstr("busy"));
  EXPECT_EQ(f.engine->route(made->record.id), nullptr);
  EXPECT_TRUE(Fixture::eventually([&] { return f.engine->live() == 0; }));
  EXPECT_TRUE(f.runtime.alive().empty());
  EXPECT_EQ((*f.store->find_sandbox(made->record.id))->state, SandboxState::killed);
}

TEST(Engine, ExpiresAtItsEndAndNotBefore) {
  ManualClock clock;
  Fixture f({.clock = [&] { return clock.now(); }});
  auto command = f.command();
  command.timeout = seconds(10);
  auto made = f.run(f.engine->create(command));
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made->record.end_at, clock.now() + seconds(10));
  clock.advance(seconds(10) - std::chrono::microseconds(1));
  f.engine->clock_changed();
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_TRUE(f.engine->info(f.caller(), made->record.id).ok());
  clock.advance(std::chrono::microseconds(1));
  f.engine->clock_changed();
  EXPECT_TRUE(Fixture::eventually([&] { return f.engine->live() == 0; }));
  EXPECT_TRUE(f.runtime.alive().empty());
}

TEST(Engine, ExpiryIsPunctualOnTheRealClock) {
  Fixture f;
  auto made = f.run(f.engine->create(f.command()));
  ASSERT_TRUE(made.ok());
  ASSERT_TRUE(f.engine->set_timeout(f.caller(), made->record.id, seconds(1)).ok());
  const auto end = f.engine->info(f.caller(), made->record.id)->record.end_at;
  ASSERT_TRUE(Fixture::eventually([&] { return f.engine->route(made->record.id) == nullptr; }));
  const auto late = now() - end;
  EXPECT_GE(late, milliseconds(0));
  EXPECT_LT(late, milliseconds(100));
}

TEST(Engine, SetTimeoutMovesTheEndBothWays) {
  ManualClock clock;
  Fixture f({.clock = [&] { return clock.now(); }});
  auto made = f.run(f.engine->create(f.command()));
  ASSERT_TRUE(made.ok());
  const SandboxId id = made->record.id;
  const auto end = [&] { return f.engine->info(f.caller(), id)->record.end_at; };
  ASSERT_TRUE(f.engine->set_timeout(f.caller(), id, seconds(5)).ok());
  EXPECT_EQ(end(), clock.now() + seconds(5));
  ASSERT_TRUE(f.engine->set_timeout(f.caller(), id, seconds(500)).ok());
  EXPECT_EQ(end(), clock.now() + seconds(500));
  EXPECT_EQ((*f.store->find_sandbox(id))->end_at, end());
  clock.advance(std::chrono::hours(0) + seconds(100));
  ASSERT_TRUE(f.engine->set_timeout(f.caller(), id, std::chrono::hours(24 * 365)).ok());
  EXPECT_EQ(end(), made->record.started_at + std::chrono::hours(24)) << "capped silently";
  ASSERT_TRUE(f.engine->set_timeout(f.caller(), id, seconds(0)).ok());
  EXPECT_TRUE(Fixture::eventually([&] { return f.engine->live() == 0; }));
}

TEST(Engine, RefreshAndConnectOnlyExtend) {
  ManualClock clock;
  Fixture f({.clock = [&] { return clock.now(); }});
  auto made = f.run(f.engine->create(f.command()));
  ASSERT_TRUE(made.ok());
  const SandboxId id = made->record.id;
  const auto end = [&] { return f.engine->info(f.caller(), id)->record.end_at; };
  const Timestamp first = made->record.end_at;
  auto same = f.run(f.engine->connect(f.caller(), id, seconds(10)));
  ASSERT_TRUE(same.ok());
  EXPECT_EQ(same->info.record.end_at, first);
  EXPECT_EQ(end(), first);
  ASSERT_TRUE(f.engine->refresh(f.caller(), id, seconds(0)).ok());
  EXPECT_EQ(end(), first);
  auto later = f.run(f.engine->connect(f.caller(), id, seconds(100)));
  ASSERT_TRUE(later.ok());
  EXPECT_EQ(later->info.record.end_at, clock.now() + seconds(100));
  ASSERT_TRUE(f.engine->refresh(f.caller(), id, seconds(200)).ok());
  EXPECT_EQ(end(), clock.now() + seconds(200));
  EXPECT_EQ(f.run(f.engine->connect(f.caller(), id, std::chrono::hours(25))).error().code,
            Errc::invalid_argument);
  EXPECT_EQ(f.run(f.engine->connect(f.caller(), *SandboxId::parse("nonexisting"), seconds(1)))
                .error()
                .code,
            Errc::not_found);
}

TEST(Engine, LimitsAreAnsweredAndNotQueued) {
  Fixture f({.max_sandboxes = 2});
  ASSERT_TRUE(f.run(f.engine->create(f.command())).ok());
  auto second = f.run(f.engine->create(f.command()));
  ASSERT_TRUE(second.ok());
  auto third = f.run(f.engine->create(f.command()));
  ASSERT_FALSE(third.ok());
  EXPECT_EQ(third.error().code, Errc::resource_exhausted);
  EXPECT_THAT(
      third.error().message,
      ::testing::StartsWith("you have reached the maximum number of concurrent E2B sandboxes (2)"));
  ASSERT_TRUE(f.run(f.engine->kill(f.caller(), second->record.id)).ok());
  EXPECT_TRUE(f.run(f.engine->create(f.command())).ok());
}

TEST(Engine, ACreateThatTakesTooLongIsGivenUpAndRemoved) {
  Fixture f({.create_deadline = milliseconds(50)});
  f.runtime.create_takes = milliseconds(200);
  auto made = f.run(f.engine->create(f.command()));
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, Errc::deadline_exceeded);
  EXPECT_EQ(f.engine->live(), 1u) << "it counts until it is gone";
  EXPECT_TRUE(Fixture::eventually([&] { return f.engine->live() == 0; }));
  EXPECT_TRUE(f.runtime.alive().empty());
  EXPECT_TRUE(f.store->live_sandboxes()->empty());
}

TEST(Engine, AnAgentThatEndsTakesItsSandboxAlong) {
  Fixture f;
  auto made = f.run(f.engine->create(f.command()));
  ASSERT_TRUE(made.ok());
  f.runtime.exit(made->record.id);
  f.runtime.exit(*SandboxId::parse("unknown"));
  EXPECT_EQ(f.engine->route(made->record.id), nullptr);
  EXPECT_TRUE(Fixture::eventually([&] { return f.engine->live() == 0; }));
  EXPECT_TRUE(f.runtime.alive().empty());
}

TEST(Engine, StartRemovesWhatAnEarlierRunLeft) {
  Fixture f({}, false);
  store::SandboxRecord row{.id = *SandboxId::parse("iold")};
  row.team_id = f.caller().team_id;
  row.state = SandboxState::running;
  ASSERT_TRUE(f.store->insert_sandbox(row).ok());
  f.runtime.add_leftover(row.id);
  f.runtime.add_leftover(*SandboxId::parse("iunknown"));
  ASSERT_TRUE(f.run(f.engine->start()).ok());
  EXPECT_TRUE(f.runtime.alive().empty());
  EXPECT_EQ((*f.store->find_sandbox(row.id))->state, SandboxState::killed);
  EXPECT_EQ(f.engine->info(f.caller(), row.id).error().code, Errc::not_found);
}

TEST(Engine, ShutdownKillsAllAndRefusesMore) {
  Fixture f;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(f.run(f.engine->create(f.command())).ok());
  f.run(f.engine->shutdown(milliseconds(5'000), AtShutdown::kill_sandboxes));
  EXPECT_TRUE(f.runtime.alive().empty());
  EXPECT_TRUE(f.store->live_sandboxes()->empty());
  EXPECT_FALSE(f.engine->accepting());
  EXPECT_EQ(f.run(f.engine->create(f.command())).error().code, Errc::unavailable);
}

TEST(Engine, ListFiltersOrdersAndPages) {
  ManualClock clock;
  Fixture f({.clock = [&] { return clock.now(); }});
  std::vector<std::string> ids;
  for (int i = 0; i < 5; ++i) {
    auto command = f.command();
    command.metadata = {{"n", std::to_string(i)}, {"parity", i % 2 == 0 ? "even" : "odd"}};
    auto made = f.run(f.engine->create(command));
    ASSERT_TRUE(made.ok());
    ids.push_back(made->record.id.str());
    clock.advance(milliseconds(10));
  }
  const auto list = [&](ListQuery query) {
    query.team_id = f.caller().team_id;
    std::vector<std::string> found;
    for (const auto& item : f.engine->list(query).items) found.push_back(item.record.id.str());
    return found;
  };
  EXPECT_EQ(list({}), (std::vector<std::string>{ids[4], ids[3], ids[2], ids[1], ids[0]}));
  EXPECT_EQ(list({.order = Order::oldest_first}), ids);
  EXPECT_EQ(list({.metadata = {{"parity", "even"}}}),
            (std::vector<std::string>{ids[4], ids[2], ids[0]}));
  EXPECT_EQ(list({.metadata = {{"parity", "even"}, {"n", "2"}}}),
            (std::vector<std::string>{ids[2]}));
  EXPECT_TRUE(list({.metadata = {{"parity", "neither"}}}).empty());
  EXPECT_TRUE(list({.running = false}).empty());
  EXPECT_TRUE(list({.template_id = "other"}).empty());
  EXPECT_EQ(list({.template_id = testing::kTemplateId}).size(), 5u);

  const auto started = f.engine->info(f.caller(), *SandboxId::parse(ids[3]))->record.started_at;
  EXPECT_EQ(list({.started_after = started}), (std::vector<std::string>{ids[4], ids[3]}))
      << "inclusive";
  EXPECT_EQ(list({.started_after = started + milliseconds(1)}), (std::vector<std::string>{ids[4]}));

  for (Order order : {Order::newest_first, Order::oldest_first}) {
    std::vector<std::string> paged;
    ListQuery query{.team_id = f.caller().team_id, .order = order, .limit = 2};
    for (int guard = 0; guard < 10; ++guard) {
      const auto page = f.engine->list(query);
      EXPECT_EQ(page.total_running, 5u);
      for (const auto& item : page.items) paged.push_back(item.record.id.str());
      if (!page.more) break;
      query.after = Cursor{page.items.back().record.started_at, page.items.back().record.id.str()};
    }
    EXPECT_EQ(paged, list({.order = order}));
  }
}

TEST(Engine, SandboxesOfOneInstantAreOrderedById) {
  ManualClock clock;
  Fixture f({.clock = [&] { return clock.now(); }});
  std::vector<std::string> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(f.run(f.engine->create(f.command()))->record.id.str());
  std::sort(ids.begin(), ids.end());
  std::vector<std::string> found;
  ListQuery query{.team_id = f.caller().team_id, .limit = 1};
  for (int guard = 0; guard < 10; ++guard) {
    const auto page = f.engine->list(query);
    found.push_back(page.items.at(0).record.id.str());
    if (!page.more) break;
    query.after = Cursor{page.items.back().record.started_at, found.back()};
  }
  EXPECT_EQ(found, ids);
}

TEST(Engine, ManyAtOnce) {
  Fixture f;
  std::vector<std::future<void>> all;
  std::atomic<int> good = 0;
  const auto cycle = [](Fixture& f, std::atomic<int>& good) -> net::Task<void> {
    auto creating = f.engine->create(f.command());
    auto made = co_await std::move(creating);
    if (!made.ok()) co_return;
    auto killing = f.engine->kill(f.caller(), made->record.id);
    if ((co_await std::move(killing)).ok()) ++good;
  };
  for (int i = 0; i < 50; ++i) {
    all.push_back(net::asio::co_spawn(net::asio::make_strand(f.threads.io), cycle(f, good),
                                      net::asio::use_future));
  }
  for (auto& one : all) one.get();
  EXPECT_EQ(good, 50);
  EXPECT_EQ(f.engine->live(), 0u);
  EXPECT_TRUE(f.runtime.alive().empty());
  EXPECT_TRUE(f.store->live_sandboxes()->empty());
}

}  // namespace
}  // namespace atl::engine
