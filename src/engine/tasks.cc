#include "engine/tasks.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/this_coro.hpp>
#include <mutex>

#include "base/log.h"

namespace atl::engine {

namespace asio = net::asio;

struct Tasks::State {
  explicit State(asio::io_context& io_) : io(io_) {}
  asio::io_context& io;
  mutable std::mutex mutex;
  std::size_t running = 0;
  bool closed = false;
};

Tasks::Tasks(asio::io_context& io) : state_(std::make_shared<State>(io)) {}
Tasks::~Tasks() = default;

bool Tasks::spawn(std::string_view name, net::Task<void> body) {
  auto state = state_;
  {
    std::lock_guard lock(state->mutex);
    if (state->closed) return false;
    ++state->running;
  }
  // Posted, never run inside this call: the caller may hold a lock that the task takes.
  auto strand = asio::make_strand(state->io);
  asio::post(strand, [state, name, strand, body = std::move(body)]() mutable {
    asio::co_spawn(strand, std::move(body), [state, name](std::exception_ptr failure) {
      if (failure) {
        try {
          std::rethrow_exception(failure);
        } catch (const std::exception& e) {
          log::error("a task of the engine ended with an exception",
                     {{"task", name}, {"what", e.what()}});
        }
      }
      std::lock_guard lock(state->mutex);
      --state->running;
    });
  });
  return true;
}

std::size_t Tasks::running() const {
  std::lock_guard lock(state_->mutex);
  return state_->running;
}

void Tasks::close() {
  std::lock_guard lock(state_->mutex);
  state_->closed = true;
}

net::Task<bool> Tasks::drain(std::chrono::milliseconds limit) {
  auto state = state_;
  asio::steady_timer tick(co_await asio::this_coro::executor);
  const auto until = std::chrono::steady_clock::now() + limit;
  for (;;) {
    {
      std::lock_guard lock(state->mutex);
      if (state->running == 0) co_return true;
    }
    if (std::chrono::steady_clock::now() >= until) co_return false;
    tick.expires_after(std::chrono::milliseconds(2));
    co_await tick.async_wait(asio::as_tuple(asio::use_awaitable));
  }
}

}  // namespace atl::engine
