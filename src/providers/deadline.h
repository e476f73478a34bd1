// A limit on how long something may take. Inside of src/providers: heavy to compile.
#pragma once

#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/steady_timer.hpp>
#include <optional>
#include <utility>

#include "net/task.h"

namespace atl::providers {

// operator|| waits for the first success, so an exception must not leave the call.
template <class T>
net::Task<void> keep_result(net::Task<Result<T>> call, std::optional<Result<T>>& into) {
  try {
    into.emplace(co_await std::move(call));
  } catch (const std::exception& e) {
    into.emplace(make_error(Errc::unavailable, e.what()));
  }
}

// What the call answers, or `late`; by then the call has ended, at the point where it waited.
template <class T>
net::Task<Result<T>> within(net::Task<Result<T>> call, std::chrono::milliseconds limit,
                            Error late) {
  using namespace net::asio::experimental::awaitable_operators;
  std::optional<Result<T>> result;
  net::asio::steady_timer timer(co_await net::asio::this_coro::executor, limit);
  const auto won =
      co_await (keep_result(std::move(call), result) || timer.async_wait(net::asio::use_awaitable));
  // A call that was cancelled has an outcome too: that it was cancelled.
  if (won.index() == 0) co_return std::move(*result);
  co_return late;
}

}  // namespace atl::providers
