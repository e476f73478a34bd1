#include "net/tls.h"

#include <gmock/gmock.h>
#include <sys/socket.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/local/connect_pair.hpp>
#include <boost/asio/local/stream_protocol.hpp>

#include "net/tls_testing.h"

namespace atl::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using testing::HttpsTest;
using testing::pause_for;
using ::testing::StartsWith;

Task<void> echo(Exchange& x) {
  auto body = co_await x.body.read_all(1 << 20);
  Headers headers;
  headers.add("X-Version", std::to_string(x.request.version));
  headers.add("X-Host", std::string(x.request.headers.get("Host")));
  headers.add("X-Listener", std::string(x.listener));
  headers.add("X-Peer", x.peer);
  (void)co_await x.response.send(200, headers, body.ok() ? *body : body.error().message);
}

Task<void> count_upload(Exchange& x) {
  std::vector<char> buffer(64 * 1024);
  std::size_t total = 0;
  unsigned sum = 0;
  for (;;) {
    auto n = co_await x.body.read_some(buffer);
    if (!n.ok()) co_return;
    if (*n == 0) break;
    for (std::size_t i = 0; i < *n; i += 512) sum = sum * 31 + unsigned(buffer[i]);
    total += *n;
  }
  (void)co_await x.response.send(200, {}, std::to_string(total));
}

TEST_F(HttpsTest, Http1OverTls) {
  serve(echo);
  auto task = [](HttpsTest&, Task<Result<TlsStream>> dialling) -> Task<int> {
    auto tls = co_await std::move(dialling);
    EXPECT_TRUE(tls.ok()) << tls.error().message;
    EXPECT_EQ(tls->alpn, "http/1.1");
    EXPECT_EQ(tls->stream->native_handle(), -1);
    HttpClient client(std::move(tls->stream));
    for (int i = 0; i < 3; ++i) {
      RequestHead head;
      head.method = "POST";
      auto answer = co_await client.request(head, "hello " + std::to_string(i));
      EXPECT_TRUE(answer.ok()) << answer.error().message;
      EXPECT_EQ(answer->body, "hello " + std::to_string(i));
      EXPECT_EQ(answer->head.headers.get("X-Version"), "11");
      EXPECT_EQ(answer->head.headers.get("X-Listener"), "tls");
      EXPECT_EQ(answer->head.headers.get("X-Peer"), "127.0.0.1");
      EXPECT_TRUE(client.reusable());
    }
    co_return 1;
  };
  run(task(*this, dial({"http/1.1"})));
}

TEST_F(HttpsTest, NoAlpnMeansHttp1AndAForeignOneIsRefused) {
  serve(echo);
  auto task = [](Task<Result<TlsStream>> none, Task<Result<TlsStream>> foreign) -> Task<int> {
    auto tls = co_await std::move(none);
    EXPECT_TRUE(tls.ok());
    EXPECT_EQ(tls->alpn, "");
    HttpClient client(std::move(tls->stream));
    auto answer = co_await client.request({}, "");
    EXPECT_TRUE(answer.ok());
    auto refused = co_await std::move(foreign);
    EXPECT_FALSE(refused.ok());
    co_return 1;
  };
  run(task(dial({}), dial({"smtp"})));
}

TEST_F(HttpsTest, TheServersNameAndCaAreChecked) {
  serve(echo);
  auto task = [](Task<Result<TlsStream>> wrong_name, Task<Result<TlsStream>> wildcard,
                 Task<Result<TlsStream>> address, std::uint16_t port) -> Task<int> {
    auto refused = co_await std::move(wrong_name);
    EXPECT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Errc::unauthenticated) << refused.error().message;
    auto fine = co_await std::move(wildcard);
    EXPECT_TRUE(fine.ok()) << fine.error().message;
    auto by_address = co_await std::move(address);
    EXPECT_TRUE(by_address.ok()) << by_address.error().message;
    auto strangers = TlsClientContext::create(TlsClientContext::Verify::peer, "");
    auto plain = co_await connect_tcp("127.0.0.1", port);
    auto unknown_ca =
        co_await connect_tls(std::move(*plain), *strangers, "localhost", {}, seconds(5));
    EXPECT_FALSE(unknown_ca.ok());
    EXPECT_EQ(unknown_ca.error().code, Errc::unauthenticated) << unknown_ca.error().message;
    auto careless = TlsClientContext::create(TlsClientContext::Verify::none, "");
    plain = co_await connect_tcp("127.0.0.1", port);
    auto trusting = co_await connect_tls(std::move(*plain), *careless, "", {}, seconds(5));
    EXPECT_TRUE(trusting.ok());
    co_return 1;
  };
  run(task(dial({}, "evil.example"), dial({}, "8080-abc.atoll.test"), dial({}, "127.0.0.1"),
           port_));
}

