#include "agent/slice.h"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>

namespace atl::agent {

net::Task<void> Slice::yield() {
  co_await net::asio::post(co_await net::asio::this_coro::executor, net::asio::use_awaitable);
  began_ = std::chrono::steady_clock::now();
}

}  // namespace atl::agent
