// Limits and the line before the gate.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/testing/fixture.h"

namespace atl::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Fixture;

SandboxId make(Fixture& f, const std::function<void(CreateCommand&)>& change = {}) {
  auto command = f.command();
  if (change) change(command);
  auto made = f.run(f.engine->create(command));
  EXPECT_TRUE(made.ok()) << made.error().message;
  return made->record.id;
}

net::Task<void> create_into(Fixture& f, std::vector<Result<SandboxInfo>>& into, std::mutex& mutex) {
  auto creating = f.engine->create(f.command());
  auto made = co_await std::move(creating);
  std::lock_guard lock(mutex);
  into.push_back(std::move(made));
}

std::vector<Result<SandboxInfo>> burst(Fixture& f, int count) {
  std::vector<Result<SandboxInfo>> results;
  std::mutex mutex;
  std::vector<std::future<void>> all;
  for (int i = 0; i < count; ++i) {
    all.push_back(net::asio::co_spawn(net::asio::make_strand(f.threads.io),
                                      create_into(f, results, mutex), net::asio::use_future));
  }
  for (auto& one : all) one.get();
  return results;
}

TEST(Limits, ABurstWaitsInLineAndSucceeds) {
  Fixture f;
  f.runtime.create_takes = milliseconds(5);
  for (const auto& made : burst(f, 100)) EXPECT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(f.engine->statistics().running, 100u);
  EXPECT_EQ(f.engine->statistics().created, 100u);
}

TEST(Limits, WhoWaitsTooLongIsToldSo) {
  Fixture f({.max_creates_in_flight = 1, .queue_deadline = milliseconds(100)});
  f.runtime.create_takes = milliseconds(300);
  int good = 0;
  for (const auto& made : burst(f, 3)) {
    if (made.ok()) {
      ++good;
      continue;
    }
    EXPECT_EQ(made.error().code, Errc::resource_exhausted);
    EXPECT_TRUE(is_transient(made.error()));
    EXPECT_THAT(made.error().message, ::testing::HasSubstr("Try again"));
  }
  EXPECT_EQ(good, 1);
  EXPECT_EQ(f.engine->live(), 1u) << "the others left no trace";
  EXPECT_EQ(f.engine->statistics().refused, 2u);
  EXPECT_EQ(f.store->live_sandboxes()->size(), 1u);
}

TEST(Limits, TheLineIsBounded) {
  Fixture f({.max_creates_in_flight = 1, .max_creates_waiting = 2});
  f.runtime.create_takes = milliseconds(50);
  int good = 0;
  for (const auto& made : burst(f, 6)) {
    if (made.ok()) {
      ++good;
    } else {
      EXPECT_TRUE(is_transient(made.error()));
    }
  }
  EXPECT_EQ(good, 3);
}

TEST(Limits, PausedOnesTakeNoPlace) {
  Fixture f({.max_sandboxes = 2});
  const SandboxId first = make(f);
  make(f);
  auto refused = f.run(f.engine->create(f.command()));
  EXPECT_EQ(refused.error().code, Errc::resource_exhausted);
  EXPECT_FALSE(is_transient(refused.error()));
  ASSERT_TRUE(f.run(f.engine->pause(f.caller(), first, true)).ok());
  const SandboxId third = make(f);
  auto resumed = f.run(f.engine->connect(f.caller(), first, seconds(60)));
  ASSERT_FALSE(resumed.ok());
  EXPECT_EQ(resumed.error().code, Errc::resource_exhausted);
  EXPECT_EQ(f.engine->info(f.caller(), first)->record.state, SandboxState::paused);
  ASSERT_TRUE(f.run(f.engine->kill(f.caller(), third)).ok());
  EXPECT_TRUE(f.run(f.engine->connect(f.caller(), first, seconds(60))).ok());
}

TEST(Limits, PerTeamAndPerKey) {
  Fixture f({.max_per_team = 3, .max_per_key = 2});
  const auto team = f.store->create_team("others");
  ASSERT_TRUE(team.ok());
  make(f);
  make(f);
  auto refused = f.run(f.engine->create(f.command()));
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, ::testing::HasSubstr("(2) for your API key"));
  const auto second_key = [](CreateCommand& command) { command.caller.key_id = "second"; };
  make(f, second_key);
  auto command = f.command();
  second_key(command);
  refused = f.run(f.engine->create(command));
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, ::testing::HasSubstr("(3) for your team"));
  make(f, [&](CreateCommand& other) { other.caller = {team->id, "third", {}}; });
  EXPECT_EQ(f.engine->running_counts(),
            (std::map<std::string, std::size_t>{{f.caller().team_id, 3}, {team->id, 1}}));
  EXPECT_EQ(f.run(f.engine->kill_team(f.caller().team_id)).killed, 3u);
  EXPECT_EQ(f.engine->running_counts(), (std::map<std::string, std::size_t>{{team->id, 1}}));
}

}  // namespace
}  // namespace atl::engine
