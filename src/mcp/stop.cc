#include "mcp/stop.h"

#include <atomic>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/system/system_error.hpp>

#include "base/log.h"

namespace atl::mcp {

namespace asio = net::asio;

struct Stop::State {
  explicit State(asio::any_io_executor s) : strand(std::move(s)) {}
  asio::any_io_executor strand;
  std::atomic<bool> requested = false;
  std::shared_ptr<asio::cancellation_signal> current;  // of the work under way
};

namespace {

// Cancelled work ends with an exception or with an error of its own; both are expected.
net::Task<void> guarded(net::Task<void> work) {
  try {
    co_await std::move(work);
  } catch (const boost::system::system_error& e) {
    if (e.code() != asio::error::operation_aborted)
      log::error("a tool call threw", {{"what", e.what()}});
  } catch (const std::exception& e) {
    log::error("a tool call threw", {{"what", e.what()}});
  }
}

}  // namespace

Stop::Stop(asio::any_io_executor strand) : state_(std::make_shared<State>(std::move(strand))) {}

void Stop::request() {
  state_->requested = true;
  asio::post(state_->strand, [state = state_] {
    if (const auto signal = state->current) signal->emit(asio::cancellation_type::terminal);
  });
}

bool Stop::requested() const { return state_->requested; }

net::Task<Stop::Ended> Stop::run(net::Task<void> work,
                                 std::optional<std::chrono::milliseconds> limit) {
  auto state = state_;
  if (state->requested) co_return Ended::stopped;
  auto signal = std::make_shared<asio::cancellation_signal>();
  auto late = std::make_shared<bool>(false);
  state->current = signal;
  asio::steady_timer timer(state->strand);
  if (limit) {
    timer.expires_after(*limit);
    timer.async_wait([state, signal, late](const boost::system::error_code& ec) {
      // Over already, and perhaps another work is under way.
      if (ec || state->current != signal) return;
      *late = true;
      signal->emit(asio::cancellation_type::terminal);
    });
  }
  co_await asio::co_spawn(state->strand, guarded(std::move(work)),
                          asio::bind_cancellation_slot(signal->slot(), asio::use_awaitable));
  state->current.reset();
  timer.cancel();
  if (*late) co_return Ended::timed_out;
  co_return state->requested ? Ended::stopped : Ended::finished;
}

}  // namespace atl::mcp
