// HTTP through the proxy: messages arrive as they were meant, whatever their framing.
#include "egress/testing_proxy.h"

namespace atl::egress {
namespace {

using namespace atl::egress::testing;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class HttpRelayTest : public ProxyTest {
 protected:
  // A server that answers its n-th request (over all connections) with the n-th text and then, if
  // the text is marked, ends the connection.
  struct Reply {
    std::string text;
    bool close = false;
  };
  void serve(std::vector<Reply> replies) {
    auto count = std::make_shared<std::atomic<std::size_t>>(0);
    server_ = std::make_unique<TcpServer>([this, replies, count](int fd) {
      for (;;) {
        const std::string head = receive_until(fd, "\r\n\r\n");
        if (head.empty()) return;
        {
          std::lock_guard lock(seen_mutex_);
          seen_ += head;
        }
        const std::size_t n = (*count)++;
        if (n >= replies.size()) return;
        send_all(fd, replies[n].text);
        if (replies[n].close) return;
      }
    });
    start();
    host("203.0.113.5", 80, server_->port());
    table_.set(ip("127.0.0.2"), one_, policy(kOnlyAllowed));
    dns("allowed.com", "203.0.113.5");
  }
  std::string seen() {
    std::lock_guard lock(seen_mutex_);
    return seen_;
  }
  std::mutex seen_mutex_;
  std::string seen_;
  std::unique_ptr<TcpServer> server_;
};

TEST_F(HttpRelayTest, AnswersWithoutABody) {
  serve({{"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"},
         {"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\nETag: x\r\n\r\n"},
         {"HTTP/1.1 204 No Content\r\n\r\n"},
         {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"}});
  const auto fd = go("203.0.113.5", 80);
  send_all(fd.get(), "HEAD / HTTP/1.1\r\nHost: allowed.com\r\n\r\n");
  EXPECT_THAT(receive_until(fd.get(), "\r\n\r\n"), HasSubstr("Content-Length: 1000\r\n"));
  for (const char* status : {"304", "204", "200"}) {
    send_all(fd.get(), get("allowed.com"));
    EXPECT_THAT(receive_until(fd.get(), "\r\n\r\n"), StartsWith("HTTP/1.1 " + std::string(status)));
  }
  EXPECT_EQ(server_->accepted(), 1);
}

TEST_F(HttpRelayTest, ABodyUntilTheEndBecomesChunks) {
  serve(
      {{"HTTP/1.1 200 OK\r\n\r\nhello", true}, {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n>>"}});
  const auto fd = go("203.0.113.5", 80);
  send_all(fd.get(), get("allowed.com"));
  const std::string first = receive_until(fd.get(), "0\r\n\r\n");
  EXPECT_THAT(first, HasSubstr("Transfer-Encoding: chunked"));
  EXPECT_THAT(first, EndsWith("5\r\nhello\r\n0\r\n\r\n"));
  EXPECT_THAT(ask(fd, get("allowed.com")), HasSubstr("200 OK"));  // over a new connection
  EXPECT_EQ(server_->accepted(), 2);
}

TEST_F(HttpRelayTest, OldClientsGetTheEndItself) {
  serve({{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"}});
  const auto fd = go("203.0.113.5", 80);
  send_all(fd.get(), "GET / HTTP/1.0\r\nHost: allowed.com\r\n\r\n");
  const Ending ending = read_to_end(fd.get());
  EXPECT_THAT(ending.bytes, EndsWith("\r\n\r\nhello"));
  EXPECT_THAT(ending.bytes, Not(HasSubstr("chunked")));
}

TEST_F(HttpRelayTest, AConnectionThatDiedIdleIsReplaced) {
  serve({{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n>>", true},
         {"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n>>"}});
  const auto fd = go("203.0.113.5", 80);
  EXPECT_THAT(ask(fd, get("allowed.com")), StartsWith("HTTP/1.1 200"));
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_THAT(ask(fd, get("allowed.com")), StartsWith("HTTP/1.1 201"));
  EXPECT_EQ(server_->accepted(), 2);
}

TEST_F(HttpRelayTest, AnAnswerCutShortDoesNotLookWhole) {
  serve({{"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", true}});
  const auto fd = go("203.0.113.5", 80);
  send_all(fd.get(), get("allowed.com"));
  EXPECT_TRUE(read_to_end(fd.get()).reset);
}

TEST_F(HttpRelayTest, GarbageFromTheHostIs502) {
  serve({{"SSH-2.0-OpenSSH\r\n\r\n", true}});
  const auto fd = go("203.0.113.5", 80);
  send_all(fd.get(), get("allowed.com"));
  EXPECT_THAT(read_to_end(fd.get()).bytes, StartsWith("HTTP/1.1 502"));
}

TEST_F(HttpRelayTest, AnEarlyAnswerPassesWhileTheBodyIsStillComing) {
  serve({{"HTTP/1.1 413 Payload Too Large\r\nContent-Length: 2\r\n\r\n>>", true}});
  const auto fd = go("203.0.113.5", 80);
  send_all(fd.get(),
           "POST / HTTP/1.1\r\nHost: allowed.com\r\nContent-Length: 1000000\r\n\r\nstart");
  EXPECT_THAT(receive_until(fd.get(), ">>"), StartsWith("HTTP/1.1 413"));
  EXPECT_TRUE(read_to_end(fd.get()).ended);
  EXPECT_TRUE(eventually([&] { return proxy_->connections() == 0; }));
}

TEST_F(HttpRelayTest, AClientThatGoesAwayInsideABodyTakesTheRequestWithIt) {
  std::atomic<bool> cut = false;
  TcpServer server([&](int fd) {
    receive_until(fd, "start");
    cut = read_to_end(fd).ended;
  });
  start();
  host("203.0.113.5", 80, server.port());
  table_.set(ip("127.0.0.2"), one_, policy(kOnlyAllowed));
  dns("allowed.com", "203.0.113.5");
  {
    const auto fd = go("203.0.113.5", 80);
    send_all(
        fd.get(),
        "POST / HTTP/1.1\r\nHost: allowed.com\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nstart\r\n");
    ASSERT_TRUE(eventually([&] { return server.accepted() == 1; }));
  }
  EXPECT_TRUE(eventually([&] { return cut.load(); }));
  EXPECT_TRUE(eventually([&] { return proxy_->connections() == 0; }));
}

TEST_F(HttpRelayTest, HopByHopHeadersStayOnTheirSide) {
  serve(
      {{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: X-Private\r\nX-Private: 1\r\n"
        "Keep-Alive: timeout=5\r\nX-Public: 1\r\n\r\n>>"}});
  const auto fd = go("203.0.113.5", 80);
  const std::string answer =
      ask(fd, get("allowed.com",
                  "Connection: X-Secret\r\nX-Secret: 1\r\nProxy-Authorization: p\r\n"
                  "TE: trailers\r\nX-Open: 1\r\n"));
  EXPECT_THAT(answer, HasSubstr("X-Public: 1"));
  EXPECT_THAT(answer, Not(HasSubstr("X-Private")));
  EXPECT_THAT(answer, Not(HasSubstr("Keep-Alive")));
  EXPECT_THAT(seen(), HasSubstr("X-Open: 1"));
  EXPECT_THAT(seen(), Not(HasSubstr("X-Secret")));
  EXPECT_THAT(seen(), Not(HasSubstr("Proxy-Authorization")));
}

TEST_F(HttpRelayTest, BreaksInTheHostsHeadersMakeNoNewOnes) {
  serve({{"HTTP/1.1 200 OK\r\nX-A: b\r\n c\r\nContent-Length: 2\r\n\r\n>>"}});
  const auto fd = go("203.0.113.5", 80);
  send_all(fd.get(), get("allowed.com"));
  const std::string answer = receive_until(fd.get(), ">>", 3000);
  EXPECT_THAT(answer, Not(HasSubstr("\r\n c")));
}

}  // namespace
}  // namespace atl::egress
