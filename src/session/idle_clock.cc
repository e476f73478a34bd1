#include "session/idle_clock.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>

#include "net/wake.h"

namespace atl::session {
namespace {

namespace asio = net::asio;

constexpr std::chrono::seconds kClockCheck{1};

}  // namespace

struct IdleClock::Timer {
  explicit Timer(const asio::any_io_executor& executor) : timer(executor) {}
  asio::steady_timer timer;
};

IdleClock::IdleClock(std::function<Timestamp()> clock, std::function<void(SandboxId, Slot)> look)
    : clock_(std::move(clock)), look_(std::move(look)) {}
IdleClock::~IdleClock() = default;

void IdleClock::set(const SandboxId& sandbox, Slot slot, Timestamp when) {
  std::lock_guard lock(mutex_);
  queue_.set(sandbox, when);
  slots_.insert_or_assign(sandbox, std::move(slot));
  wake_locked();
}

void IdleClock::remove(const SandboxId& sandbox) {
  std::lock_guard lock(mutex_);
  queue_.remove(sandbox);
  slots_.erase(sandbox);
}

std::size_t IdleClock::size() const {
  std::lock_guard lock(mutex_);
  return slots_.size();
}

void IdleClock::stop() {
  std::lock_guard lock(mutex_);
  stop_ = true;
  wake_locked();
}

void IdleClock::wake_locked() {
  if (timer_) net::wake({timer_, &timer_->timer});
}

net::Task<void> IdleClock::run() {
  const auto timer = std::make_shared<Timer>(co_await asio::this_coro::executor);
  for (;;) {
    std::vector<std::pair<SandboxId, Slot>> due;
    {
      std::lock_guard lock(mutex_);
      if (stop_) co_return;
      timer_ = timer;
      const Timestamp current = clock_();
      for (const SandboxId& id : queue_.pop_due(current)) due.emplace_back(id, slots_.at(id));
      if (const auto next = queue_.next()) {
        timer->timer.expires_after(
            std::min<std::chrono::nanoseconds>(*next - current, kClockCheck));
      } else {
        timer->timer.expires_at(asio::steady_timer::time_point::max());
      }
    }
    for (auto& [id, slot] : due) look_(id, std::move(slot));
    co_await timer->timer.async_wait(asio::as_tuple(asio::use_awaitable));
  }
}

}  // namespace atl::session
