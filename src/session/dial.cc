#include "session/dial.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/this_coro.hpp>

#include "session/outcome.h"

namespace atl::session {

namespace asio = net::asio;

net::Task<Result<std::unique_ptr<net::Stream>>> dial(std::string ip, std::uint16_t port,
                                                     std::chrono::milliseconds limit) {
  auto connecting = net::connect_tcp(ip, port);
  const auto executor = co_await asio::this_coro::executor;
  auto outcome = std::make_shared<Outcome<std::unique_ptr<net::Stream>>>();
  asio::co_spawn(executor, run_to(outcome, std::move(connecting)), [](std::exception_ptr) {});
  auto waiting = outcome->done.wait(limit);
  if (!co_await std::move(waiting)) {
    co_return make_error(Errc::unavailable, "no connection to " + ip + " port " +
                                                std::to_string(port) + " within " +
                                                std::to_string(limit.count()) + " ms");
  }
  co_return std::move(*outcome->result);
}

}  // namespace atl::session
