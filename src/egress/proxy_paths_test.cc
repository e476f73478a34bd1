// The ways that a connection can take beyond passing: interception for header rules, the server's
// own ingress, upstream SOCKS5 proxies.
#include <sys/stat.h>

#include <fstream>

#include "egress/testing_proxy.h"

namespace atl::egress {
namespace {

using namespace atl::egress::testing;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

void serve_https(int fd, const CtxPtr& ctx) {
  Tls tls = Tls::accept(fd, ctx);
  if (!tls.ok()) return;
  for (;;) {
    const std::string head = tls.receive_until("\r\n\r\n");
    if (head.empty() || !tls.send(mirror(head))) return;
  }
}

class InterceptTest : public ProxyTest {
 protected:
  InterceptTest() : ca_(*certs::make_ca("test")) {
    intercepts_ = true;
    extra_ca_ = home_ / "extra.pem";
    std::ofstream(extra_ca_) << ca_.pem().certificate;
  }
  // A web server with a certificate for `name`, from a CA that the proxy trusts (or not).
  std::unique_ptr<TcpServer> https(const std::string& name, const certs::Ca& ca) {
    const std::array<std::string, 1> names = {name};
    const CtxPtr ctx = Tls::server_context(*ca.issue(names));
    return std::make_unique<TcpServer>([ctx](int fd) { serve_https(fd, ctx); });
  }
  Tls tls_to(const std::string& address, const std::string& name, std::uint16_t port = 443) {
    return Tls::connect(go(address, port), name, *ca_pem(home_));
  }

