#include "rpc/call_race.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <exception>

#include "base/log.h"

namespace atl::rpc {
namespace {

namespace asio = net::asio;

// operator|| waits for the first *success*, so an exception must not leave the call.
net::Task<void> guarded(net::Task<Result<void>> call, Result<void>& result) {
  try {
    result = co_await std::move(call);
  } catch (const boost::system::system_error& e) {
    result = make_error(
        e.code() == asio::error::operation_aborted ? Errc::canceled : Errc::internal, e.what());
  } catch (const std::exception& e) {
    log::error("a call threw", {{"what", e.what()}});
    result = make_error(Errc::internal, std::string("internal error: ") + e.what());
  }
}

}  // namespace

net::Task<Ended> race(net::Task<Result<void>> call, Result<void>& result, net::Stream& stream,
                      WatchPeer watch,
                      std::optional<std::chrono::steady_clock::time_point> deadline) {
  using namespace asio::experimental::awaitable_operators;
  asio::steady_timer timer(co_await asio::this_coro::executor);
  timer.expires_at(deadline.value_or(std::chrono::steady_clock::time_point::max()));
  auto timed = timer.async_wait(asio::use_awaitable);
  if (watch == WatchPeer::no) {
    const auto won = co_await (guarded(std::move(call), result) || std::move(timed));
    co_return won.index() == 0 ? Ended::finished : Ended::deadline;
  }
  const auto won =
      co_await (guarded(std::move(call), result) || stream.wait_peer_closed() || std::move(timed));
  if (won.index() == 0) co_return Ended::finished;
  co_return won.index() == 1 ? Ended::peer_closed : Ended::deadline;
}

}  // namespace atl::rpc
