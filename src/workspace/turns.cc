#include "workspace/turns.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <deque>
#include <mutex>
#include <unordered_map>

#include "net/wake.h"

namespace atl::workspace {

namespace asio = net::asio;

namespace {

struct Waiter {
  explicit Waiter(asio::any_io_executor executor, std::chrono::milliseconds limit)
      : timer(executor, limit) {}
  asio::steady_timer timer;  // touched on its strand only
  bool called = false;       // guarded by the lines' mutex: the turn is its own
};

}  // namespace

// A key that is in the map is taken; its line may be empty.
struct TurnLines {
  std::mutex mutex;
  std::unordered_map<std::string, std::deque<std::shared_ptr<Waiter>>> lines;

  void give_on(const std::string& key) {
    std::shared_ptr<Waiter> next;
    {
      std::lock_guard lock(mutex);
      const auto line = lines.find(key);
      if (line->second.empty()) {
        lines.erase(line);
        return;
      }
      next = std::move(line->second.front());
      line->second.pop_front();
      next->called = true;
    }
    asio::steady_timer* const timer = &next->timer;
    net::wake({std::move(next), timer});
  }
};

Turns::Turns() : lines_(std::make_shared<TurnLines>()) {}
Turns::~Turns() = default;

Turns::Turn::Turn(std::shared_ptr<TurnLines> lines, std::string key)
    : lines_(std::move(lines)), key_(std::move(key)) {}
Turns::Turn::~Turn() {
  if (lines_) lines_->give_on(key_);
}

net::Task<Result<Turns::Turn>> Turns::take(std::string key, std::chrono::milliseconds limit) {
  std::shared_ptr<Waiter> waiter;
  {
    auto executor = co_await asio::this_coro::executor;
    std::lock_guard lock(lines_->mutex);
    const auto [line, free] = lines_->lines.try_emplace(key);
    if (!free) {
      waiter = std::make_shared<Waiter>(executor, limit);
      line->second.push_back(waiter);
    }
  }
  if (waiter) {
    // The cancel is posted to this strand: it cannot come before the wait.
    auto [ec] = co_await waiter->timer.async_wait(asio::as_tuple(asio::use_awaitable));
    (void)ec;
    std::lock_guard lock(lines_->mutex);
    if (!waiter->called) {
      std::erase(lines_->lines[key], waiter);
      co_return make_error(Errc::deadline_exceeded, "the workspace is busy");
    }
  }
  co_return Turn(lines_, std::move(key));
}

}  // namespace atl::workspace
