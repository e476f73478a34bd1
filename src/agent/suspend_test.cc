// POST /suspend: what the agent lets go of, and what stays.
#include <signal.h>

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <set>

#include "agent/agent_test_support.h"
#include "agent/process.pb.h"
#include "rpc/client.h"

namespace atl::agent {
namespace {

namespace pb = ::process;

// Descriptors of this process that are sockets accepted by the host's listener.
std::size_t accepted_sockets(const std::string& path) {
  std::size_t count = 0;
  for (int fd = 3; fd < 1024; ++fd) {
    sockaddr_un own{};
    sockaddr_un peer{};
    socklen_t size = sizeof own;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) != 0 ||
        own.sun_family != AF_UNIX || own.sun_path != path)
      continue;
    size = sizeof peer;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0) ++count;
  }
  return count;
}

class SuspendTest : public AgentTest {
 protected:
  net::RequestHead post(std::string target) {
    net::RequestHead head;
    head.method = "POST";
    head.target = std::move(target);
    return head;
  }
  // The answer, then the end of the connection, at which nothing of the host's may be left.
  net::Task<Answer> suspend() {
    net::HttpClient client = co_await connect(Via::host);
    const auto answer = co_await client.request(post("/suspend"), "");
    EXPECT_TRUE(answer.ok());
    char byte = 0;
    const auto n = co_await client.stream().read_some(std::span<char>(&byte, 1));
    EXPECT_TRUE(n.ok() && *n == 0);
    co_return answer.ok() ? *answer : Answer{};
  }
};

TEST_F(SuspendTest, OnlyTheHostMayAskForIt) {
  EXPECT_EQ(request(Via::tcp, "POST", "/suspend").head.status, 404);
  EXPECT_EQ(request(Via::tcp, "POST", "/wake", {}, "{}").head.status, 404);
  EXPECT_EQ(request(Via::host, "GET", "/suspend").head.status, 405);
}

TEST_F(SuspendTest, ClosesEveryConnectionOfTheHost) {
  const auto scenario = [&]() -> net::Task<bool> {
    // One that is idle, one in a stream, one in a tunnel, one in the middle of a request.
    net::HttpClient idle = co_await connect(Via::host);
    net::RequestHead health;
    health.method = "GET";
    health.target = "/health";
    EXPECT_TRUE((co_await idle.request(health, "")).ok());

    net::HttpClient follower = co_await connect(Via::host);
    pb::StartRequest start;
    start.mutable_process()->set_cmd("/bin/sleep");
    start.mutable_process()->add_args("1000");
    auto stream = co_await rpc::ServerStream::open(follower, "/process.Process/Start", start);
    pb::StartResponse event;
    EXPECT_TRUE(stream.ok() && *co_await stream->next(event));
    const auto pid = pid_t(event.event().start().pid());

    net::HttpClient tunnel = co_await connect(Via::host);
    const std::string ask = "CONNECT " + std::to_string(agent_->port()) + " HTTP/1.1\r\n\r\n";
    EXPECT_TRUE((co_await tunnel.stream().write_all(ask)).ok());
    char bytes[64];
    EXPECT_TRUE((co_await tunnel.stream().read_some(bytes)).ok());

    net::HttpClient half = co_await connect(Via::host);
    EXPECT_TRUE((co_await half.write_head(post("/init"), 100)).ok());

    net::HttpClient inside = co_await connect(Via::tcp);
    EXPECT_TRUE((co_await inside.request(health, "")).ok());
    EXPECT_GE(accepted_sockets(socket_path_), 4U);

    const Answer answer = co_await suspend();
    EXPECT_EQ(answer.head.status, 204);
    EXPECT_EQ(answer.head.headers.get("Connection"), "close");
    EXPECT_EQ(accepted_sockets(socket_path_), 0U);
    for (net::HttpClient* each : {&idle, &tunnel, &half}) {
      const auto n = co_await each->stream().read_some(bytes);
      EXPECT_TRUE(!n.ok() || *n == 0);
    }
    EXPECT_FALSE((co_await stream->next(event)).ok());
    // Clients inside keep theirs, and the process goes on.
    EXPECT_TRUE((co_await inside.request(health, "")).ok());
    co_return ::kill(pid, SIGKILL) == 0;
  };
  EXPECT_TRUE(run(scenario()));
}

TEST_F(SuspendTest, ServesOnAfterwards) {
  EXPECT_EQ(run(suspend()).head.status, 204);
  EXPECT_EQ(request(Via::host, "GET", "/health").head.status, 204);
  EXPECT_EQ(run(suspend()).head.status, 204);
}

TEST_F(SuspendTest, AnnouncementEndsNothing) {
  const auto scenario = [&]() -> net::Task<int> {
    net::HttpClient client = co_await connect(Via::host);
    for (int i = 0; i < 2; ++i) {
      const auto answer = co_await client.request(post("/suspend?soon=1"), "");
      EXPECT_TRUE(answer.ok());
      EXPECT_EQ(answer->head.status, 204);
    }
    co_return int(accepted_sockets(socket_path_));
  };
  EXPECT_EQ(run(scenario()), 1);
}

TEST_F(SuspendTest, NeedsNoToken) {
  init(R"({"accessToken":"t0k"})");
  EXPECT_EQ(run(suspend()).head.status, 204);
}

}  // namespace
}  // namespace atl::agent
