// Posts from threads that may outlive the io_context they post to.
//
// Whoever waits there goes on at once, and with it the io_context may be destroyed while the thread
// is still on its way out of the post. A strand must be let go before that.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/execution/outstanding_work.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/prefer.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>

#include "net/task.h"

namespace atl::net {

// The same executor; run() of its io_context does not return while it is there. Whoever holds one
// lets go of it last of all. (A work guard is not enough: it ends its work before its executor.)
inline asio::any_io_executor holding(const asio::any_io_executor& executor) {
  return asio::prefer(executor, asio::execution::outstanding_work.tracked);
}

// Cancels a timer where it is used, from any thread.
inline void wake(std::shared_ptr<asio::steady_timer> timer) {
  const auto executor = holding(timer->get_executor());
  asio::post(executor, [timer = std::move(timer)] { timer->cancel(); });
}

}  // namespace atl::net
