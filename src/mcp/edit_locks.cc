#include "mcp/edit_locks.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <deque>
#include <map>
#include <mutex>

namespace atl::mcp {

namespace asio = net::asio;

struct EditLocks::Turn {
  Turn(const asio::any_io_executor& e, std::string n)
      : executor(e), wake(e, asio::steady_timer::time_point::max()), name(std::move(n)) {}
  asio::any_io_executor executor;
  asio::steady_timer wake;
  std::string name;
  bool mine = false;  // touched on the executor only, once it waits
};

struct EditLocks::State {
  std::mutex mutex;
  // Who waits for a name, the owner first. Names that nobody has are not kept.
  std::map<std::string, std::deque<std::shared_ptr<Turn>>> waiting;
};

EditLocks::EditLocks() : state_(std::make_shared<State>()) {}

net::Task<EditLocks::Held> EditLocks::take(std::string name) {
  auto state = state_;
  auto turn = std::make_shared<Turn>(co_await asio::this_coro::executor, std::move(name));
  {
    const std::scoped_lock lock(state->mutex);
    auto& queue = state->waiting[turn->name];
    turn->mine = queue.empty();
    queue.push_back(turn);
  }
  Held held(state, turn);  // leaves the queue also when the coroutine goes away
  while (!turn->mine) co_await turn->wake.async_wait(asio::as_tuple(asio::use_awaitable));
  co_return held;
}

EditLocks::Held::~Held() {
  if (!turn_) return;
  std::shared_ptr<Turn> next;
  {
    const std::scoped_lock lock(state_->mutex);
    const auto found = state_->waiting.find(turn_->name);
    auto& queue = found->second;
    const bool owned = queue.front() == turn_;
    std::erase(queue, turn_);
    if (queue.empty()) {
      state_->waiting.erase(found);
    } else if (owned) {
      next = queue.front();
    }
  }
  if (!next) return;
  asio::post(next->executor, [next] {
    next->mine = true;
    next->wake.cancel();
  });
}

}  // namespace atl::mcp
