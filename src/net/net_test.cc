#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <future>

#include "net/http.h"
#include "net/http_server.h"

namespace atl::net {
namespace {

// Runs a server and a client coroutine on one io_context; the client decides when it ends.
class NetTest : public ::testing::Test {
 protected:
  template <class T>
  T run(Task<T> task) {
    std::optional<T> out;
    asio::co_spawn(io_, std::move(task), [&](std::exception_ptr e, T value) {
      if (e) std::rethrow_exception(e);
      out.emplace(std::move(value));
      io_.stop();
    });
    io_.restart();
    io_.run_for(std::chrono::seconds(20));
    EXPECT_TRUE(out.has_value()) << "the test did not finish";
    return std::move(*out);
  }

  void serve(Handler handler, ServerOptions options = {}) {
    server_ = std::make_unique<HttpServer>(io_, options, std::move(handler));
    auto port = server_->listen_tcp("127.0.0.1:0", "test");
    ASSERT_TRUE(port.ok()) << port.error().message;
    port_ = *port;
  }

  // Sends raw bytes, reads until the peer closes (or `until` was seen).
  Task<std::string> raw(std::string bytes, std::string until = "") {
    auto stream = co_await connect_tcp("127.0.0.1", port_);
    EXPECT_TRUE(stream.ok());
    EXPECT_TRUE((co_await (*stream)->write_all(bytes)).ok());
    std::string out;
    char buf[4096];
    for (;;) {
      auto n = co_await (*stream)->read_some(buf);
      if (!n.ok() || *n == 0) break;
      out.append(buf, *n);
      if (!until.empty() && out.find(until) != std::string::npos) break;
    }
    co_return out;
  }

