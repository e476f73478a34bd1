// Event: coroutines of the agent's one thread wait for something to change.
//
// Whoever changes something calls `notify`; waiters look again. It outlives its waiters.
#pragma once

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <chrono>
#include <list>

#include "net/task.h"

namespace atl::agent::interpreter {

using Clock = std::chrono::steady_clock;

// Time limits count in beats, so that time in which the sandbox was frozen does not: a beat that
// took much longer than it should is given again.
inline constexpr std::chrono::milliseconds kBeat{1000};
inline constexpr std::chrono::milliseconds kBeatSlack{500};

class Event {
 public:
  Event() = default;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void notify() {
    for (net::asio::steady_timer* waiter : waiters_) waiter->cancel();
  }
  // False: nobody called `notify` until then.
  net::Task<bool> wait_until(Clock::time_point time) {
    net::asio::steady_timer timer(co_await net::asio::this_coro::executor, time);
    const Waiter waiter(waiters_, timer);
    auto [ec] = co_await timer.async_wait(net::asio::as_tuple(net::asio::use_awaitable));
    co_return bool(ec);
  }
  net::Task<bool> wait() { return wait_until(Clock::time_point::max()); }

 private:
  using Waiters = std::list<net::asio::steady_timer*>;
  // Leaves the list also when its coroutine is cancelled.
  class Waiter {
   public:
    Waiter(Waiters& all, net::asio::steady_timer& timer)
        : all_(all), place_(all.insert(all.end(), &timer)) {}
    ~Waiter() { all_.erase(place_); }
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;

   private:
    Waiters& all_;
    Waiters::iterator place_;
  };
  Waiters waiters_;
};

// Waits until `done()` holds, looking again at every notification. False: `time` passed, not
// counting time in which the sandbox was frozen.
template <class Done>
net::Task<bool> until(Event& event, Done done, Clock::duration time) {
  while (!done()) {
    if (time <= Clock::duration::zero()) co_return false;
    const Clock::time_point begin = Clock::now();
    const Clock::duration beat = std::min<Clock::duration>(time, kBeat);
    auto waiting = event.wait_until(begin + beat);
    const bool notified = co_await std::move(waiting);
    const Clock::duration passed = Clock::now() - begin;
    if (notified) {
      time -= std::min(passed, beat);
    } else if (passed <= beat + kBeatSlack) {
      time -= beat;
    }
  }
  co_return true;
}

}  // namespace atl::agent::interpreter
