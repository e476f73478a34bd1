#include "engine/gate.h"

#include <algorithm>
#include <deque>
#include <mutex>

#include "engine/commands.h"
#include "engine/completion.h"

namespace atl::engine {

struct Gate::State {
  struct Waiter {
    bool admitted = false;
    Completion turn;
  };

  State(std::size_t places_, std::size_t longest_) : places(places_), longest(longest_) {}

  const std::size_t places;
  const std::size_t longest;
  mutable std::mutex mutex;  // guards all below
  std::size_t inside = 0;
  bool closed = false;
  std::deque<std::shared_ptr<Waiter>> line;
};

Gate::Pass& Gate::Pass::operator=(Pass&& other) noexcept {
  if (this != &other) {
    leave();
    state_ = std::move(other.state_);
  }
  return *this;
}

void Gate::Pass::leave() {
  const auto state = std::exchange(state_, nullptr);
  if (!state) return;
  std::lock_guard lock(state->mutex);
  --state->inside;
  while (state->inside < state->places && !state->line.empty()) {
    auto next = std::move(state->line.front());
    state->line.pop_front();
    next->admitted = true;
    ++state->inside;
    next->turn.set();
  }
}

Gate::Gate(std::size_t places, std::size_t line)
    : state_(std::make_shared<State>(std::max<std::size_t>(places, 1), line)) {}

net::Task<Result<Gate::Pass>> Gate::enter(std::chrono::milliseconds limit) {
  const auto state = state_;
  const auto closed = [] { return make_error(Errc::unavailable, "the server is shutting down"); };
  std::shared_ptr<State::Waiter> waiter;
  {
    std::lock_guard lock(state->mutex);
    if (state->closed) co_return closed();
    if (state->inside < state->places && state->line.empty()) {
      ++state->inside;
      co_return Pass(state);
    }
    if (state->line.size() >= state->longest) {
      co_return transient_refusal("too many sandboxes are waiting to be started (" +
                                  std::to_string(state->longest) + "). Try again in a moment.");
    }
    waiter = std::make_shared<State::Waiter>();
    state->line.push_back(waiter);
  }
  auto wait = waiter->turn.wait(limit);
  co_await std::move(wait);
  std::lock_guard lock(state->mutex);
  if (waiter->admitted) co_return Pass(state);
  std::erase(state->line, waiter);
  if (state->closed) co_return closed();
  co_return transient_refusal(
      "the server is busy: no sandbox could be started for you within " +
      std::to_string(std::chrono::duration_cast<std::chrono::seconds>(limit).count()) +
      " seconds. Try again in a moment, or start fewer at once.");
}

std::optional<Gate::Pass> Gate::enter_if_idle() {
  std::lock_guard lock(state_->mutex);
  if (state_->closed || !state_->line.empty() || 2 * state_->inside >= state_->places)
    return std::nullopt;
  ++state_->inside;
  return Pass(state_);
}

void Gate::close() {
  std::deque<std::shared_ptr<State::Waiter>> line;
  {
    std::lock_guard lock(state_->mutex);
    state_->closed = true;
    line.swap(state_->line);
  }
  for (const auto& waiter : line) waiter->turn.set();
}

std::size_t Gate::waiting() const {
  std::lock_guard lock(state_->mutex);
  return state_->line.size();
}

}  // namespace atl::engine
