#include "engine/completion.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/this_coro.hpp>

#include "net/wake.h"

namespace atl::engine {

namespace asio = net::asio;

void Completion::set() {
  std::vector<std::shared_ptr<asio::steady_timer>> waiters;
  {
    std::lock_guard lock(mutex_);
    set_ = true;
    waiters.swap(waiters_);
  }
  for (auto& timer : waiters) net::wake(std::move(timer));
}

bool Completion::is_set() const {
  std::lock_guard lock(mutex_);
  return set_;
}

net::Task<bool> Completion::wait(std::chrono::milliseconds limit) {
  std::shared_ptr<asio::steady_timer> timer;
  {
    auto executor = co_await asio::this_coro::executor;
    std::lock_guard lock(mutex_);
    if (set_) co_return true;
    timer = std::make_shared<asio::steady_timer>(executor, limit);
    waiters_.push_back(timer);
  }
  // `set` may already have posted its cancel; on this strand it runs only after the wait has begun.
  auto [ec] = co_await timer->async_wait(asio::as_tuple(asio::use_awaitable));
  (void)ec;
  std::lock_guard lock(mutex_);
  std::erase(waiters_, timer);
  co_return set_;
}

}  // namespace atl::engine
