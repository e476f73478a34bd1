#include "engine/side_task.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/system/system_error.hpp>

#include "base/log.h"

namespace atl::engine {

namespace asio = net::asio;

struct SideTask::State {
  explicit State(const asio::any_io_executor& strand)
      : wake(strand, asio::steady_timer::time_point::max()) {}
  asio::cancellation_signal cancel;
  asio::steady_timer wake;
  bool done = false;
};

SideTask::SideTask(const asio::any_io_executor& strand, net::Task<void> body)
    : state_(std::make_shared<State>(strand)) {
  auto state = state_;
  asio::co_spawn(
      strand, std::move(body),
      asio::bind_cancellation_slot(state->cancel.slot(), [state](std::exception_ptr failure) {
        state->done = true;
        state->wake.cancel();
        if (!failure) return;
        try {
          std::rethrow_exception(failure);
        } catch (const boost::system::system_error& e) {
          if (e.code() != asio::error::operation_aborted)
            log::error("a side task failed", {{"what", e.what()}});
        } catch (const std::exception& e) {
          log::error("a side task failed", {{"what", e.what()}});
        }
      }));
}

SideTask::~SideTask() = default;

bool SideTask::done() const { return state_->done; }

net::Task<bool> SideTask::wait(std::chrono::milliseconds limit) {
  auto state = state_;
  if (!state->done) {
    state->wake.expires_after(limit);
    co_await state->wake.async_wait(asio::as_tuple(asio::use_awaitable));
  }
  co_return state->done;
}

net::Task<void> SideTask::stop() {
  auto state = state_;
  if (state->done) co_return;
  state->cancel.emit(asio::cancellation_type::terminal);
  while (!state->done) {
    state->wake.expires_at(asio::steady_timer::time_point::max());
    co_await state->wake.async_wait(asio::as_tuple(asio::use_awaitable));
  }
}

}  // namespace atl::engine
