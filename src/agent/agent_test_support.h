// For tests of the whole agent: one in this process, with both of its listeners, and clients for
// it.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <memory>
#include <string>

#include "agent/agent.h"
#include "agent/testing.h"
#include "net/http_server.h"

namespace atl::agent {

namespace asio = net::asio;
using net::Headers;
using Answer = net::HttpClient::Answer;
using testing::TempDir;

enum class Via { tcp, host };

class AgentTest : public ::testing::Test {
 protected:
  AgentTest() {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    socket_path_.copy(address.sun_path, sizeof(address.sun_path) - 1);
    ATOLL_CHECK(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
                ::listen(fd, 16) == 0);
    AgentOptions options;
    options.listen_fd = fd;
    options.port = 0;
    options.default_user = testing::current_user("/").name;
    options.path = "/usr/bin:/bin";
    options.marker_directory = scratch_ / "markers";
    options.trust_store = {scratch_ / "own/atoll.crt", scratch_ / "ssl/ca-certificates.crt"};
    options.hooks_directory = scratch_ / "hooks";
    options.host_files = scratch_.path();
    agent_ = std::make_unique<Agent>(io_, options);
    const auto started = agent_->start();
    ATOLL_CHECK(started.ok());
  }

  net::Task<net::HttpClient> connect(Via via) {
    auto stream = via == Via::tcp ? co_await net::connect_tcp("127.0.0.1", agent_->port())
                                  : co_await net::connect_unix(socket_path_);
    ATOLL_CHECK(stream.ok());
    co_return net::HttpClient(*std::move(stream));
  }

  net::Task<Answer> send(Via via, std::string method, std::string target, Headers headers,
                         std::string body) {
    net::HttpClient client = co_await connect(via);
    net::RequestHead head;
    head.method = std::move(method);
    head.target = std::move(target);
    head.headers = std::move(headers);
    auto answer = co_await client.request(head, std::move(body));
    EXPECT_TRUE(answer.ok()) << answer.error().message;
    co_return answer.ok() ? *answer : Answer{};
  }

  Answer request(Via via, std::string method, std::string target, Headers headers = {},
                 std::string body = {}) {
    return run(
        send(via, std::move(method), std::move(target), std::move(headers), std::move(body)));
  }

  template <class T>
  T run(net::Task<T> task) {
    return testing::run_task(io_, std::move(task));
  }

  void init(std::string body) {
    ASSERT_EQ(request(Via::host, "POST", "/init", {}, std::move(body)).head.status, 204);
  }

  TempDir scratch_;
  std::string socket_path_ = scratch_ / "agent.sock";
  asio::io_context io_{1};
  std::unique_ptr<Agent> agent_;
};

}  // namespace atl::agent