TEST_F(HttpsTest, PlainHttpOnTheTlsPortIsTold) {
  serve(echo);
  auto task = [](std::uint16_t port) -> Task<std::string> {
    auto stream = co_await connect_tcp("127.0.0.1", port);
    (void)co_await (*stream)->write_all("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    std::string out;
    char buffer[4096];
    for (;;) {
      auto n = co_await (*stream)->read_some(buffer);
      if (!n.ok() || *n == 0) break;
      out.append(buffer, *n);
    }
    co_return out;
  };
  const std::string out = run(task(port_));
  EXPECT_THAT(out, StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(out, HasSubstr("https://"));
}

TEST_F(HttpsTest, AHandshakeThatDoesNotEndIsCutOff) {
  ServerOptions options;
  options.handshake_time = milliseconds(200);
  serve(echo, options);
  auto task = [](HttpServer& server, std::uint16_t port) -> Task<int> {
    auto silent = co_await connect_tcp("127.0.0.1", port);
    auto trickling = co_await connect_tcp("127.0.0.1", port);
    // A record of 512 bytes that comes byte by byte.
    (void)co_await (*trickling)->write_all(std::string_view("\x16\x03\x01\x02\x00\x01", 6));
    for (int i = 0; i < 20 && server.connections() > 0; ++i) {
      (void)co_await (*trickling)->write_all(std::string_view("\0", 1));
      co_await pause_for(milliseconds(50));
    }
    EXPECT_EQ(server.connections(), 0u);
    co_return 1;
  };
  run(task(*server_, port_));
}

// A plain stream below TLS whose writes become slow on demand.
class Trickle final : public Stream {
 public:
  Trickle(std::unique_ptr<Stream> inner, const bool& slow)
      : inner_(std::move(inner)), slow_(slow) {}
  Task<Result<std::size_t>> read_some(std::span<char> into) override {
    return inner_->read_some(into);
  }
  Task<Result<void>> write_pieces(std::span<const std::string_view> pieces) override {
    for (std::string_view piece : pieces) {
      while (!piece.empty()) {
        const std::size_t n = slow_ ? 1 : piece.size();
        ATOLL_CO_TRY(co_await inner_->write_all(piece.substr(0, n)));
        piece.remove_prefix(n);
        if (slow_) co_await pause_for(milliseconds(20));
      }
    }
    co_return Result<void>();
  }
  Task<void> wait_peer_closed() override { return inner_->wait_peer_closed(); }
  void set_read_timeout(std::optional<milliseconds> t) override { inner_->set_read_timeout(t); }
  void set_write_timeout(std::optional<milliseconds> t) override { inner_->set_write_timeout(t); }
  void shutdown_write() override { inner_->shutdown_write(); }
  void close() override { inner_->close(); }
  void reset() override { inner_->reset(); }
  asio::any_io_executor executor() override { return inner_->executor(); }
  int native_handle() override { return inner_->native_handle(); }
  int release() override { return inner_->release(); }

 private:
  std::unique_ptr<Stream> inner_;
  const bool& slow_;
};

TEST_F(HttpsTest, ATrickledRecordIsSilence) {
  milliseconds waited{0};
  serve([&waited](Exchange& x) -> Task<void> {
    x.stream.set_read_timeout(milliseconds(200));
    const auto begun = std::chrono::steady_clock::now();
    char buffer[2000];
    auto n = co_await x.body.read_some(buffer);
    EXPECT_TRUE(!n.ok() && n.error().code == Errc::deadline_exceeded);
    waited = std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begun);
    (void)co_await x.response.send(200, {}, "");
  });
  bool slow = false;
  auto task = [](std::uint16_t port, std::shared_ptr<TlsClientContext> context, bool& slow_now,
                 milliseconds& seen) -> Task<int> {
    auto plain = co_await connect_tcp("127.0.0.1", port);
    std::unique_ptr<Stream> trickle = std::make_unique<Trickle>(std::move(*plain), slow_now);
    auto tls = co_await connect_tls(std::move(trickle), context, "localhost", {}, seconds(5));
    EXPECT_TRUE(tls.ok());
    (void)co_await tls->stream->write_all(
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n");
    slow_now = true;
    (void)co_await tls->stream->write_all(std::string(1000, 'x'));
    slow_now = false;
    for (int i = 0; i < 100 && seen.count() == 0; ++i) co_await pause_for(milliseconds(10));
    co_return 1;
  };
  run(task(port_, client_, slow, waited));
  EXPECT_GE(waited, milliseconds(150));
  EXPECT_LT(waited, milliseconds(2000));
}

TEST_F(HttpsTest, EndsAndBreaksAreToldApart) {
  serve([](Exchange& x) -> Task<void> {
    if (x.request.target == "/reset") {
      (void)co_await x.response.start(200, {}, std::nullopt);
      (void)co_await x.response.write("part");
      x.response.abort();
      co_return;
    }
    (void)co_await x.response.send(200, {{"Connection", "close"}}, "whole");
  });
  auto task = [](Task<Result<TlsStream>> first, Task<Result<TlsStream>> second) -> Task<int> {
    const auto read_to_end = [](Stream& stream) -> Task<Result<std::string>> {
      std::string out;
      char buffer[1000];
      for (;;) {
        auto n = co_await stream.read_some(buffer);
        if (!n.ok()) co_return n.error();
        if (*n == 0) co_return out;
        out.append(buffer, *n);
      }
    };
    auto tls = co_await std::move(first);
    (void)co_await tls->stream->write_all("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    auto whole = co_await read_to_end(*tls->stream);
    EXPECT_TRUE(whole.ok()) << whole.error().message;  // close_notify came
    EXPECT_THAT(*whole, HasSubstr("whole"));
    tls = co_await std::move(second);
    (void)co_await tls->stream->write_all("GET /reset HTTP/1.1\r\nHost: h\r\n\r\n");
    auto broken = co_await read_to_end(*tls->stream);
    EXPECT_FALSE(broken.ok());
    EXPECT_EQ(broken.error().sys_errno, ECONNRESET);
    co_return 1;
  };
  run(task(dial({}), dial({})));
}

TEST_F(HttpsTest, PeerCloseIsNoticed) {
  bool noticed = false;
  serve([&noticed](Exchange& x) -> Task<void> {
    (void)co_await x.response.start(200, {}, std::nullopt);
    co_await x.stream.wait_peer_closed();
    noticed = true;
  });
  auto task = [](Task<Result<TlsStream>> dialling, bool& seen) -> Task<int> {
    {
      auto tls = co_await std::move(dialling);
      (void)co_await tls->stream->write_all("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
      char buffer[1000];
      (void)co_await tls->stream->read_some(buffer);
    }
    for (int i = 0; i < 500 && !seen; ++i) co_await pause_for(milliseconds(5));
    co_return 1;
  };
  run(task(dial({}), noticed));
  EXPECT_TRUE(noticed);
}

TEST_F(HttpsTest, ACertificatePerName) {
  std::vector<std::string> asked;
  auto context = TlsServerContext::by_name(
      [&](std::string_view name) -> Result<TlsServerContext::Pem> {
        asked.emplace_back(name);
        if (name != "one.example" && name != "two.example")
          return make_error(Errc::permission_denied, "not this one");
        const std::vector<std::string> names = {std::string(name)};
        ATOLL_TRY_ASSIGN(certs::Pem pem, certs_.ca->issue(names));
        return TlsServerContext::Pem{pem.certificate, pem.key};
      },
      {"http/1.1"});
  ASSERT_TRUE(context.ok());
  server_ = std::make_unique<HttpServer>(io_, ServerOptions{}, echo);
  port_ = *server_->listen_tls("127.0.0.1:0", "names", *context);
  client_ = *TlsClientContext::create(TlsClientContext::Verify::peer, certs_.path("ca.pem"));
  auto task = [](std::vector<Task<Result<TlsStream>>> dials) -> Task<int> {
    auto one = co_await std::move(dials[0]);
    EXPECT_TRUE(one.ok()) << one.error().message;
    auto two = co_await std::move(dials[1]);
    EXPECT_TRUE(two.ok()) << two.error().message;
    auto other = co_await std::move(dials[2]);
    EXPECT_FALSE(other.ok());
    co_return 1;
  };
  std::vector<Task<Result<TlsStream>>> dials;
  for (const char* name : {"one.example", "two.example", "other.example"})
    dials.push_back(dial({"http/1.1"}, name));
  run(task(std::move(dials)));
  EXPECT_THAT(asked, ::testing::ElementsAre("one.example", "two.example", "other.example"));
}

TEST_F(HttpsTest, ReloadTakesTheNewFiles) {
  serve(echo);
  certs_.issue({"renewed.example"});
  auto task = [](Task<Result<TlsStream>> before, TlsServerContext& context,
                 Task<Result<TlsStream>> after) -> Task<int> {
    EXPECT_FALSE((co_await std::move(before)).ok());
    EXPECT_TRUE(context.reload().ok());
    EXPECT_TRUE((co_await std::move(after)).ok());
    co_return 1;
  };
  run(task(dial({}, "renewed.example"), *context_, dial({}, "renewed.example")));
  certs_.put("leaf.key", "garbage");
  EXPECT_EQ(context_->reload().error().code, Errc::invalid_argument);
  auto still = [](Task<Result<TlsStream>> dialling) -> Task<int> {
    EXPECT_TRUE((co_await std::move(dialling)).ok());
    co_return 1;
  };
  run(still(dial({}, "renewed.example")));
}

TEST(TlsContext, BadFilesAreErrors) {
  auto missing = TlsServerContext::from_files("/nonexistent.pem", "/nonexistent.key", {});
  EXPECT_EQ(missing.error().code, Errc::invalid_argument);
  EXPECT_THAT(missing.error().message, HasSubstr("/nonexistent.pem"));
  auto no_ca = TlsClientContext::create(TlsClientContext::Verify::peer, "/nonexistent.pem");
  EXPECT_EQ(no_ca.error().code, Errc::invalid_argument);
}

// Both directions at once, with more than any buffer holds.
TEST_F(HttpsTest, FullDuplex) {
  serve([](Exchange& x) -> Task<void> {
    (void)co_await x.response.start(200, {}, std::nullopt);
    std::vector<char> buffer(50'000);
    for (;;) {
      auto n = co_await x.body.read_some(buffer);
      if (!n.ok() || *n == 0) break;
      if (!(co_await x.response.write(std::string_view(buffer.data(), *n))).ok()) break;
    }
    (void)co_await x.response.finish();
  });
  constexpr std::size_t kTotal = 20 << 20;
  auto writer = [](HttpClient& client) -> Task<void> {
    std::string piece(100'003, '\0');
    std::size_t sent = 0;
    while (sent < kTotal) {
      for (std::size_t i = 0; i < piece.size(); ++i) piece[i] = char((sent + i) * 7 >> 3);
      const std::size_t n = std::min(piece.size(), kTotal - sent);
      if (!(co_await client.write_body(std::string_view(piece.data(), n))).ok()) co_return;
      sent += n;
    }
    (void)co_await client.finish_body();
  };
  auto task = [](Task<Result<TlsStream>> dialling, auto write) -> Task<std::size_t> {
    auto tls = co_await std::move(dialling);
    HttpClient client(std::move(tls->stream));
    RequestHead head;
    head.method = "POST";
    (void)co_await client.write_head(head, std::nullopt);
    asio::co_spawn(co_await asio::this_coro::executor, write(client),
                   [](std::exception_ptr e) { EXPECT_FALSE(e); });
    auto answer = co_await client.read_head();
    EXPECT_TRUE(answer.ok());
    std::vector<char> buffer(70'000);
    std::size_t got = 0;
    bool same = true;
    for (;;) {
      auto n = co_await client.body().read_some(buffer);
      EXPECT_TRUE(n.ok()) << n.error().message;
      if (!n.ok() || *n == 0) break;
      for (std::size_t i = 0; i < *n; ++i) same = same && buffer[i] == char((got + i) * 7 >> 3);
      got += *n;
    }
    EXPECT_TRUE(same);
    co_return got;
  };
  EXPECT_EQ(run(task(dial({"http/1.1"}), writer)), kTotal);
}

TEST_F(HttpsTest, CurlSpeaksBoth) {
  serve(echo);
  std::string out = curl("-i --http1.1 -d hello " + url("/x"));
  EXPECT_THAT(out, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(out, HasSubstr("hello"));
  EXPECT_THAT(out, HasSubstr("exit 0"));
  out = curl("-i --http2 -d hello " + url("/x"));
  EXPECT_THAT(out, StartsWith("HTTP/2 200"));
  EXPECT_THAT(out, HasSubstr("x-version: 20"));
  EXPECT_THAT(out, HasSubstr("x-host: localhost:"));
  EXPECT_THAT(out, HasSubstr("x-listener: tls"));
  EXPECT_THAT(out, HasSubstr("hello"));
  EXPECT_THAT(out, HasSubstr("exit 0"));
  out = curl("-i -I --http2 " + url("/x"));
  EXPECT_THAT(out, StartsWith("HTTP/2 200"));
  out = curl("--tls-max 1.1 " + url("/x"));
  EXPECT_THAT(out, ::testing::Not(HasSubstr("exit 0")));
  out = curl("-i --tls-max 1.2 --http2 " + url("/x"));
  EXPECT_THAT(out, StartsWith("HTTP/2 200"));
}

TEST_F(HttpsTest, CurlUploadsAHundredMegabytes) {
  serve(count_upload);
  const std::string file = certs_.path("big");
  {
    std::ofstream big(file, std::ios::binary);
    const std::string piece(1 << 20, 'x');
    for (int i = 0; i < 100; ++i) big << piece;
  }
  for (const char* version : {"--http1.1", "--http2"}) {
    const std::string out =
        curl(std::string(version) + " -w ' %{speed_upload} B/s ' -T " + file + " " + url("/up"));
    EXPECT_THAT(out, StartsWith("104857600 ")) << version;
    EXPECT_THAT(out, HasSubstr("exit 0"));
    RecordProperty(version + 2, out);
    std::fprintf(stderr, "%s: %s\n", version, out.c_str());
  }
}

TEST_F(HttpsTest, PythonSpeaksTls) {
  serve(echo);
  const std::string script = certs_.path("client.py");
  std::ofstream(script) << R"(
import http.client, ssl, sys
context = ssl.create_default_context(cafile=sys.argv[2])
context.verify_flags |= ssl.VERIFY_X509_STRICT
c = http.client.HTTPSConnection("localhost", int(sys.argv[1]), context=context, timeout=10)
for i in range(3):
    c.request("POST", "/", body="from python %d" % i)
    print(c.getresponse().read().decode())
)";
  const std::string out = outside("timeout 30 python3 " + script + " " + std::to_string(port_) +
                                  " " + certs_.path("ca.pem"));
  EXPECT_EQ(out, "from python 0\nfrom python 1\nfrom python 2\nexit 0");
}

TEST_F(HttpsTest, ShutdownEndsHandshakesAndIdleConnections) {
  serve(echo);
  auto task = [](HttpServer& server, Task<Result<TlsStream>> dialling,
                 std::uint16_t port) -> Task<int> {
    auto shaking = co_await connect_tcp("127.0.0.1", port);
    auto idle = co_await std::move(dialling);
    EXPECT_TRUE(idle.ok());
    co_await pause_for(milliseconds(20));
    EXPECT_EQ(server.connections(), 2u);
    const auto begun = std::chrono::steady_clock::now();
    co_await server.shutdown(milliseconds(1000));
    EXPECT_EQ(server.connections(), 0u);
    EXPECT_LT(std::chrono::steady_clock::now() - begun, milliseconds(900));
    co_return 1;
  };
  run(task(*server_, dial({"http/1.1"}), port_));
}

}  // namespace
}  // namespace atl::net
