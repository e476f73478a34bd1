// What the proxy lets pass, and what not.
#include "egress/testing_proxy.h"

namespace atl::egress {
namespace {

using namespace atl::egress::testing;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// ---- who and where ----

TEST_F(ProxyTest, UnknownPeersAreReset) {
  start();
  EXPECT_TRUE(refused(go("203.0.113.5", 443)));
  EXPECT_EQ(dialled(), 0u);
}

TEST_F(ProxyTest, NeverReachableAddressesAreRefusedWhateverTheNames) {
  start();
  table_.set(ip("127.0.0.2"), one_, policy(kOnlyAllowed));
  for (const char* address : {"10.0.0.1", "127.0.0.1", "169.254.169.254", "192.168.0.1"}) {
    dns("allowed.com", address);
    const auto fd = go(address, 443);
    send_all(fd.get(), hello_for("allowed.com"));
    EXPECT_TRUE(refused(fd)) << address;
  }
  table_.set(ip("127.0.0.2"), one_, Policy{});
  EXPECT_TRUE(refused(go("10.0.0.1", 8080)));
  EXPECT_EQ(dialled(), 0u);
}

TEST_F(ProxyTest, OtherPortsGoByAddressOnly) {
  TcpServer server(echo);
  start();
  host("203.0.113.5", 5432, server.port());
  table_.set(ip("127.0.0.2"), one_,
             policy(R"({"denyOut":["0.0.0.0/0"],"allowOut":["203.0.113.5","allowed.com"]})"));
  const auto fd = go("203.0.113.5", 5432);
  send_all(fd.get(), "hi");
  EXPECT_EQ(receive_until(fd.get(), "echo:hi"), "echo:hi");
  dns("allowed.com", "203.0.113.6");
  EXPECT_TRUE(refused(go("203.0.113.6", 5432)));
}

TEST_F(ProxyTest, HalfCloseAndBigTransfers) {
  std::string received;
  TcpServer server([&](int fd) {
    for (;;) {
      const std::string bytes = receive(fd);
      if (bytes.empty()) break;
      received += bytes;
    }
    send_all(fd, std::string(3'000'000, 'z'));
    ::shutdown(fd, SHUT_WR);
  });
  start();
  host("203.0.113.5", 443, server.port());
  table_.set(ip("127.0.0.2"), one_, Policy{});
  const auto fd = go("203.0.113.5", 443);
  ASSERT_TRUE(send_all(fd.get(), std::string(2'000'000, 'a')));
  ::shutdown(fd.get(), SHUT_WR);
  const Ending ending = read_to_end(fd.get());
  EXPECT_TRUE(ending.ended && !ending.reset);
  EXPECT_EQ(ending.bytes.size(), 3'000'000u);
  EXPECT_EQ(received.size(), 2'000'000u);
  EXPECT_TRUE(eventually([&] { return proxy_->connections() == 0; }));
}

// ---- TLS by name ----

TEST_F(ProxyTest, TlsPassesWhenNameAndAddressBelongTogether) {
  TcpServer server(echo);
  start();
  host("203.0.113.5", 443, server.port());
  table_.set(ip("127.0.0.2"), one_, policy(kOnlyAllowed));
  dns("allowed.com", "203.0.113.5");
  const auto fd = go("203.0.113.5", 443);
  const std::string hello = hello_for("Allowed.com");
  send_all(fd.get(), hello.substr(0, 3));  // in segments
  std::this_thread::sleep_for(milliseconds(20));
  send_all(fd.get(), hello.substr(3));
  EXPECT_EQ(receive_until(fd.get(), hello), "echo:" + hello);
  send_all(fd.get(), "more");
  EXPECT_THAT(receive_until(fd.get(), "more"), HasSubstr("more"));
}

TEST_F(ProxyTest, TlsTricksAreReset) {
  start();
  table_.set(ip("127.0.0.2"), one_, policy(kOnlyAllowed));
  dns("allowed.com", "203.0.113.5");
  names_->remember(*SandboxId::parse("two"), ip("127.0.0.3"), "allowed.com", ip("203.0.113.9"),
                   seconds(60));
  const auto attempt = [&](const std::string& address, const std::string& bytes) {
    const auto fd = go(address, 443);
    send_all(fd.get(), bytes);
    return refused(fd);
  };
  EXPECT_TRUE(attempt("203.0.113.5", hello_for("evil.com")));      // a name that is not allowed
  EXPECT_TRUE(attempt("203.0.113.66", hello_for("allowed.com")));  // forged: another address
  EXPECT_TRUE(attempt("203.0.113.9", hello_for("allowed.com")));   // DNS gave it to another sandbox
  EXPECT_TRUE(attempt("203.0.113.5", hello_for("")));              // no name
  EXPECT_TRUE(attempt("203.0.113.5", hello_for("wild.org")));      // not below the wildcard
  EXPECT_TRUE(attempt("203.0.113.5", "SSH-2.0-x\r\n"));
  EXPECT_TRUE(attempt("203.0.113.5", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
  EXPECT_TRUE(attempt(
      "203.0.113.5", in_records(client_hello_body({server_name_extension({"203.0.113.5"})}), 999)));
  EXPECT_TRUE(attempt(
      "203.0.113.5",
      in_records(client_hello_body({server_name_extension({"allowed.com", "evil.com"})}), 999)));
  EXPECT_TRUE(
      attempt("203.0.113.5", in_records(client_hello_body({extension(0xfe0d, "ech")}), 99)));
  EXPECT_TRUE(
      attempt("203.0.113.5",
              in_records(client_hello_body({extension(1, std::string(60'000, 'x'))}), 9999)));
  EXPECT_EQ(dialled(), 0u);
}

TEST_F(ProxyTest, SilentClientsAreCutOff) {
  ProxyOptions options;
  options.first_bytes = milliseconds(200);
  start(options);
  table_.set(ip("127.0.0.2"), one_, policy(kOnlyAllowed));
  EXPECT_TRUE(refused(go("203.0.113.5", 443)));
  const auto slow = go("203.0.113.5", 443);
  send_all(slow.get(), hello_for("allowed.com").substr(0, 50));
  EXPECT_TRUE(refused(slow));
}

TEST_F(ProxyTest, AfterARestartDnsIsAskedAgain) {
  TcpServer server(echo);
  DnsServer resolver([](const dns::Query& query, bool) {
    return DnsServer::with(
        query, {a_record("allowed.com", "203.0.113.5"), a_record("allowed.com", "10.0.0.1")});
  });
  start({}, {*dns::parse_server(resolver.address())});
  host("203.0.113.5", 443, server.port());
  table_.set(ip("127.0.0.2"), one_, policy(kOnlyAllowed));
  const auto fd = go("203.0.113.5", 443);
  send_all(fd.get(), hello_for("allowed.com"));
  EXPECT_THAT(receive(fd.get()), StartsWith("echo:"));
  const auto other = go("203.0.113.6", 443);
  send_all(other.get(), hello_for("allowed.com"));
  EXPECT_TRUE(refused(other));
  const auto evil = go("203.0.113.5", 443);
  const int asked = resolver.asked();
  send_all(evil.get(), hello_for("secret-data.evil.com"));
  EXPECT_TRUE(refused(evil));
  EXPECT_EQ(resolver.asked(), asked);  // the proxy is no way to send names out
}

// ---- HTTP ----

TEST_F(ProxyTest, EveryRequestOfAConnectionIsChecked) {
  TcpServer server(serve_http);
  start();
  host("203.0.113.5", 80, server.port());
  table_.set(ip("127.0.0.2"), one_, policy(kOnlyAllowed));
  dns("allowed.com", "203.0.113.5");
  dns("a.wild.org", "203.0.113.5");
  const auto fd = go("203.0.113.5", 80);
  EXPECT_THAT(ask(fd, get("allowed.com")), HasSubstr("Host: allowed.com"));
  EXPECT_THAT(ask(fd, get("a.wild.org")), HasSubstr("Host: a.wild.org"));
  send_all(fd.get(), get("evil.com"));
  const Ending ending = read_to_end(fd.get());
  EXPECT_THAT(ending.bytes, StartsWith("HTTP/1.1 403 Forbidden\r\n"));
  EXPECT_THAT(ending.bytes, HasSubstr("evil.com is not allowed"));
  EXPECT_TRUE(ending.ended);
  EXPECT_EQ(server.accepted(), 1);
}

TEST_F(ProxyTest, HttpTricksAreAnswered403) {
  start();
  table_.set(ip("127.0.0.2"), one_, policy(kOnlyAllowed));
  dns("allowed.com", "203.0.113.5");
  const auto attempt = [&](const std::string& address, const std::string& bytes) {
    const auto fd = go(address, 80);
    send_all(fd.get(), bytes);
    return read_to_end(fd.get()).bytes.substr(0, 12);
  };
  EXPECT_EQ(attempt("203.0.113.5", get("evil.com")), "HTTP/1.1 403");
  EXPECT_EQ(attempt("203.0.113.66", get("allowed.com")), "HTTP/1.1 403");  // forged address
  EXPECT_EQ(attempt("203.0.113.5", get("203.0.113.5")), "HTTP/1.1 403");
  EXPECT_EQ(attempt("203.0.113.5", "GET / HTTP/1.0\r\n\r\n"), "HTTP/1.1 403");
  EXPECT_EQ(attempt("203.0.113.5", get("allowed.com", "Host: evil.com\r\n")), "HTTP/1.1 403");
  EXPECT_EQ(attempt("203.0.113.5", get("allowed.com", "hOST: allowed.com\r\n")), "HTTP/1.1 403");
  EXPECT_EQ(attempt("203.0.113.5", "GET http://evil.com/ HTTP/1.1\r\nHost: allowed.com\r\n\r\n"),
            "HTTP/1.1 403");
  EXPECT_EQ(attempt("203.0.113.5", "CONNECT evil.com:443 HTTP/1.1\r\nHost: allowed.com\r\n\r\n"),
            "HTTP/1.1 403");
  EXPECT_EQ(attempt("203.0.113.5", "GET / HTTP/1.1\r\nHost : allowed.com\r\n\r\n"), "HTTP/1.1 400");
  EXPECT_EQ(attempt("203.0.113.5",
                    "POST / HTTP/1.1\r\nHost: allowed.com\r\nContent-Length: 1\r\n"
                    "Content-Length: 2\r\n\r\nab"),
            "HTTP/1.1 400");
  EXPECT_EQ(attempt("203.0.113.5",
                    "POST / HTTP/1.1\r\nHost: allowed.com\r\nContent-Length: 5\r\n"
                    "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            "HTTP/1.1 400");
  EXPECT_EQ(
      attempt("203.0.113.5",
              "POST / HTTP/1.1\r\nHost: allowed.com\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"
              "0\r\n\r\n"),
      "HTTP/1.1 400");
  EXPECT_EQ(attempt("203.0.113.5", "GET / HTTP/1.1\r\nHost: allowed.com\r\nX: " +
                                       std::string(100'000, 'x') + "\r\n\r\n"),
            "HTTP/1.1 400");
  EXPECT_EQ(dialled(), 0u);
}

// A second request in the body of the first reaches the host as a body, or is checked itself.
TEST_F(ProxyTest, SmuggledRequestsAreSeen) {
  std::mutex mutex;
  std::string seen;
  TcpServer server([&](int fd) {
    for (;;) {
      const std::string bytes = receive(fd);
      if (bytes.empty()) return;
      std::lock_guard lock(mutex);
      seen += bytes;
      if (seen.find("GET /evil") == std::string::npos ||
          seen.find("0\r\n\r\n") != std::string::npos)
        send_all(fd, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n>>");
    }
  });
  start();
  host("203.0.113.5", 80, server.port());
  table_.set(ip("127.0.0.2"), one_, policy(kOnlyAllowed));
  dns("allowed.com", "203.0.113.5");
  const auto fd = go("203.0.113.5", 80);
  // Pipelined behind a request without a body: looked at, refused.
  send_all(fd.get(), get("allowed.com") + "GET /evil HTTP/1.1\r\nHost: evil.com\r\n\r\n");
  const Ending ending = read_to_end(fd.get());
  EXPECT_THAT(ending.bytes, HasSubstr("HTTP/1.1 200 OK"));
  EXPECT_THAT(ending.bytes, HasSubstr("HTTP/1.1 403"));
  std::lock_guard lock(mutex);
  EXPECT_THAT(seen, Not(HasSubstr("evil")));
}

TEST_F(ProxyTest, BodiesStreamBothWays) {
  std::string seen;
  TcpServer server([&](int fd) {
    seen = receive_until(fd, "\r\n0\r\n\r\n");
    send_all(fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 50; ++i) send_all(fd, "3e8\r\n" + std::string(1000, 'Z') + "\r\n");
    send_all(fd, "0\r\n\r\n");
    receive(fd);
  });
  start();
  host("203.0.113.5", 80, server.port());
  table_.set(ip("127.0.0.2"), one_, policy(kOnlyAllowed));
  dns("allowed.com", "203.0.113.5");
  const auto fd = go("203.0.113.5", 80);
  send_all(fd.get(),
           "POST /up HTTP/1.1\r\nHost: allowed.com\r\nTransfer-Encoding: chunked\r\n"
           "Expect: 100-continue\r\n\r\n");
  EXPECT_THAT(receive(fd.get()), StartsWith("HTTP/1.1 100"));
  for (int i = 0; i < 20; ++i) send_all(fd.get(), "a\r\n0123456789\r\n");
  send_all(fd.get(), "0\r\n\r\n");
  const std::string answer = receive_until(fd.get(), "\r\n0\r\n\r\n");
  EXPECT_EQ(std::count(answer.begin(), answer.end(), 'Z'), 50'000);
  EXPECT_THAT(seen, HasSubstr("0123456789"));
  EXPECT_THAT(seen, Not(HasSubstr("100-continue")));
}

TEST_F(ProxyTest, WebSocketPassesOtherUpgradesDoNot) {
  TcpServer server([](int fd) {
    const std::string head = receive_until(fd, "\r\n\r\n");
    if (head.find("Upgrade: websocket") == std::string::npos) {
      send_all(fd, mirror(head));
      return;
    }
    send_all(fd,
             "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
             "Sec-WebSocket-Accept: x\r\n\r\nearly");
    echo(fd);
  });
  start();
  host("203.0.113.5", 80, server.port());
  table_.set(ip("127.0.0.2"), one_, policy(kOnlyAllowed));
  dns("allowed.com", "203.0.113.5");
  const auto fd = go("203.0.113.5", 80);
  send_all(fd.get(), get("allowed.com", "Connection: Upgrade\r\nUpgrade: websocket\r\n"));
  EXPECT_THAT(receive_until(fd.get(), "early"), HasSubstr("101 Switching"));
  send_all(fd.get(), "frame");
  EXPECT_EQ(receive_until(fd.get(), "frame"), "echo:frame");

  const auto h2c = go("203.0.113.5", 80);
  EXPECT_THAT(ask(h2c, get("allowed.com",
                           "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
                           "HTTP2-Settings: AAMAAABkAAQAAP__\r\n")),
              Not(HasSubstr("h2c")));
}

TEST_F(ProxyTest, UnreachableHostsAre502) {
  start();
  table_.set(ip("127.0.0.2"), one_, policy(kOnlyAllowed));
  dns("allowed.com", "203.0.113.5");
  const auto fd = go("203.0.113.5", 80);
  send_all(fd.get(), get("allowed.com"));
  EXPECT_THAT(read_to_end(fd.get()).bytes, StartsWith("HTTP/1.1 502"));
  const auto tls = go("203.0.113.5", 443);
  send_all(tls.get(), hello_for("allowed.com"));
  EXPECT_TRUE(refused(tls));
}

TEST_F(ProxyTest, HeaderRulesOnPlainHttp) {
  TcpServer server(serve_http);
  start();
  host("203.0.113.5", 80, server.port());
  host("203.0.113.66", 80, server.port());
  table_.set(ip("127.0.0.2"), one_,
             policy(R"({"rules":{"api.com":[{"transform":{"headers":{"X-Token":"secret"}}}]}})"));
  dns("api.com", "203.0.113.5");
  const auto fd = go("203.0.113.5", 80);
  const std::string answer = ask(fd, get("api.com",
                                         "x-token: mine\r\nX-TOKEN: mine2\r\n"
                                         "Connection: X-Token, Host\r\n"));
  EXPECT_THAT(answer, HasSubstr("X-Token: secret\r\n"));
  EXPECT_THAT(answer, Not(HasSubstr("mine")));
  EXPECT_THAT(answer, HasSubstr("Host: api.com"));
  // Another host on the same connection gets no header.
  EXPECT_THAT(ask(fd, get("other.com")), Not(HasSubstr("secret")));
  // A server that is not the host by DNS never sees the secret.
  const auto forged = go("203.0.113.66", 80);
  send_all(forged.get(), get("api.com"));
  EXPECT_THAT(read_to_end(forged.get()).bytes, StartsWith("HTTP/1.1 403"));
}

// ---- life ----

TEST_F(ProxyTest, ConnectionsEndWithTheSandbox) {
  TcpServer server(echo);
  ProxyOptions options;
  options.sweep_every = milliseconds(20);
  start(options);
  host("203.0.113.5", 443, server.port());
  table_.set(ip("127.0.0.2"), one_, Policy{});
  const auto fd = go("203.0.113.5", 443);
  send_all(fd.get(), "hi");
  EXPECT_EQ(receive(fd.get()), "echo:hi");
  table_.set(ip("127.0.0.2"), *SandboxId::parse("two"), Policy{});
  EXPECT_TRUE(read_to_end(fd.get()).reset);
  EXPECT_TRUE(eventually([&] { return proxy_->connections() == 0; }));

  const auto next = go("203.0.113.5", 443);
  send_all(next.get(), "hi");
  EXPECT_EQ(receive(next.get()), "echo:hi");
  proxy_->drop(ip("127.0.0.2"));
  EXPECT_TRUE(read_to_end(next.get()).reset);
}

TEST_F(ProxyTest, IdleConnectionsEnd) {
  TcpServer server(echo);
  ProxyOptions options;
  options.sweep_every = milliseconds(20);
  options.idle = milliseconds(300);
  start(options);
  host("203.0.113.5", 443, server.port());
  table_.set(ip("127.0.0.2"), one_, Policy{});
  const auto fd = go("203.0.113.5", 443);
  for (int i = 0; i < 10; ++i) {  // traffic keeps it
    send_all(fd.get(), "x");
    ASSERT_EQ(receive(fd.get()), "echo:x");
    std::this_thread::sleep_for(milliseconds(50));
  }
  EXPECT_TRUE(read_to_end(fd.get()).reset);
}

TEST_F(ProxyTest, ConnectionsAreBounded) {
  TcpServer server(echo);
  ProxyOptions options;
  options.per_sandbox = 2;
  options.in_all = 3;
  start(options);
  host("203.0.113.5", 443, server.port());
  table_.set(ip("127.0.0.2"), one_, Policy{});
  table_.set(ip("127.0.0.3"), *SandboxId::parse("two"), Policy{});
  std::vector<sys::UniqueFd> open;
  const auto works = [&](const std::string& from) {
    open.push_back(go("203.0.113.5", 443, from));
    send_all(open.back().get(), "x");
    return receive(open.back().get()) == "echo:x";
  };
  EXPECT_TRUE(works("127.0.0.2"));
  EXPECT_TRUE(works("127.0.0.2"));
  EXPECT_FALSE(works("127.0.0.2"));  // its own limit
  EXPECT_TRUE(works("127.0.0.3"));
  EXPECT_FALSE(works("127.0.0.3"));  // everybody's
  open.clear();
  EXPECT_TRUE(eventually([&] { return proxy_->connections() == 0; }));
  EXPECT_TRUE(works("127.0.0.2"));
}

TEST_F(ProxyTest, PolicyChangesActOnTheNextRequest) {
  TcpServer server(serve_http);
  start();
  host("203.0.113.5", 80, server.port());
  table_.set(ip("127.0.0.2"), one_, policy(kOnlyAllowed));
  dns("allowed.com", "203.0.113.5");
  const auto fd = go("203.0.113.5", 80);
  EXPECT_THAT(ask(fd, get("allowed.com")), HasSubstr("200 OK"));
  table_.set(ip("127.0.0.2"), one_, policy(R"({"denyOut":["0.0.0.0/0"]})"));
  send_all(fd.get(), get("allowed.com"));
  EXPECT_THAT(read_to_end(fd.get()).bytes, StartsWith("HTTP/1.1 403"));
}

}  // namespace
}  // namespace atl::egress
