// Helpers of this folder's tests: a server that plays the agent, and coroutines run to their end.
#pragma once

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <optional>

#include "client/inside.h"
#include "net/http_server.h"

namespace atl::client::testing {

namespace asio = net::asio;

template <class T>
net::Task<void> keep_result(net::Task<T> task, std::optional<T>& result) {
  result.emplace(co_await std::move(task));
}

inline net::Task<Result<net::HttpClient>> connect_local(std::uint16_t port) {
  auto connecting = net::connect_tcp("127.0.0.1", port);
  ATOLL_CO_TRY_ASSIGN(auto stream, co_await std::move(connecting));
  co_return net::HttpClient(std::move(stream));
}

class FakeAgent {
 public:
  explicit FakeAgent(net::Handler handler) : server_(io_, {}, std::move(handler)) {
    auto port = server_.listen_tcp("127.0.0.1:0", "agent");
    ATOLL_CHECK(port.ok());
    port_ = *port;
  }

  Inside inside() const {
    Inside inside;
    inside.id = "iabc";
    inside.token = "secret";
    inside.connect = [port = port_](std::uint16_t) { return connect_local(port); };
    inside.headers = [](std::uint16_t port) {
      return net::Headers{{"X-Access-Token", "secret"}, {"E2b-Sandbox-Port", std::to_string(port)}};
    };
    return inside;
  }
  std::uint16_t port() const { return port_; }

  template <class T>
  T run(net::Task<T> task) {
    std::optional<T> result;
    std::exception_ptr failure;
    bool done = false;
    asio::co_spawn(io_, keep_result(std::move(task), result), [&](std::exception_ptr thrown) {
      failure = thrown;
      done = true;
    });
    while (!done && io_.run_one() > 0) {
    }
    if (failure) std::rethrow_exception(failure);
    ATOLL_CHECK(result.has_value());
    return std::move(*result);
  }

 private:
  asio::io_context io_;
  net::HttpServer server_;
  std::uint16_t port_ = 0;
};

}  // namespace atl::client::testing
