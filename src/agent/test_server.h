// The filesystem half of the agent behind a real HTTP server on a free loopback port, and a client
// for it.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "agent/agent.h"
#include "agent/testing.h"
#include "net/http_server.h"

namespace atl::agent::testing {

class TestServer {
 public:
  TestServer();

  // One request on a connection of its own.
  net::HttpClient::Answer request(std::string method, std::string target, net::Headers headers = {},
                                  std::string body = {});
  AgentState& state() { return state_; }
  // Runs a client coroutine against the server.
  template <class T>
  T run(net::Task<T> task) {
    return run_task(io_, std::move(task));
  }
  std::uint16_t port() const { return port_; }

 private:
  net::Task<void> handle(net::Exchange& exchange);
  net::Task<Result<net::HttpClient::Answer>> send(net::RequestHead head, std::string body);

  net::asio::io_context io_;
  AgentState state_;
  rpc::Router router_;
  net::HttpServer server_;
  std::uint16_t port_ = 0;
};

}  // namespace atl::agent::testing
