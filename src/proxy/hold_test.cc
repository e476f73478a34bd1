// Routes that are held: what leads into the sandbox ends, clients stand still.
#include <gmock/gmock.h>

#include "net/tls_testing.h"
#include "proxy/testing.h"

namespace atl::proxy {
namespace {

using engine::Route;
using engine::testing::fetch;
using engine::testing::RawClient;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class HoldTest : public GatewayTest {
 protected:
  HoldTest() {
    serve([this](net::Exchange& exchange) { return answer(exchange); });
  }

  // /stream begins an answer, /mute never answers, /up switches protocols; each then waits for the
  // end of its client. Everything else is answered.
  net::Task<void> answer(net::Exchange& exchange) {
    const std::string path(exchange.request.path());
    if (path == "/stream" || path == "/unframed") {
      auto starting = exchange.response.start(200, {}, std::nullopt);
      (void)co_await std::move(starting);
      auto writing = exchange.response.write("begun");
      (void)co_await std::move(writing);
    } else if (path == "/up") {
      auto starting = exchange.response.start(
          101, {{"Connection", "Upgrade"}, {"Upgrade", "words"}}, std::nullopt);
      (void)co_await std::move(starting);
      exchange.take_over();
      auto writing = exchange.stream.write_all("begun");
      (void)co_await std::move(writing);
    } else if (path != "/mute") {
      auto sending = exchange.response.send(200, {}, "served");
      (void)co_await std::move(sending);
      co_return;
    }
    ++waiting_;
    auto watching = exchange.stream.wait_peer_closed();
    co_await std::move(watching);
    --waiting_;
    exchange.stream.close();
  }

  static void eventually(const std::function<bool()>& holds) {
    while (!holds()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  std::string request(const SandboxId& id, const std::string& path, const std::string& more = "") {
    return "GET " + path + " HTTP/1.1\r\n" + raw_headers(id, 8000) + more + "\r\n";
  }
  // A client in the middle of something, whose route is then held.
  void hold_during(RawClient& client, const std::string& path, const std::string& more = "") {
    const auto id = create().record.id;
    route_ = f.engine->route(id);
    client.send(request(id, path, more));
    eventually([&] { return waiting_ == 1; });
    if (path != "/mute") {
      EXPECT_THAT(client.read_until("begun"), HasSubstr("begun"));
    }
    EXPECT_EQ(route_->inside(), 1U);
    route_->hold();
    eventually([&] { return waiting_ == 0 && route_->inside() == 0; });
    EXPECT_EQ(route_->connections(), 1U);
  }
  void leaves(RawClient& client) {
    client.close();
    eventually([&] { return route_->connections() == 0; });
  }

  std::atomic<int> waiting_ = 0;
  std::shared_ptr<Route> route_;
};

TEST_F(HoldTest, StreamStandsUntilTheRouteDies) {
  RawClient client(port);
  hold_during(client, "/stream");
  route_->die();
  EXPECT_EQ(client.read_all(), "\r\n");  // the end of the chunk that had come
  EXPECT_TRUE(client.was_reset());
  eventually([&] { return route_->connections() == 0; });
}

TEST_F(HoldTest, ClientMayLeaveAStreamThatStands) {
  RawClient client(port);
  hold_during(client, "/stream");
  leaves(client);
}

TEST_F(HoldTest, RequestWithoutAnswerStandsToo) {
  RawClient client(port);
  hold_during(client, "/mute");
  route_->die();
  EXPECT_THAT(client.read_until("\r\n\r\n"), StartsWith("HTTP/1.1 502"));
}

TEST_F(HoldTest, ClientMayLeaveARequestThatStands) {
  RawClient client(port);
  hold_during(client, "/mute");
  leaves(client);
}

TEST_F(HoldTest, UploadStands) {
  RawClient client(port);
  hold_during(client, "/mute", "Content-Length: 1000000\r\n");
  client.send(std::string(5000, 'x'));
  EXPECT_EQ(route_->connections(), 1U);
  route_->die();
  EXPECT_THAT(client.read_until("\r\n\r\n"), StartsWith("HTTP/1.1 502"));
}

TEST_F(HoldTest, TunnelStandsUntilTheRouteDies) {
  RawClient client(port);
  hold_during(client, "/up", "Connection: Upgrade\r\nUpgrade: words\r\n");
  client.send("nobody reads this");
  EXPECT_EQ(route_->connections(), 1U);
  route_->die();
  EXPECT_EQ(client.read_all(), "");
  EXPECT_TRUE(client.was_reset());
}

TEST_F(HoldTest, ClientMayLeaveATunnelThatStands) {
  RawClient client(port);
  hold_during(client, "/up", "Connection: Upgrade\r\nUpgrade: words\r\n");
  client.send("nobody reads this");
  leaves(client);
}

TEST_F(HoldTest, ClientsOfADeadRouteBreakAtOnce) {
  const auto id = create().record.id;
  const auto route = f.engine->route(id);
  RawClient client(port);
  client.send(request(id, "/stream"));
  client.read_until("begun");
  route->die();
  eventually([&] { return route->inside() == 0 && route->connections() == 0; });
  client.read_all();
  EXPECT_TRUE(client.was_reset());
}

TEST_F(HoldTest, IdleConnectionsEnd) {
  for (const bool held : {true, false}) {
    const auto id = create().record.id;
    const auto route = f.engine->route(id);
    for (const int to_port : {8000, 49983})
      ASSERT_LT(fetch(f, port, "GET", "/health", to(id, to_port), "").status, 300);
    EXPECT_EQ(route->inside(), 2U);
    held ? route->hold() : route->die();
    eventually([&] { return route->inside() == 0; });
  }
}

// Streams of one connection stand and break each for itself.
TEST_F(HoldTest, StreamsOfHttp2) {
  net::testing::CertDir certs;
  const auto context =
      net::TlsServerContext::from_files(certs.path("leaf.pem"), certs.path("leaf.key"), {"h2"});
  const auto trusting =
      net::TlsClientContext::create(net::TlsClientContext::Verify::peer, certs.path("ca.pem"));
  ASSERT_TRUE(context.ok() && trusting.ok());
  const auto secured = server.listen_tls("127.0.0.1:0", "gateway", *context);
  ASSERT_TRUE(secured.ok());
  const auto id = create().record.id;
  const auto other = create().record.id;
  const auto route = f.engine->route(id);
  const auto scenario = [&]() -> net::Task<bool> {
    auto plain = co_await net::connect_tcp("127.0.0.1", *secured);
    if (!plain.ok()) co_return false;
    auto tls = co_await net::connect_tls(std::move(*plain), *trusting, "localhost", {"h2"},
                                         std::chrono::seconds(5));
    if (!tls.ok()) co_return false;
    net::testing::Http2Client client(std::move(tls->stream));
    using Fields = net::testing::Http2Client::Fields;
    const Fields to_held{{"e2b-sandbox-id", id.str()}, {"e2b-sandbox-port", "8000"}};
    const Fields to_other{{"e2b-sandbox-id", other.str()}, {"e2b-sandbox-port", "8000"}};
    const auto stream = client.request("GET", "/stream", to_held);
    const auto left = client.request("GET", "/stream", to_held);
    const auto mute = client.request("GET", "/mute", to_held);
    EXPECT_TRUE(co_await client.until([&] {
      return client.answer(stream).body == "begun" && client.answer(left).body == "begun";
    }));
    while (waiting_ != 3) co_await net::testing::pause_for(std::chrono::milliseconds(2));
    route->hold();
    while (route->inside() > 0) co_await net::testing::pause_for(std::chrono::milliseconds(2));
    // Whatever had been sent to these three by now would come before this answer.
    const auto answer = co_await client.fetch("GET", "/", to_other);
    EXPECT_EQ(answer.body, "served");
    for (const auto each : {stream, left, mute}) EXPECT_FALSE(client.answer(each).closed);
    EXPECT_EQ(route->connections(), 3U);
    nghttp2_submit_rst_stream(client.session, NGHTTP2_FLAG_NONE, left, NGHTTP2_CANCEL);
    EXPECT_TRUE(co_await client.flush());
    while (route->connections() > 2) co_await net::testing::pause_for(std::chrono::milliseconds(2));
    route->die();
    EXPECT_TRUE(co_await client.until(
        [&] { return client.answer(stream).closed && client.answer(mute).closed; }));
    EXPECT_NE(client.answer(stream).error, 0U);
    EXPECT_EQ(client.answer(mute).status, 502);
    EXPECT_EQ((co_await client.fetch("GET", "/", to_other)).body, "served");
    co_return true;
  };
  EXPECT_TRUE(f.run(scenario()));
}

TEST_F(HoldTest, NoConnectionIsMadeOverAHeldRoute) {
  const auto id = create().record.id;
  const auto route = f.engine->route(id);
  route->hold();
  // This engine knows of no other run of the sandbox.
  EXPECT_EQ(get("/", to(id, 8000)).status, 502);
  EXPECT_EQ(route->inside(), 0U);
}

}  // namespace
}  // namespace atl::proxy
