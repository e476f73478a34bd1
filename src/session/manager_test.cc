#include "session/manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "session/testing.h"

namespace atl::session {
namespace {

using engine::testing::Fixture;
using engine::testing::ManualClock;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::base_options;
using testing::FlakyTable;
using testing::OtherManager;

class ManagerTest : public ::testing::Test {
 protected:
  ManagerTest() : f(options_with(clock)) {
    rows = store::SessionRows::open(*f.store).value();
    table = std::make_unique<FlakyTable>(*rows);
    manager = make_manager("n1", nullptr);
    f.run(manager->start());
  }
  ~ManagerTest() override {
    if (manager) f.run(manager->stop(milliseconds(5'000)));
  }
  static engine::EngineOptions options_with(ManualClock& clock) {
    engine::EngineOptions out;
    out.clock = [&clock] { return clock.now(); };
    return out;
  }
  static ManagerOptions quick(std::string node) {
    ManagerOptions out;
    out.node = std::move(node);
    out.lease = milliseconds(3'000);
    out.renew_every = milliseconds(50);
    out.patience = milliseconds(30'000);
    out.look_again = milliseconds(5);
    out.publish_limit = milliseconds(300);
    return out;
  }
  std::unique_ptr<Manager> make_manager(std::string node, Peers* peers,
                                        store::SessionRows* mirror = nullptr) {
    return std::make_unique<Manager>(f.threads.io, *f.engine, *f.store, *table, mirror, peers,
                                     quick(std::move(node)));
  }
  Result<Acquired> acquire(const std::string& key = "x", const std::string& more = "") {
    return f.run(manager->acquire(f.caller(), key, base_options(more)));
  }
  // Several at once, through both managers in turn if there are two.
  std::vector<Acquired> race(int count, std::vector<Manager*> through) {
    std::vector<std::future<Result<Acquired>>> all;
    for (int i = 0; i < count; ++i) {
      Manager& one = *through[std::size_t(i) % through.size()];
      all.push_back(std::async(
          std::launch::async, [&] { return f.run(one.acquire(f.caller(), "x", base_options())); }));
    }
    std::vector<Acquired> out;
    for (auto& each : all) {
      auto got = each.get();
      EXPECT_TRUE(got.ok()) << got.error().message;
      if (got.ok()) out.push_back(std::move(*got));
    }
    return out;
  }
  std::size_t sandboxes() const {
    engine::ListQuery query;
    query.team_id = f.caller().team_id;
    return f.engine->list(query).items.size();
  }
  std::string state(const std::string& key = "x") {
    auto info = f.run(manager->info(f.caller(), key));
    return info.ok() ? info->state : "error: " + info.error().message;
  }
  void kill(const std::string& id) {
    ASSERT_TRUE(f.run(f.engine->kill(f.caller(), *SandboxId::parse(id))).ok());
  }
  Row row(const std::string& key = "x") { return rows->get("default", key).value().value(); }

  ManualClock clock;
  Fixture f;
  std::unique_ptr<store::SessionRows> rows;
  std::unique_ptr<FlakyTable> table;
  std::unique_ptr<Manager> manager;
};

TEST_F(ManagerTest, CreatedThenReusedThenResumed) {
  const auto first = acquire();
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_EQ(first->came, Came::created);
  EXPECT_EQ(first->session.state, "running");
  EXPECT_TRUE(first->sandbox.access_token) << "sandboxes of sessions are secured";
  EXPECT_EQ(first->sandbox.record.metadata.at("atoll.session"), "x");
  EXPECT_TRUE(first->sandbox.record.auto_pause && first->sandbox.record.auto_resume);
  const auto second = acquire();
  EXPECT_EQ(second->came, Came::reused);
  EXPECT_EQ(second->session.sandbox_id, first->session.sandbox_id);
  ASSERT_TRUE(f.run(manager->pause(f.caller(), "x")).ok());
  ASSERT_TRUE(f.run(manager->pause(f.caller(), "x")).ok()) << "a second time is fine";
  EXPECT_EQ(state(), "paused");
  const auto third = acquire();
  EXPECT_EQ(third->came, Came::resumed);
  EXPECT_EQ(third->session.sandbox_id, first->session.sandbox_id);
  EXPECT_EQ(sandboxes(), 1u);
}

TEST_F(ManagerTest, KeysAreApart) {
  EXPECT_NE(acquire("a")->session.sandbox_id, acquire("b")->session.sandbox_id);
  const std::string team = f.store->create_team("others")->id;
  const auto theirs = f.run(manager->acquire({team, "k", ""}, "a", base_options()));
  ASSERT_TRUE(theirs.ok());
  EXPECT_EQ(theirs->came, Came::created);
  EXPECT_EQ(f.run(manager->list(f.caller()))->size(), 2u);
  EXPECT_EQ(f.run(manager->list({team, "k", ""}))->size(), 1u);
}

TEST_F(ManagerTest, TenAtOnceGetOneSandbox) {
  f.runtime.create_takes = milliseconds(50);
  const auto all = race(10, {manager.get()});
  ASSERT_EQ(all.size(), 10u);
  int created = 0;
  for (const Acquired& each : all) {
    created += each.came == Came::created ? 1 : 0;
    EXPECT_EQ(each.session.sandbox_id, all[0].session.sandbox_id);
  }
  EXPECT_EQ(created, 1);
  EXPECT_EQ(sandboxes(), 1u);
}

TEST_F(ManagerTest, TenAtOnceThroughTwoNodesGetOneSandbox) {
  OtherManager to_first;
  OtherManager to_second;
  auto first = make_manager("a", &to_second);
  auto second = make_manager("b", &to_first);
  to_first.other = first.get();
  to_second.other = second.get();
  to_first.caller = to_second.caller = f.caller();
  f.runtime.create_takes = milliseconds(50);
  const auto all = race(10, {first.get(), second.get()});
  ASSERT_EQ(all.size(), 10u);
  for (const Acquired& each : all) EXPECT_EQ(each.session.sandbox_id, all[0].session.sandbox_id);
  EXPECT_EQ(std::count_if(all.begin(), all.end(),
                          [](const Acquired& each) { return each.came == Came::created; }),
            1);
  EXPECT_EQ(sandboxes(), 1u);
  // What the other node has is paused, shown and removed by it.
  const std::string owner = row().node;
  Manager& stranger = owner == "a" ? *second : *first;
  EXPECT_TRUE(f.run(stranger.pause(f.caller(), "x")).ok());
  EXPECT_EQ(f.run(stranger.info(f.caller(), "x"))->state, "paused");
  EXPECT_EQ(f.run(stranger.list(f.caller()))->at(0).state, "paused");
  EXPECT_TRUE(f.run(stranger.remove(f.caller(), "x")).ok());
  EXPECT_EQ(sandboxes(), 0u);
  f.run(first->stop(milliseconds(5'000)));
  f.run(second->stop(milliseconds(5'000)));
}

TEST_F(ManagerTest, ASilentNodeIsNotReplaced) {
  ASSERT_TRUE(acquire("x", R"(,"ttl":60)").ok());
  OtherManager gone;
  gone.dead = true;
  auto other = make_manager("b", &gone);
  const auto refused = f.run(other->acquire(f.caller(), "x", base_options()));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::unavailable);
  EXPECT_THAT(refused.error().message, ::testing::HasSubstr("n1"));
  EXPECT_EQ(sandboxes(), 1u);
  EXPECT_EQ(f.run(other->list(f.caller()))->at(0).state, "unreachable");
  // Once its time is over, the key is free.
  clock.advance(seconds(61));
  const auto made = f.run(other->acquire(f.caller(), "x", base_options()));
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(made->came, Came::created);
  f.run(other->stop(milliseconds(5'000)));
}

TEST_F(ManagerTest, DeadSandboxIsReplacedAndTheCallerIsTold) {
  const auto first = acquire();
  kill(first->session.sandbox_id);
  EXPECT_EQ(state(), "gone");
  EXPECT_TRUE(f.run(manager->pause(f.caller(), "x")).ok());
  const auto second = acquire();
  EXPECT_EQ(second->came, Came::created);
  EXPECT_NE(second->session.sandbox_id, first->session.sandbox_id);
}

TEST_F(ManagerTest, RemoveKillsAndForgets) {
  ASSERT_TRUE(acquire().ok());
  EXPECT_TRUE(f.run(manager->remove(f.caller(), "x")).ok());
  EXPECT_TRUE(f.run(manager->remove(f.caller(), "x")).ok());
  EXPECT_EQ(sandboxes(), 0u);
  EXPECT_EQ(f.run(manager->info(f.caller(), "x")).error().code, Errc::not_found);
  EXPECT_EQ(f.run(manager->pause(f.caller(), "x")).error().code, Errc::not_found);
}

TEST_F(ManagerTest, OptionsThatAreNamedChange) {
  ASSERT_TRUE(acquire("x", R"(,"metadata":{"a":"b"})").ok());
  const auto changed = acquire("x", R"(,"timeout":60,"pauseAfter":7)");
  EXPECT_EQ(changed->session.options.pause_after, seconds(7));
  EXPECT_EQ(changed->session.options.metadata.at("a"), "b");
  EXPECT_EQ(changed->sandbox.record.end_at, clock.now() + seconds(60)) << "also when it is earlier";
  const auto plain = f.run(manager->acquire(f.caller(), "x", Options{}));
  ASSERT_TRUE(plain.ok()) << plain.error().message;
  EXPECT_EQ(plain->session.options.pause_after, seconds(7));
  EXPECT_EQ(plain->session.options.template_reference, "base");
}

TEST_F(ManagerTest, IdleIsPausedAndUnusedIsForgotten) {
  ASSERT_TRUE(acquire("x", R"(,"timeout":3600,"pauseAfter":10,"ttl":100)").ok());
  clock.advance(seconds(9));
  ASSERT_TRUE(acquire().ok());
  clock.advance(seconds(9));
  ASSERT_TRUE(acquire().ok());
  EXPECT_EQ(state(), "running") << "it is in use";
  clock.advance(seconds(10));
  EXPECT_TRUE(f.eventually([&] { return state() == "paused"; }));
  EXPECT_EQ(acquire()->came, Came::resumed);
  clock.advance(seconds(10));
  EXPECT_TRUE(f.eventually([&] { return state() == "paused"; })) << "again";
  clock.advance(seconds(91));
  EXPECT_TRUE(f.eventually([&] { return sandboxes() == 0; }));
  EXPECT_TRUE(f.eventually([&] { return !rows->get("default", "x").value(); }));
}

TEST_F(ManagerTest, TrafficIsUse) {
  const auto got = acquire("x", R"(,"timeout":3600,"pauseAfter":10,"ttl":100)");
  const auto route = f.engine->route(*SandboxId::parse(got->session.sandbox_id));
  ASSERT_TRUE(route->enter());
  ASSERT_TRUE(acquire("other", R"(,"timeout":3600,"pauseAfter":10)").ok());
  clock.advance(seconds(150));
  EXPECT_TRUE(f.eventually([&] { return state("other") == "paused"; }));
  EXPECT_EQ(state(), "running") << "a request is under way";
  route->leave();
}

TEST_F(ManagerTest, TrafficIsWrittenDown) {
  const auto got = acquire("x", R"(,"timeout":3600,"pauseAfter":0,"ttl":100)");
  const Timestamp first = row().used_at;
  const auto route = f.engine->route(*SandboxId::parse(got->session.sandbox_id));
  ASSERT_TRUE(route->enter());
  clock.advance(seconds(26));
  EXPECT_TRUE(f.eventually([&] { return row().used_at == clock.now(); })) << "four times in a ttl";
  clock.advance(seconds(5));
  route->leave();
  ASSERT_TRUE(f.run(manager->pause(f.caller(), "x")).ok());
  EXPECT_TRUE(f.eventually([&] { return row().used_at > first + seconds(27); }))
      << "and by a pause";
}

TEST_F(ManagerTest, WhatTrafficWokeIsPausedInTime) {
  const auto got = acquire("x", R"(,"timeout":3600,"pauseAfter":2)");
  const SandboxId id = *SandboxId::parse(got->session.sandbox_id);
  clock.advance(seconds(2));
  ASSERT_TRUE(f.eventually(
      [&] { return f.engine->info(f.caller(), id)->record.state == store::SandboxState::paused; }));
  ASSERT_TRUE(f.run(f.engine->connect(f.caller(), id, seconds(3600))).ok());
  EXPECT_EQ(state(), "running");
  clock.advance(seconds(3));
  EXPECT_TRUE(f.eventually([&] { return state() == "paused"; }));
}

TEST_F(ManagerTest, NothingIsMadeWhileTheTableIsAway) {
  table->down = true;
  const auto refused = acquire();
  EXPECT_EQ(refused.error().code, Errc::unavailable);
  EXPECT_EQ(f.run(manager->remove(f.caller(), "x")).error().code, Errc::unavailable);
  EXPECT_EQ(sandboxes(), 0u);
  table->down = false;
  EXPECT_EQ(acquire()->came, Came::created);
}

TEST_F(ManagerTest, ATableThatGoesAwayWhileASandboxIsMade) {
  table->good_puts = 1;  // the claim
  table->failing_puts = 1'000;
  f.runtime.create_takes = milliseconds(20);
  const auto refused = acquire();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::unavailable);
  EXPECT_EQ(sandboxes(), 0u) << "what was made is killed";
  table->failing_puts = 0;
  EXPECT_EQ(acquire()->came, Came::created);
  EXPECT_EQ(sandboxes(), 1u);
}

TEST_F(ManagerTest, AnAnswerThatIsLostLosesNothing) {
  table->good_puts = 1;
  table->lost_answers = 1;  // of the row that says that it is ready
  const auto got = acquire();
  ASSERT_TRUE(got.ok()) << got.error().message;
  EXPECT_EQ(acquire()->session.sandbox_id, got->session.sandbox_id);
  EXPECT_EQ(sandboxes(), 1u);
}

TEST_F(ManagerTest, AFailedCreateFreesTheKey) {
  f.runtime.failing_creates = 1;
  EXPECT_FALSE(acquire().ok());
  EXPECT_FALSE(rows->get("default", "x").value());
  EXPECT_TRUE(acquire().ok());
}

TEST_F(ManagerTest, ALeaseIsRenewedAsLongAsItTakes) {
  OtherManager to_first;
  OtherManager to_second;
  auto first = make_manager("a", &to_second);
  auto second = make_manager("b", &to_first);
  to_first.other = first.get();
  to_second.other = second.get();
  to_first.caller = to_second.caller = f.caller();
  f.runtime.create_takes = milliseconds(4'000);  // longer than a lease
  const auto all = race(4, {first.get(), second.get()});
  for (const Acquired& each : all) EXPECT_EQ(each.session.sandbox_id, all[0].session.sandbox_id);
  EXPECT_EQ(f.runtime.specs().size(), 1u);
  f.run(first->stop(milliseconds(5'000)));
  f.run(second->stop(milliseconds(5'000)));
}

TEST_F(ManagerTest, WhoeverWasAwayForTooLongLosesAndCleansUp) {
  table->gate = std::make_shared<engine::Completion>();
  auto slow = std::async(std::launch::async, [&] { return acquire(); });
  ASSERT_TRUE(f.eventually([&] { return rows->get("default", "x").value().has_value(); }));
  // Somebody else has written over the claim, as if its lease had run out.
  Row stolen = row();
  for (;;) {
    stolen = row();
    stolen.claim = "another";
    stolen.node = "n1";
    stolen.ready = true;
    stolen.sandbox_id = "inone";
    if (rows->put(stolen).value()) break;
  }
  table->gate->set();
  const auto got = slow.get();
  ASSERT_TRUE(got.ok()) << got.error().message;
  EXPECT_EQ(sandboxes(), 1u) << "the first one was killed, the row's was dead, one was made";
  EXPECT_EQ(row().sandbox_id, got->session.sandbox_id);
}

TEST_F(ManagerTest, AClaimOfADeadNodeEndsWithItsLease) {
  Row claim;
  claim.team = "default";
  claim.key = "x";
  claim.node = "dead";
  claim.claim = "c";
  claim.lease = milliseconds(200);
  const auto began = std::chrono::steady_clock::now();
  ASSERT_TRUE(rows->put(claim).value());
  OtherManager gone;
  gone.dead = true;
  auto other = make_manager("b", &gone);
  const auto got = f.run(other->acquire(f.caller(), "x", base_options()));
  f.run(other->stop(milliseconds(5'000)));
  ASSERT_TRUE(got.ok()) << got.error().message;
  EXPECT_EQ(got->came, Came::created);
  EXPECT_GE(std::chrono::steady_clock::now() - began, milliseconds(150));
}

TEST_F(ManagerTest, AServerThatForgotItsNameKeepsItsSessions) {
  const auto first = acquire();
  f.run(manager->stop(milliseconds(5'000)));
  manager = make_manager("another", nullptr);
  f.run(manager->start());
  EXPECT_EQ(acquire()->session.sandbox_id, first->session.sandbox_id);
}

// ---- restarts ----

TEST_F(ManagerTest, ARestartFindsSessionsAndRemovesHalfMadeOnes) {
  const auto kept = acquire("kept", R"(,"pauseAfter":10,"timeout":3600)");
  auto half = create_command(f.caller(), "half", "claim1", base_options()).value();
  ASSERT_TRUE(f.run(f.engine->create(half)).ok());
  Row claim;
  claim.team = "default";
  claim.key = "half";
  claim.node = "n1";
  claim.claim = "claim1";
  claim.lease = std::chrono::minutes(10);
  ASSERT_TRUE(rows->put(claim).value());
  f.run(manager->stop(milliseconds(5'000)));
  f.restart();
  manager = make_manager("n1", nullptr);
  f.run(manager->start());
  EXPECT_EQ(sandboxes(), 1u);
  EXPECT_FALSE(rows->get("default", "half").value());
  EXPECT_EQ(state("kept"), "running");
  clock.advance(seconds(11));
  EXPECT_TRUE(f.eventually([&] { return state("kept") == "paused"; })) << "timers go on";
  EXPECT_EQ(acquire("kept")->session.sandbox_id, kept->session.sandbox_id);
}

TEST_F(ManagerTest, ATtlCountsFromTheStartAtTheEarliestButNotTwice) {
  const auto restart = [&] {
    f.run(manager->stop(milliseconds(5'000)));
    f.restart();
    manager = make_manager("n1", nullptr);
    f.run(manager->start());
  };
  ASSERT_TRUE(acquire("x", R"(,"timeout":3600,"pauseAfter":0,"ttl":100)").ok());
  clock.advance(seconds(95));
  restart();  // nobody knows of requests before
  ASSERT_TRUE(acquire("marker", R"(,"timeout":3600,"pauseAfter":0,"ttl":10)").ok());
  clock.advance(seconds(50));
  EXPECT_TRUE(f.eventually([&] { return !rows->get("default", "marker").value(); }));
  EXPECT_EQ(state(), "running");
  restart();
  clock.advance(seconds(60));
  EXPECT_TRUE(f.eventually([&] { return !rows->get("default", "x").value(); }));
}

// With a table elsewhere: a second store plays that part.
class MirrorTest : public ManagerTest {
 protected:
  MirrorTest() {
    f.run(manager->stop(milliseconds(5'000)));
    shared_store = store::Store::open((f.home.path() / "shared.db").string()).value();
    shared = store::SessionRows::open(*shared_store).value();
    table = std::make_unique<FlakyTable>(*shared);
    restart();
  }
  ~MirrorTest() override {
    f.run(manager->stop(milliseconds(5'000)));
    manager.reset();
    table.reset();
    shared.reset();
  }
  void restart() {
    manager = make_manager("n1", nullptr, rows.get());
    f.run(manager->start());
  }
  std::unique_ptr<store::Store> shared_store;
  std::unique_ptr<store::SessionRows> shared;
};

TEST_F(MirrorTest, WhatTheTableForgotIsToldAgain) {
  const auto got = acquire();
  const auto lost = shared->get("default", "x").value();
  ASSERT_TRUE(shared->remove("default", "x", lost->version).value());
  ASSERT_TRUE(f.run(manager->reconcile()).ok());
  EXPECT_EQ(shared->get("default", "x").value()->sandbox_id, got->session.sandbox_id);
  EXPECT_EQ(acquire()->came, Came::reused);
}

TEST_F(MirrorTest, WhatTheTableForgotIsToldAgainByWhoeverAsks) {
  const auto got = acquire();
  const auto forget = [&] {
    const auto lost = shared->get("default", "x").value();
    ASSERT_TRUE(shared->remove("default", "x", lost->version).value());
  };
  forget();
  EXPECT_EQ(acquire()->session.sandbox_id, got->session.sandbox_id);
  EXPECT_EQ(sandboxes(), 1u);
  forget();
  ASSERT_TRUE(f.run(manager->remove(f.caller(), "x")).ok());
  EXPECT_EQ(sandboxes(), 0u);
  EXPECT_FALSE(rows->get("default", "x").value());
  EXPECT_FALSE(shared->get("default", "x").value());
}

TEST_F(MirrorTest, ASleepingSessionIsForgottenInTime) {
  ASSERT_TRUE(acquire("x", R"(,"timeout":3600,"pauseAfter":10,"ttl":100)").ok());
  clock.advance(seconds(10));
  ASSERT_TRUE(f.eventually([&] { return state() == "paused"; }));
  clock.advance(seconds(50));
  EXPECT_EQ(state(), "paused");
  clock.advance(seconds(41));
  EXPECT_TRUE(f.eventually([&] { return !shared->get("default", "x").value(); }));
  EXPECT_EQ(sandboxes(), 0u);
}

TEST_F(MirrorTest, WhatSomebodyElseHasByNowIsKilledHere) {
  ASSERT_TRUE(acquire().ok());
  Row taken = *shared->get("default", "x").value();
  taken.node = "n2";
  taken.claim = "theirs";
  taken.sandbox_id = "itheirs";
  ASSERT_TRUE(shared->put(taken).value());
  f.run(manager->stop(milliseconds(5'000)));
  restart();
  EXPECT_EQ(sandboxes(), 0u);
  EXPECT_FALSE(rows->get("default", "x").value());
  EXPECT_EQ(shared->get("default", "x").value()->sandbox_id, "itheirs");
}

TEST_F(MirrorTest, AStartWithoutItsTableIsMadeUpFor) {
  auto half = create_command(f.caller(), "half", "claim1", base_options()).value();
  ASSERT_TRUE(f.run(f.engine->create(half)).ok());
  Row claim;
  claim.team = "default";
  claim.key = "half";
  claim.node = "n1";
  claim.claim = "claim1";
  claim.lease = std::chrono::minutes(10);
  ASSERT_TRUE(rows->put(claim).value());
  ASSERT_TRUE(shared->put(claim).value());
  f.run(manager->stop(milliseconds(5'000)));
  table->down = true;
  restart();
  EXPECT_EQ(sandboxes(), 1u);
  table->down = false;
  ASSERT_TRUE(f.run(manager->reconcile()).ok());
  EXPECT_EQ(sandboxes(), 0u);
  EXPECT_FALSE(shared->get("default", "half").value());
}

TEST_F(MirrorTest, RemoveLeavesNothing) {
  ASSERT_TRUE(acquire().ok());
  ASSERT_TRUE(rows->get("default", "x").value());
  ASSERT_TRUE(f.run(manager->remove(f.caller(), "x")).ok());
  EXPECT_FALSE(rows->get("default", "x").value());
  EXPECT_FALSE(shared->get("default", "x").value());
}

}  // namespace
}  // namespace atl::session