  asio::io_context io_;
  std::unique_ptr<HttpServer> server_;
  std::uint16_t port_ = 0;
};

Task<void> echo(Exchange& x) {
  auto body = co_await x.body.read_all(1 << 20);
  if (!body.ok()) {
    (void)co_await x.response.send(body.error().code == Errc::resource_exhausted ? 413 : 400, {},
                                   body.error().message);
    co_return;
  }
  Headers headers;
  headers.add("X-Method", x.request.method);
  headers.add("X-Q", x.request.query_param("q").value_or("-"));
  (void)co_await x.response.send(200, headers, *body);
}

TEST_F(NetTest, KeepAliveEcho) {
  serve(echo);
  auto task = [](std::uint16_t port) -> Task<int> {
    auto stream = co_await connect_tcp("127.0.0.1", port);
    HttpClient client(std::move(*stream));
    for (int i = 0; i < 3; ++i) {
      RequestHead head;
      head.method = "POST";
      head.target = "/x?q=a%20b+c";
      auto answer = co_await client.request(head, "hello " + std::to_string(i));
      EXPECT_TRUE(answer.ok()) << answer.error().message;
      EXPECT_EQ(answer->body, "hello " + std::to_string(i));
      EXPECT_EQ(answer->head.headers.get("x-q"), "a b c");
      EXPECT_TRUE(client.reusable());
    }
    co_return 1;
  };
  run(task(port_));
}

TEST_F(NetTest, ChunkedBothWays) {
  serve([](Exchange& x) -> Task<void> {
    (void)co_await x.response.start(200, {}, std::nullopt);
    char buf[1000];
    for (;;) {
      auto n = co_await x.body.read_some(buf);
      EXPECT_TRUE(n.ok());
      if (!n.ok() || *n == 0) break;
      (void)co_await x.response.write(std::string_view(buf, *n));
    }
    (void)co_await x.response.finish();
  });
  auto task = [](std::uint16_t port) -> Task<int> {
    auto stream = co_await connect_tcp("127.0.0.1", port);
    HttpClient client(std::move(*stream));
    RequestHead head;
    head.method = "POST";
    (void)co_await client.write_head(head, std::nullopt);
    std::string sent;
    for (int i = 0; i < 50; ++i) {
      const std::string piece(std::size_t(i * 37), char('a' + i % 26));
      sent += piece;
      (void)co_await client.write_body(piece);
    }
    (void)co_await client.finish_body();
    auto answer = co_await client.read_head();
    EXPECT_TRUE(answer.ok());
    auto body = co_await client.body().read_all(1 << 20);
    EXPECT_TRUE(body.ok());
    EXPECT_EQ(*body, sent);
    // The answer began before the request's end, so it had to say that the connection closes.
    EXPECT_FALSE(client.reusable());
    co_return 1;
  };
  run(task(port_));
}

TEST_F(NetTest, PipelinedRequestsAreAnsweredInOrder) {
  serve(echo);
  const std::string out =
      run(raw("POST /1 HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\noneGET /2 HTTP/1.1\r\nHost: "
              "h\r\nConnection: close\r\n\r\n"));
  EXPECT_NE(out.find("\r\n\r\none"), std::string::npos) << out;
  EXPECT_NE(out.find("X-Method: GET"), std::string::npos) << out;
}

TEST_F(NetTest, RefusesSmuggling) {
  serve(echo);
  for (const char* request : {
           "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: "
           "chunked\r\n\r\n0\r\n\r\n",
           "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: "
           "3\r\n\r\n0\r\n\r\n",
           "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
           "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n",
           "POST / HTTP/1.1\r\nHost : h\r\n\r\n",
           "GARBAGE\r\n\r\n",
       }) {
    const std::string out = run(raw(request));
    EXPECT_EQ(out.substr(0, 12), "HTTP/1.1 400") << request << "\n" << out;
  }
}

TEST_F(NetTest, HeaderLimitGives431) {
  ServerOptions options;
  options.limits.header_bytes = 4096;
  serve(echo, options);
  const std::string out = run(raw("GET / HTTP/1.1\r\nX: " + std::string(10000, 'a') + "\r\n\r\n"));
  EXPECT_EQ(out.substr(0, 12), "HTTP/1.1 431") << out;
}

TEST_F(NetTest, SlowHeaderIsCutOff) {
  ServerOptions options;
  options.limits.header_time = std::chrono::milliseconds(50);
  serve(echo, options);
  const std::string out = run(raw("GET / HT"));
  EXPECT_EQ(out.substr(0, 12), "HTTP/1.1 408") << out;
}

TEST_F(NetTest, ATrickledHeaderIsCutOffToo) {
  ServerOptions options;
  options.limits.header_time = std::chrono::milliseconds(200);
  serve(echo, options);
  auto task = [](std::uint16_t port) -> Task<std::string> {
    auto stream = co_await connect_tcp("127.0.0.1", port);
    (void)co_await (*stream)->write_all("GET / HTTP/1.1\r\nHost: h\r\n");
    asio::steady_timer timer(co_await asio::this_coro::executor);
    for (int i = 0; i < 50; ++i) {
      if (!(co_await (*stream)->write_all("X: y\r\n")).ok()) break;
      timer.expires_after(std::chrono::milliseconds(20));
      co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
      char buf[1000];
      (*stream)->set_read_timeout(std::chrono::milliseconds(1));
      auto n = co_await (*stream)->read_some(buf);
      if (n.ok()) co_return std::string(buf, *n);
    }
    co_return "never";
  };
  EXPECT_EQ(run(task(port_)).substr(0, 12), "HTTP/1.1 408");
}

TEST_F(NetTest, ConnectionsPerPeerAreLimited) {
  ServerOptions options;
  options.max_connections_per_peer = 2;
  serve(echo, options);
  auto task = [](HttpServer& server, std::uint16_t port) -> Task<int> {
    asio::steady_timer timer(co_await asio::this_coro::executor);
    {
      std::vector<HttpClient> clients;
      for (int i = 0; i < 3; ++i) {
        auto stream = co_await connect_tcp("127.0.0.1", port);
        clients.emplace_back(std::move(*stream));
        auto answer = co_await clients.back().request({}, "");
        EXPECT_EQ(answer.ok(), i < 2);
      }
    }
    for (int i = 0; i < 200 && server.connections() > 0; ++i) {
      timer.expires_after(std::chrono::milliseconds(5));
      co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
    }
    auto again = co_await connect_tcp("127.0.0.1", port);
    HttpClient client(std::move(*again));
    EXPECT_TRUE((co_await client.request({}, "")).ok());
    co_return 1;
  };
  run(task(*server_, port_));
}

TEST_F(NetTest, ExpectContinue) {
  serve(echo);
  const std::string out =
      run(raw("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi",
              "\r\n\r\nhi"));
  EXPECT_EQ(out.find("HTTP/1.1 100 Continue\r\n\r\n"), 0u) << out;
}

TEST_F(NetTest, LargeRefusedUploadStillSeesTheAnswer) {
  serve([](Exchange& x) -> Task<void> { (void)co_await x.response.send(413, {}, "too big"); });
  auto task = [](std::uint16_t port) -> Task<int> {
    auto stream = co_await connect_tcp("127.0.0.1", port);
    HttpClient client(std::move(*stream));
    RequestHead head;
    head.method = "POST";
    (void)co_await client.write_head(head, 4 << 20);
    const std::string piece(1 << 20, 'x');
    for (int i = 0; i < 4; ++i) {
      if (!(co_await client.write_body(piece)).ok()) break;
    }
    auto answer = co_await client.read_head();
    EXPECT_TRUE(answer.ok()) << answer.error().message;
    if (answer.ok()) EXPECT_EQ(answer->status, 413);
    co_return 1;
  };
  run(task(port_));
}

TEST_F(NetTest, ThrowingHandlerGives500AndServerLives) {
  serve([](Exchange& x) -> Task<void> {
    if (x.request.target == "/throw") throw std::runtime_error("boom");
    (void)co_await x.response.send(200, {}, "fine");
  });
  EXPECT_EQ(run(raw("GET /throw HTTP/1.1\r\nHost: h\r\n\r\n")).substr(0, 12), "HTTP/1.1 500");
  EXPECT_NE(run(raw("GET / HTTP/1.0\r\n\r\n")).find("fine"), std::string::npos);
}

TEST_F(NetTest, PeerCloseIsNoticedWhileStreaming) {
  bool noticed = false;
  serve([&noticed](Exchange& x) -> Task<void> {
    (void)co_await x.response.start(200, {}, std::nullopt);
    co_await x.stream.wait_peer_closed();
    noticed = true;
  });
  auto task = [](std::uint16_t port, bool& seen) -> Task<int> {
    {
      auto stream = co_await connect_tcp("127.0.0.1", port);
      (void)co_await (*stream)->write_all("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
      char buf[1024];
      (void)co_await (*stream)->read_some(buf);
    }
    asio::steady_timer timer(co_await asio::this_coro::executor);
    for (int i = 0; i < 500 && !seen; ++i) {
      timer.expires_after(std::chrono::milliseconds(5));
      co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
    }
    co_return 1;
  };
  run(task(port_, noticed));
  EXPECT_TRUE(noticed);
}

TEST_F(NetTest, PeerCloseIsNoticedBehindUnreadBytes) {
  bool noticed = false;
  serve([&noticed](Exchange& x) -> Task<void> {
    (void)co_await x.response.start(200, {}, std::nullopt);
    co_await x.stream.wait_peer_closed();
    noticed = true;
  });
  auto task = [](std::uint16_t port, bool& seen) -> Task<int> {
    {
      auto stream = co_await connect_tcp("127.0.0.1", port);
      (void)co_await (*stream)->write_all(
          "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n");
      char buf[1024];
      (void)co_await (*stream)->read_some(buf);
      (void)co_await (*stream)->write_all("unwanted!");
    }
    asio::steady_timer timer(co_await asio::this_coro::executor);
    for (int i = 0; i < 500 && !seen; ++i) {
      timer.expires_after(std::chrono::milliseconds(5));
      co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
    }
    co_return 1;
  };
  run(task(port_, noticed));
  EXPECT_TRUE(noticed);
}

TEST_F(NetTest, AbortSendsReset) {
  serve([](Exchange& x) -> Task<void> {
    (void)co_await x.response.start(200, {}, std::nullopt);
    (void)co_await x.response.write("part");
    x.response.abort();
  });
  auto task = [](std::uint16_t port) -> Task<int> {
    auto stream = co_await connect_tcp("127.0.0.1", port);
    (void)co_await (*stream)->write_all("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    char buf[1024];
    for (;;) {
      auto n = co_await (*stream)->read_some(buf);
      if (!n.ok()) co_return n.error().sys_errno;
      if (*n == 0) co_return 0;
    }
  };
  EXPECT_EQ(run(task(port_)), ECONNRESET);
}

TEST_F(NetTest, ShutdownClosesIdleConnectionsAndStopsListening) {
  serve(echo);
  auto task = [](HttpServer& server, std::uint16_t port) -> Task<int> {
    auto idle = co_await connect_tcp("127.0.0.1", port);
    HttpClient client(std::move(*idle));
    (void)co_await client.request({}, "");
    co_await server.shutdown(std::chrono::milliseconds(500));
    EXPECT_EQ(server.connections(), 0u);
    auto refused = co_await connect_tcp("127.0.0.1", port);
    EXPECT_FALSE(refused.ok());
    co_return 1;
  };
  run(task(*server_, port_));
}

TEST(Headers, Lists) {
  Headers h{{"Connection", "keep-alive, Upgrade"}, {"connection", "close"}};
  EXPECT_TRUE(h.lists("Connection", "upgrade"));
  EXPECT_TRUE(h.lists("Connection", "CLOSE"));
  EXPECT_FALSE(h.lists("Connection", "keep"));
  h.set("CONNECTION", "x");
  EXPECT_EQ(h.size(), 1u);
}

}  // namespace
}  // namespace atl::net
