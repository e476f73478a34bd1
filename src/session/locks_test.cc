#include "session/locks.h"

#include <gtest/gtest.h>

#include <atomic>

#include "engine/testing/fixture.h"

namespace atl::session {
namespace {

using engine::testing::Fixture;
using std::chrono::milliseconds;

template <class T>
T run(engine::testing::Threads& threads, net::Task<T> task) {
  return net::asio::co_spawn(net::asio::make_strand(threads.io), std::move(task),
                             net::asio::use_future)
      .get();
}

net::Task<int> count(Locks& locks, std::atomic<int>& inside, std::atomic<int>& most) {
  auto locking = locks.lock("x", milliseconds(5'000));
  auto guard = co_await std::move(locking);
  if (!guard.ok()) co_return 0;
  const int now = ++inside;
  if (now > most) most = now;
  auto other = locks.lock("own" + std::to_string(now), milliseconds(100));
  const bool got = (co_await std::move(other)).ok();
  --inside;
  co_return got ? 1 : 0;
}

TEST(Locks, OneAtATime) {
  engine::testing::Threads threads(3);
  Locks locks;
  std::atomic<int> inside = 0;
  std::atomic<int> most = 0;
  std::vector<std::future<int>> all;
  for (int i = 0; i < 50; ++i) {
    all.push_back(net::asio::co_spawn(net::asio::make_strand(threads.io),
                                      count(locks, inside, most), net::asio::use_future));
  }
  int got = 0;
  for (auto& each : all) got += each.get();
  EXPECT_EQ(got, 50);
  EXPECT_EQ(most, 1);
  EXPECT_EQ(locks.size(), 0u);
}

net::Task<Errc> try_lock(Locks& locks) {
  auto locking = locks.lock("x", milliseconds(10));
  auto guard = co_await std::move(locking);
  co_return guard.ok() ? Errc{} : guard.error().code;
}

net::Task<bool> hold_and_try(Locks& locks) {
  auto locking = locks.lock("x", milliseconds(10));
  auto guard = co_await std::move(locking);
  auto trying = try_lock(locks);
  const bool late = co_await std::move(trying) == Errc::deadline_exceeded;
  guard->release();
  auto again = try_lock(locks);
  co_return late&& co_await std::move(again) == Errc{};
}

TEST(Locks, PatienceEnds) {
  engine::testing::Threads threads(1);
  Locks locks;
  EXPECT_TRUE(run(threads, hold_and_try(locks)));
  EXPECT_EQ(locks.size(), 0u);
}

}  // namespace
}  // namespace atl::session