  const certs::Ca ca_;
};

constexpr const char* kRule =
    R"({"rules":{"api.com":[{"transform":{"headers":{"X-Test-Token":"secret"}}}]}})";

TEST_F(InterceptTest, HeadersAreReplacedInsideTls) {
  const auto server = https("api.com", ca_);
  start();
  host("203.0.113.5", 443, server->port());
  table_.set(ip("127.0.0.2"), one_, policy(kRule));
  Tls tls = tls_to("203.0.113.5", "api.com");
  ASSERT_TRUE(tls.ok());
  EXPECT_THAT(tls.issuer(), HasSubstr("Atoll egress interception"));
  ASSERT_TRUE(tls.send(get("api.com", "x-test-token: mine\r\n")));
  const std::string answer = tls.receive_until(">>");
  EXPECT_THAT(answer, HasSubstr("X-Test-Token: secret\r\n"));
  EXPECT_THAT(answer, Not(HasSubstr("mine")));
  // The connection stays, and every request gets the header.
  ASSERT_TRUE(tls.send(get("api.com:443")));
  EXPECT_THAT(tls.receive_until(">>"), HasSubstr("X-Test-Token: secret\r\n"));
  EXPECT_EQ(server->accepted(), 1);
}

TEST_F(InterceptTest, AnotherHostInsideIsRefused) {
  const auto server = https("api.com", ca_);
  start();
  host("203.0.113.5", 443, server->port());
  table_.set(ip("127.0.0.2"), one_, policy(kRule));
  Tls tls = tls_to("203.0.113.5", "api.com");
  ASSERT_TRUE(tls.ok());
  ASSERT_TRUE(tls.send(get("evil.com")));
  EXPECT_THAT(tls.receive_until("\n\n"), StartsWith("HTTP/1.1 403"));
  EXPECT_EQ(server->accepted(), 0);
}

TEST_F(InterceptTest, AHostThatCannotProveItsNameGetsNothing) {
  const auto other_ca = *certs::make_ca("test");  // even with the same name
  const auto unknown = https("api.com", other_ca);
  const auto misnamed = https("evil.com", ca_);
  start();
  host("203.0.113.5", 443, unknown->port());
  host("203.0.113.6", 443, misnamed->port());
  table_.set(ip("127.0.0.2"), one_, policy(kRule));
  for (const char* address : {"203.0.113.5", "203.0.113.6"}) {
    Tls tls = tls_to(address, "api.com");
    ASSERT_TRUE(tls.ok());
    ASSERT_TRUE(tls.send(get("api.com")));
    const std::string answer = tls.receive_until("\n\n");
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 502")) << address;
    EXPECT_THAT(answer, HasSubstr("certificate")) << address;
  }
}

TEST_F(InterceptTest, OtherHostsAreNotIntercepted) {
  const auto server = https("plain.com", ca_);
  start();
  host("203.0.113.5", 443, server->port());
  table_.set(ip("127.0.0.2"), one_, policy(kRule));
  Tls tls = Tls::connect(go("203.0.113.5", 443), "plain.com", ca_.pem().certificate);
  ASSERT_TRUE(tls.ok());
  ASSERT_TRUE(tls.send(get("plain.com")));
  EXPECT_THAT(tls.receive_until(">>"), Not(HasSubstr("secret")));
}

TEST_F(InterceptTest, ARuleIsNoPermission) {
  start();
  table_.set(
      ip("127.0.0.2"), one_,
      policy(R"({"denyOut":["0.0.0.0/0"],"allowOut":["other.com"],)"
             R"("rules":{"api.com":[{"transform":{"headers":{"X-Test-Token":"secret"}}}]}})"));
  dns("api.com", "203.0.113.5");
  EXPECT_FALSE(tls_to("203.0.113.5", "api.com").ok());
  EXPECT_EQ(dialled(), 0u);
}

TEST_F(InterceptTest, AllowedByNameAndIntercepted) {
  const auto server = https("api.com", ca_);
  start();
  host("203.0.113.5", 443, server->port());
  table_.set(
      ip("127.0.0.2"), one_,
      policy(R"({"denyOut":["0.0.0.0/0"],"allowOut":["api.com"],)"
             R"("rules":{"api.com":[{"transform":{"headers":{"X-Test-Token":"secret"}}}]}})"));
  dns("api.com", "203.0.113.5");
  Tls tls = tls_to("203.0.113.5", "api.com");
  ASSERT_TRUE(tls.ok());
  ASSERT_TRUE(tls.send(get("api.com")));
  EXPECT_THAT(tls.receive_until(">>"), HasSubstr("X-Test-Token: secret"));
  EXPECT_FALSE(tls_to("203.0.113.66", "api.com").ok());
}

TEST_F(InterceptTest, WebSocketInsideTls) {
  const std::array<std::string, 1> names = {std::string("api.com")};
  const CtxPtr ctx = Tls::server_context(*ca_.issue(names));
  TcpServer server([ctx](int fd) {
    Tls tls = Tls::accept(fd, ctx);
    const std::string head = tls.receive_until("\r\n\r\n");
    if (head.find("X-Test-Token: secret") == std::string::npos) return;
    tls.send(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
    tls.send("echo:" + tls.receive());
    tls.receive();
  });
  start();
  host("203.0.113.5", 443, server.port());
  table_.set(ip("127.0.0.2"), one_, policy(kRule));
  Tls tls = tls_to("203.0.113.5", "api.com");
  ASSERT_TRUE(tls.ok());
  ASSERT_TRUE(tls.send(get("api.com", "Connection: Upgrade\r\nUpgrade: websocket\r\n")));
  EXPECT_THAT(tls.receive_until("\r\n\r\n"), StartsWith("HTTP/1.1 101"));
  ASSERT_TRUE(tls.send("frame"));
  EXPECT_EQ(tls.receive_until("frame"), "echo:frame");
}

TEST_F(InterceptTest, TheCaIsMadeOnceAndItsKeyIsPrivate) {
  const auto first = ca_pem(home_);
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_EQ(*ca_pem(home_), *first);
  struct stat state{};
  ASSERT_EQ(::stat((home_ / "keys/egress-ca.key").c_str(), &state), 0);
  EXPECT_EQ(state.st_mode & 0777, 0600u);
  std::ofstream(home_ / "keys/egress-ca.key") << "broken";
  EXPECT_NE(*ca_pem(home_), *first);
  EXPECT_FALSE(ca_pem(home_ / "nowhere").ok());
}

// ---- the server's own ingress ----

class OwnTest : public InterceptTest {
 protected:
  void start_own(std::uint16_t tls, std::uint16_t plain) {
    ProxyOptions options;
    options.own_domain = "sandbox.test";
    // What a real server has: an address that no sandbox may reach.
    options.own_ingress = endpoint("127.0.0.1", 443);
    options.own_ingress_plain = endpoint("127.0.0.1", 80);
    start(options);
    host("127.0.0.1", 443, tls);
    host("127.0.0.1", 80, plain);
  }
  const std::string address_ = runtime::kOwnIngressAddress.str();
};

TEST_F(OwnTest, SandboxHostsAreReachedByName) {
  const auto tls_server = https("*.sandbox.test", ca_);
  TcpServer plain(serve_http);
  start_own(tls_server->port(), plain.port());
  table_.set(ip("127.0.0.2"), one_, Policy{});
  for (const std::uint16_t port : {443, 3443}) {
    Tls tls = Tls::connect(go(address_, port), "8080-abc.sandbox.test", ca_.pem().certificate);
    ASSERT_TRUE(tls.ok());
    ASSERT_TRUE(tls.send(get("8080-abc.sandbox.test")));
    EXPECT_THAT(tls.receive_until(">>"), HasSubstr("Host: 8080-abc.sandbox.test"));
  }
  const auto fd = go(address_, 80);
  EXPECT_THAT(ask(fd, get("8080-abc.sandbox.test")), HasSubstr("200 OK"));
  send_all(fd.get(), get("localhost"));
  EXPECT_THAT(read_to_end(fd.get()).bytes, StartsWith("HTTP/1.1 403"));
}

TEST_F(OwnTest, WithHeaderRules) {
  const auto server = https("*.sandbox.test", ca_);
  start_own(server->port(), 1);
  table_.set(ip("127.0.0.2"), one_,
             policy(R"({"rules":{"8080-abc.sandbox.test":[{"transform":{"headers":)"
                    R"({"X-Test-Token":"secret"}}}]}})"));
  Tls tls = tls_to(address_, "8080-abc.sandbox.test");
  ASSERT_TRUE(tls.ok());
  ASSERT_TRUE(tls.send(get("8080-abc.sandbox.test")));
  EXPECT_THAT(tls.receive_until(">>"), HasSubstr("X-Test-Token: secret"));
}

TEST_F(OwnTest, OtherNamesAndDeniedSandboxesAreRefused) {
  start_own(1, 1);
  table_.set(ip("127.0.0.2"), one_, Policy{});
  const auto attempt = [&](const std::string& bytes) {
    const auto fd = go(address_, 443);
    send_all(fd.get(), bytes);
    return refused(fd);
  };
  EXPECT_TRUE(attempt(hello_for("evil.com")));
  EXPECT_TRUE(attempt(hello_for("evilsandbox.test")));
  EXPECT_TRUE(attempt(hello_for("")));
  EXPECT_TRUE(attempt("garbage"));
  table_.set(ip("127.0.0.2"), one_, policy(R"({"denyOut":["0.0.0.0/0"]})"));
  EXPECT_TRUE(attempt(hello_for("8080-abc.sandbox.test")));
  EXPECT_EQ(dialled(), 0u);
}

TEST_F(ProxyTest, WithoutAnOwnDomainItsAddressIsRefused) {
  start();
  table_.set(ip("127.0.0.2"), one_, Policy{});
  const auto fd = go(runtime::kOwnIngressAddress.str(), 443);
  send_all(fd.get(), hello_for("8080-abc.sandbox.test"));
  EXPECT_TRUE(refused(fd));
}

// ---- SOCKS5 ----

// A SOCKS5 server that wants a login, tells the test where to, and then echoes.
class Socks {
 public:
  explicit Socks(char reply = 0)
      : server_([this, reply](int fd) {
          std::string got = receive(fd);
          if (got.find('\x02', 2) == std::string::npos) {
            send_all(fd, "\x05\xff");
            return;
          }
          send_all(fd, "\x05\x02");
          {
            const std::string login = receive(fd);
            std::lock_guard lock(mutex_);
            login_ = login;
          }
          send_all(fd, std::string("\x01\x00", 2));
          {
            const std::string target = receive(fd);
            std::lock_guard lock(mutex_);
            target_ = target;
          }
          send_all(fd, std::string{5, reply, 0, 1, 0, 0, 0, 0, 0, 0});
          if (reply == 0) echo(fd);
        }) {}
  std::uint16_t port() const { return server_.port(); }
  std::string login() {
    std::lock_guard lock(mutex_);
    return login_;
  }
  std::string target() {
    std::lock_guard lock(mutex_);
    return target_;
  }

 private:
  std::mutex mutex_;
  std::string login_, target_;
  TcpServer server_;
};

std::string with_socks(const std::string& rest = "") {
  return R"({"egressProxy":{"address":"198.51.100.1:1080","username":"user","password":"pw"})" +
         rest + "}";
}

TEST_F(ProxyTest, SocksCarriesEveryPortByAddress) {
  Socks socks;
  start();
  host("198.51.100.1", 1080, socks.port());
  table_.set(ip("127.0.0.2"), one_, policy(with_socks()));
  const auto fd = go("203.0.113.5", 5432);
  send_all(fd.get(), "hi");
  EXPECT_EQ(receive_until(fd.get(), "echo:hi"), "echo:hi");
  EXPECT_EQ(socks.login(), "\x01\x04user\x02pw");
  EXPECT_EQ(socks.target(), std::string("\x05\x01\x00\x01\xcb\x00\x71\x05\x15\x38", 10));
}

TEST_F(ProxyTest, SocksGoesByNameWhereTheNameAllowed) {
  Socks socks;
  start();
  host("198.51.100.1", 1080, socks.port());
  table_.set(ip("127.0.0.2"), one_,
             policy(with_socks(R"(,"denyOut":["0.0.0.0/0"],"allowOut":["allowed.com"])")));
  dns("allowed.com", "203.0.113.5");
  const auto fd = go("203.0.113.5", 443);
  const std::string hello = hello_for("allowed.com");
  send_all(fd.get(), hello);
  EXPECT_EQ(receive_until(fd.get(), hello), "echo:" + hello);
  EXPECT_EQ(socks.target(),
            std::string("\x05\x01\x00\x03\x0b", 5) + "allowed.com" + std::string("\x01\xbb", 2));
  const auto denied = go("203.0.113.6", 443);  // filtered before the proxy is asked
  send_all(denied.get(), hello);
  EXPECT_TRUE(refused(denied));
  EXPECT_TRUE(refused(go("203.0.113.5", 5432)));
}

TEST_F(ProxyTest, SocksFailsClosed) {
  TcpServer direct(echo);
  Socks refusing(5);
  TcpServer garbage([](int fd) { send_all(fd, "HTTP/1.1 400 Bad Request\r\n\r\n"); });
  start();
  host("203.0.113.5", 5432, direct.port());  // reachable without the proxy
  table_.set(ip("127.0.0.2"), one_, policy(with_socks()));
  EXPECT_TRUE(refused(go("203.0.113.5", 5432)));  // nobody there
  host("198.51.100.1", 1080, refusing.port());
  EXPECT_TRUE(refused(go("203.0.113.5", 5432)));
  host("198.51.100.1", 1080, garbage.port());
  EXPECT_TRUE(refused(go("203.0.113.5", 5432)));
  table_.set(ip("127.0.0.2"), one_,
             policy(R"({"egressProxy":{"address":"198.51.100.1:1080"}})"));  // no login
  Socks strict;
  host("198.51.100.1", 1080, strict.port());
  EXPECT_TRUE(refused(go("203.0.113.5", 5432)));
  EXPECT_EQ(direct.accepted(), 0);
}

TEST_F(ProxyTest, ASocksServerWithAPrivateAddressIsNotUsed) {
  DnsServer resolver([](const dns::Query& query, bool) {
    return DnsServer::with(query, {a_record("proxy.com", "10.0.0.1")});
  });
  start({}, {*dns::parse_server(resolver.address())});
  table_.set(ip("127.0.0.2"), one_, policy(R"({"egressProxy":{"address":"proxy.com:1080"}})"));
  EXPECT_TRUE(refused(go("203.0.113.5", 5432)));
  EXPECT_EQ(dialled(), 0u);
}

}  // namespace
}  // namespace atl::egress
