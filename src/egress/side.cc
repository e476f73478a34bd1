#include "egress/side.h"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>

#include "egress/spawn.h"

namespace atl::egress {

namespace asio = net::asio;

struct Side::State {
  explicit State(const asio::any_io_executor& strand)
      : wake(strand, asio::steady_timer::time_point::max()) {}
  asio::steady_timer wake;
  bool done = false;
};

namespace {

template <class State>
net::Task<void> run(std::shared_ptr<State> state, net::Task<void> body) {
  struct Mark {
    State& state;
    ~Mark() {
      state.done = true;
      state.wake.cancel();
    }
  } mark{*state};
  co_await std::move(body);
}

}  // namespace

Side::Side(const asio::any_io_executor& strand, net::Task<void> body)
    : state_(std::make_shared<State>(strand)) {
  spawn(strand, "egress relay", run(state_, std::move(body)));
}

bool Side::done() const { return state_->done; }

net::Task<void> Side::finished() {
  auto state = state_;
  while (!state->done) {
    state->wake.expires_at(asio::steady_timer::time_point::max());
    co_await state->wake.async_wait(asio::as_tuple(asio::use_awaitable));
  }
}

}  // namespace atl::egress
