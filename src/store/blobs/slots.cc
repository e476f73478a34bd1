#include "store/blobs/slots.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <deque>
#include <mutex>

#include "net/wake.h"

namespace atl::blobs {

namespace asio = net::asio;

namespace {

struct Waiter {
  Waiter(const asio::any_io_executor& executor, std::chrono::milliseconds limit)
      : timer(executor, limit) {}
  asio::steady_timer timer;  // touched on its strand only
  bool called = false;       // guarded by the line's mutex: a slot is its own
};

}  // namespace

struct SlotLine {
  explicit SlotLine(std::size_t count) : free(count) {}
  std::mutex mutex;
  std::size_t free;  // nobody waits unless it is 0
  std::deque<std::shared_ptr<Waiter>> waiting;

  void give_on() {
    std::shared_ptr<Waiter> next;
    {
      std::lock_guard lock(mutex);
      if (waiting.empty()) {
        ++free;
        return;
      }
      next = std::move(waiting.front());
      waiting.pop_front();
      next->called = true;
    }
    asio::steady_timer* const timer = &next->timer;
    net::wake({std::move(next), timer});
  }
};

Slots::Slots(std::size_t count) : line_(std::make_shared<SlotLine>(count)) {}
Slots::~Slots() = default;

Slots::Slot::Slot(std::shared_ptr<SlotLine> line) : line_(std::move(line)) {}
Slots::Slot::~Slot() {
  if (line_) line_->give_on();
}

net::Task<Result<Slots::Slot>> Slots::take(std::chrono::milliseconds limit) {
  const auto line = line_;
  std::shared_ptr<Waiter> waiter;
  {
    auto executor = co_await asio::this_coro::executor;
    std::lock_guard lock(line->mutex);
    if (line->free > 0) {
      --line->free;
    } else {
      waiter = std::make_shared<Waiter>(executor, limit);
      line->waiting.push_back(waiter);
    }
  }
  if (waiter) {
    // The cancel is posted to this strand: it cannot come before the wait.
    auto [ec] = co_await waiter->timer.async_wait(asio::as_tuple(asio::use_awaitable));
    (void)ec;
    std::lock_guard lock(line->mutex);
    if (!waiter->called) {
      std::erase(line->waiting, waiter);
      co_return make_error(Errc::deadline_exceeded, "no slot came free");
    }
  }
  co_return Slot(line);
}

}  // namespace atl::blobs
