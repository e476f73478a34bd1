// Work that blocks, on a thread of a pool; the coroutine waits and goes on where it was.
#pragma once

#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <type_traits>

#include "net/wake.h"

namespace atl::blobs {

// `work` returns a Result and does not throw. What it refers to may live in the awaiting coroutine:
// that is not destroyed before the work is done. `pool` outlives the call.
template <class Work>
net::Task<std::invoke_result_t<Work&>> offload(net::asio::thread_pool& pool, Work work) {
  namespace asio = net::asio;
  using Value = std::invoke_result_t<Work&>;
  const auto start = [&pool](auto handler, Work todo) {
    auto executor = net::holding(asio::get_associated_executor(handler));
    asio::post(pool, [handler = std::move(handler), todo = std::move(todo),
                      executor = std::move(executor)]() mutable {
      Value value = todo();
      const auto last = std::move(executor);
      asio::post(last, [handler = std::move(handler), value = std::move(value)]() mutable {
        std::move(handler)(std::move(value));
      });
    });
  };
  co_return co_await asio::async_initiate<const asio::use_awaitable_t<>, void(Value)>(
      start, asio::use_awaitable, std::move(work));
}

}  // namespace atl::blobs
