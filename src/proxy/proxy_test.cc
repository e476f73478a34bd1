#include "proxy/proxy.h"

#include <gmock/gmock.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>

#include "certs/certs.h"
#include "net/tls.h"
#include "proxy/testing.h"

namespace atl::proxy {
namespace {

using engine::testing::fetch;
using engine::testing::Fixture;
using engine::testing::Got;
using engine::testing::RawClient;
using ::testing::HasSubstr;
using ::testing::StartsWith;

net::Task<void> sleep(std::chrono::milliseconds time) {
  net::asio::steady_timer timer(co_await net::asio::this_coro::executor, time);
  co_await timer.async_wait(net::asio::as_tuple(net::asio::use_awaitable));
}

// Tells the request back: method, target, headers, body.
net::Task<void> echo(net::Exchange& exchange) {
  auto reading = exchange.body.read_all(64 << 20);
  auto body = co_await std::move(reading);
  json::object headers;
  for (const auto& field : exchange.request.headers) headers[field.name] = field.value;
  json::object out;
  out["method"] = exchange.request.method;
  out["target"] = exchange.request.target;
  out["headers"] = headers;
  out["size"] = body.ok() ? std::int64_t(body->size()) : -1;
  if (body.ok() && body->size() < 1000) out["body"] = *body;
  auto sending = exchange.response.send(
      200, {{"Content-Type", "application/json"}, {"X-From", "inside"}}, json::serialize(out));
  (void)co_await std::move(sending);
}

// What a handler did, seen from the test.
struct Seen {
  std::atomic<bool> begun = false;
  std::atomic<bool> noticed = false;  // that the client is gone
  std::atomic<bool> go_on = false;
  std::atomic<int> requests = 0;
};

enum class Head { sent, held_back };

// Answers no more than a head and the given bytes, and waits for the client's end.
net::Task<void> hold(net::Exchange& exchange, std::shared_ptr<Seen> seen, Head head,
                     std::string bytes) {
  if (head == Head::sent) {
    auto starting = exchange.response.start(200, {}, std::nullopt);
    (void)co_await std::move(starting);
    auto writing = exchange.response.write(bytes);
    (void)co_await std::move(writing);
  }
  seen->begun = true;
  auto waiting = exchange.stream.wait_peer_closed();
  co_await std::move(waiting);
  seen->noticed = true;
}

net::Handler holding(std::shared_ptr<Seen> seen, Head head, std::string bytes = {}) {
  return [=](net::Exchange& exchange) { return hold(exchange, seen, head, bytes); };
}

net::Task<void> two_pieces(net::Exchange& exchange, std::shared_ptr<Seen> seen) {
  auto starting = exchange.response.start(200, {}, std::nullopt);
  (void)co_await std::move(starting);
  auto first = exchange.response.write("first");
  (void)co_await std::move(first);
  while (!seen->go_on) co_await sleep(std::chrono::milliseconds(5));
  auto second = exchange.response.write("second");
  (void)co_await std::move(second);
  auto finishing = exchange.response.finish();
  (void)co_await std::move(finishing);
}

// Promises keep-alive and does not keep it.
net::Task<void> answer_and_close(net::Exchange& exchange, std::shared_ptr<Seen> seen) {
  ++seen->requests;
  auto sending = exchange.response.send(200, {}, "ok");
  (void)co_await std::move(sending);
  exchange.stream.shutdown_write();
}

class ProxyTest : public GatewayTest {
 protected:
  ProxyTest() { f.runtime.handler = echo; }
};

TEST_F(ProxyTest, CarriesToTheAgentByHeader) {
  const auto sandbox = create();
  const Got got = fetch(f, port, "POST", "/files?path=a%20b", to(sandbox.record.id), "hello");
  ASSERT_EQ(got.status, 200) << got.body;
  EXPECT_EQ(got.headers.get("X-From"), "inside");
  const auto told = parse_json(got.body).value();
  EXPECT_EQ(told.at("method").as_string(), "POST");
  EXPECT_EQ(told.at("target").as_string(), "/files?path=a%20b");
  EXPECT_EQ(told.at("body").as_string(), "hello");
  EXPECT_EQ(told.at("headers").at("Host").as_string(), "localhost");
  EXPECT_EQ(get("/health", to(sandbox.record.id)).status, 204);
}

TEST_F(ProxyTest, CarriesByHostName) {
  const auto sandbox = create();
  const std::string host = "49983-" + sandbox.record.id.str() + ".box.example:8443";
  const Got got = get("/x", {{"Host", host}});
  ASSERT_EQ(got.status, 200) << got.body;
  EXPECT_EQ(parse_json(got.body).value().at("headers").at("Host").as_string(), host);
}

TEST_F(ProxyTest, CarriesByTokenForOldClients) {
  const auto sandbox = create(true);
  const Got got = get("/x", {{"X-Access-Token", *sandbox.access_token}});
  ASSERT_EQ(got.status, 200) << got.body;
  const Got unknown = get("/health", {{"X-Access-Token", "nobody"}});
  EXPECT_EQ(unknown.status, 502) << "the health of a dead sandbox is not that of the server";
  EXPECT_EQ(get("/health", {}).status, 204);
}

TEST_F(ProxyTest, ControlCallsWithSandboxHeadersReachTheControlPlane) {
  const auto sandbox = create(true);
  net::Headers headers = to(sandbox.record.id);
  headers.add("X-API-Key", f.key.secret);
  const Got got = fetch(f, port, "POST", "/sandboxes/" + sandbox.record.id.str() + "/connect",
                        headers, R"({"timeout":10})");
  ASSERT_EQ(got.status, 200) << got.body;
  EXPECT_EQ(parse_json(got.body).value().at("envdAccessToken").as_string(), *sandbox.access_token);
}

TEST_F(ProxyTest, UnknownAndKilledSandboxesAre502) {
  const auto sandbox = create();
  ASSERT_TRUE(f.run(f.engine->kill(f.caller(), sandbox.record.id)).ok());
  const Got got = get("/health", to(sandbox.record.id));
  EXPECT_EQ(got.status, 502);
  EXPECT_EQ(got.headers.get("Content-Type"), "application/json; charset=utf-8");
  EXPECT_EQ(got.body, R"({"sandboxId":")" + sandbox.record.id.str() +
                          R"(","message":"The sandbox was not found","code":502})");
  net::Headers browser = to(sandbox.record.id);
  browser.add("User-Agent", "Mozilla/5.0");
  EXPECT_THAT(get("/", browser).body, HasSubstr("Sandbox Not Found"));
}

TEST_F(ProxyTest, ReservedRoutesAreNeverPassedIn) {
  const auto sandbox = create();
  const std::size_t before = f.runtime.inits().size();
  for (const char* path : {"/init", "//init", "/x/../init", "/%69nit", "/init/", "/init?x=1",
                           "/freeze", "/upgrade", "/x%2f..%2finit"}) {
    const Got got = fetch(f, port, "POST", path, to(sandbox.record.id), "{}");
    EXPECT_EQ(got.status, 404) << path;
    EXPECT_THAT(got.body, HasSubstr("reserved for the E2B control plane")) << path;
  }
  EXPECT_EQ(fetch(f, port, "POST", "/init", to(*SandboxId::parse("unknown")), "{}").status, 404)
      << "before the lookup";
  EXPECT_EQ(get("/%zz", to(sandbox.record.id)).status, 400);
  EXPECT_EQ(f.runtime.inits().size(), before);
}

TEST_F(ProxyTest, TheAgentsConnectCannotBeReached) {
  const auto sandbox = create();
  serve(echo);
  RawClient client(port);
  client.send("CONNECT 8000 HTTP/1.1\r\n" + raw_headers(sandbox.record.id) + "\r\n");
  EXPECT_THAT(client.read_all(), StartsWith("HTTP/1.1 405"));
  EXPECT_EQ(f.runtime.connects(), 0);
}

TEST_F(ProxyTest, CarriesToServicesThroughTheAgent) {
  const auto sandbox = create();
  serve(echo);
  const std::string host = "8000-" + sandbox.record.id.str() + ".box.example";
  const Got got =
      fetch(f, port, "PUT", "/a?b", {{"Host", host}, {"X-Forwarded-For", "1.1.1.1"}}, "data");
  ASSERT_EQ(got.status, 200) << got.body;
  const auto told = parse_json(got.body).value();
  EXPECT_EQ(told.at("headers").at("Host").as_string(), host);
  EXPECT_FALSE(told.at("headers").as_object().contains("X-Forwarded-For"));
  EXPECT_EQ(told.at("body").as_string(), "data");
}

TEST_F(ProxyTest, ClosedPortsAreTriedForAWhileAndThen502) {
  const auto sandbox = create();
  const Got got = get("/", to(sandbox.record.id, 8000));
  EXPECT_EQ(got.status, 502);
  EXPECT_EQ(
      got.body,
      R"({"sandboxId":")" + sandbox.record.id.str() +
          R"(","message":"The sandbox is running but port is not open","port":8000,"code":502})");
  EXPECT_EQ(f.runtime.connects(), 5);
}

TEST_F(ProxyTest, PrivateSandboxesAskForTheirToken) {
  const auto sandbox = create(true, false);
  serve(echo);
  ASSERT_TRUE(sandbox.traffic_token);
  net::Headers headers = to(sandbox.record.id, 8000);
  Got got = get("/", headers);
  EXPECT_EQ(got.status, 403);
  EXPECT_THAT(got.body, HasSubstr("is missing"));
  headers.add("e2b-traffic-access-token", *sandbox.access_token);
  got = get("/", headers);
  EXPECT_EQ(got.status, 403);
  EXPECT_THAT(got.body, HasSubstr("is invalid"));
  headers.set("E2B-Traffic-Access-Token", *sandbox.traffic_token);
  EXPECT_EQ(get("/", headers).status, 200);
  EXPECT_EQ(get("/x", to(sandbox.record.id)).status, 200) << "the agent has a token of its own";
}

TEST_F(ProxyTest, BigBodiesStreamBothWays) {
  const auto sandbox = create();
  f.runtime.handler = [](net::Exchange& exchange) -> net::Task<void> {
    auto starting = exchange.response.start(200, {}, exchange.body.content_length());
    (void)co_await std::move(starting);
    std::vector<char> buffer(50'000);
    for (;;) {
      auto reading = exchange.body.read_some(buffer);
      auto n = co_await std::move(reading);
      if (!n.ok() || *n == 0) break;
      auto writing = exchange.response.write(std::string_view(buffer.data(), *n));
      if (!(co_await std::move(writing)).ok()) co_return;
    }
    auto finishing = exchange.response.finish();
    (void)co_await std::move(finishing);
  };
  std::string big;
  big.resize(9'000'001);
  for (std::size_t i = 0; i < big.size(); ++i) big[i] = char(i * 31 + i / 257);
  const Got got = fetch(f, port, "POST", "/x", to(sandbox.record.id), big);
  EXPECT_EQ(got.status, 200);
  EXPECT_EQ(got.body.size(), big.size());
  EXPECT_TRUE(got.body == big);
}

TEST_F(ProxyTest, ChunkedUploadsAndHttp10) {
  const auto sandbox = create();
  RawClient client(port);
  client.send("POST /x HTTP/1.1\r\n" + raw_headers(sandbox.record.id) +
              "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n");
  EXPECT_THAT(client.read_until("}"), StartsWith("HTTP/1.1 200"));
  RawClient old(port);
  old.send("GET /x HTTP/1.0\r\n" + raw_headers(sandbox.record.id) + "\r\n");
  const std::string answer = old.read_all();
  EXPECT_THAT(answer, StartsWith("HTTP/1.0 200"));
  EXPECT_TRUE(old.ended());
}

TEST_F(ProxyTest, HeadAnd204AndStatuses) {
  const auto sandbox = create();
  f.runtime.handler = [](net::Exchange& exchange) -> net::Task<void> {
    const int status = exchange.request.path() == "/none"     ? 204
                       : exchange.request.path() == "/teapot" ? 418
                                                              : 200;
    auto sending = exchange.response.send(
        status, {{"X-Path", std::string(exchange.request.path())}}, status == 204 ? "" : "four");
    (void)co_await std::move(sending);
  };
  const Got head = fetch(f, port, "HEAD", "/x", to(sandbox.record.id));
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.headers.get("Content-Length"), "4");
  EXPECT_EQ(head.body, "");
  const Got none = get("/none", to(sandbox.record.id));
  EXPECT_EQ(none.status, 204);
  EXPECT_FALSE(none.headers.has("Transfer-Encoding"));
  EXPECT_EQ(get("/teapot", to(sandbox.record.id)).status, 418);
}

TEST_F(ProxyTest, StreamsAreFlushedPieceByPiece) {
  const auto sandbox = create();
  auto seen = std::make_shared<Seen>();
  f.runtime.handler = [seen](net::Exchange& exchange) { return two_pieces(exchange, seen); };
  RawClient client(port);
  client.send("GET /x HTTP/1.1\r\n" + raw_headers(sandbox.record.id) + "\r\n");
  EXPECT_THAT(client.read_until("first"), StartsWith("HTTP/1.1 200"));
  seen->go_on = true;
  EXPECT_THAT(client.read_until("0\r\n\r\n"), HasSubstr("second"));
}

TEST_F(ProxyTest, AnEarlyAnswerToAnUploadArrives) {
  const auto sandbox = create();
  f.runtime.handler = [](net::Exchange& exchange) -> net::Task<void> {
    auto sending = exchange.response.send(401, {}, "no");
    (void)co_await std::move(sending);
  };
  RawClient client(port);
  client.send("POST /x HTTP/1.1\r\n" + raw_headers(sandbox.record.id) +
              "Content-Length: 100000000\r\n\r\n" + std::string(100'000, 'x'));
  EXPECT_THAT(client.read_until("no"), StartsWith("HTTP/1.1 401"));
}

TEST_F(ProxyTest, AClientThatLeavesClosesTheConnectionInside) {
  const auto sandbox = create();
  auto seen = std::make_shared<Seen>();
  f.runtime.handler = holding(seen, Head::sent);
  {
    RawClient client(port);
    client.send("GET /x HTTP/1.1\r\n" + raw_headers(sandbox.record.id) + "\r\n");
    client.read_until("\r\n\r\n");
    ASSERT_TRUE(Fixture::eventually([&] { return seen->begun.load(); }));
    EXPECT_FALSE(seen->noticed);
  }
  EXPECT_TRUE(Fixture::eventually([&] { return seen->noticed.load(); }));
}

TEST_F(ProxyTest, AClientThatLeavesBeforeTheAnswerClosesTheConnectionInside) {
  const auto sandbox = create();
  auto seen = std::make_shared<Seen>();
  f.runtime.handler = holding(seen, Head::held_back);
  {
    RawClient client(port);
    client.send("POST /x HTTP/1.1\r\n" + raw_headers(sandbox.record.id) +
                "Content-Length: 2\r\n\r\n{}");
    ASSERT_TRUE(Fixture::eventually([&] { return seen->begun.load(); }));
    EXPECT_FALSE(seen->noticed);
  }
  EXPECT_TRUE(Fixture::eventually([&] { return seen->noticed.load(); }));
}

TEST_F(ProxyTest, KillBreaksStreamsWithResetAfterTheRouteIsGone) {
  const auto sandbox = create();
  f.runtime.handler = holding(std::make_shared<Seen>(), Head::sent, "begin");
  RawClient client(port);
  client.send("GET /stream HTTP/1.1\r\n" + raw_headers(sandbox.record.id) + "\r\n");
  client.read_until("begin");
  ASSERT_TRUE(f.run(f.engine->kill(f.caller(), sandbox.record.id)).ok());
  client.read_all();
  EXPECT_TRUE(client.was_reset()) << "a clean end would look like a finished command";
  EXPECT_EQ(get("/health", to(sandbox.record.id)).status, 502);
}

TEST_F(ProxyTest, WhatASandboxHasSaidArrivesAfterItsKill) {
  const auto sandbox = create();
  auto seen = std::make_shared<Seen>();
  f.runtime.handler = [seen](net::Exchange& exchange) { return two_pieces(exchange, seen); };
  f.runtime.destroy_takes = std::chrono::seconds(1);
  RawClient client(port);
  client.send("GET /stream HTTP/1.1\r\n" + raw_headers(sandbox.record.id) + "\r\n");
  client.read_until("first");
  ASSERT_TRUE(f.engine->set_timeout(f.caller(), sandbox.record.id, std::chrono::seconds(0)).ok());
  ASSERT_TRUE(
      Fixture::eventually([&] { return get("/health", to(sandbox.record.id)).status == 502; }));
  seen->go_on = true;  // being destroyed, the agent still gets these words out
  EXPECT_THAT(client.read_until("0\r\n\r\n"), HasSubstr("second"));
  EXPECT_FALSE(client.was_reset());
}

TEST_F(ProxyTest, KillAnswersRequestsThatWaitFor502) {
  const auto sandbox = create();
  auto seen = std::make_shared<Seen>();
  f.runtime.handler = holding(seen, Head::held_back);
  RawClient client(port);
  client.send("GET /slow HTTP/1.1\r\n" + raw_headers(sandbox.record.id) + "\r\n");
  ASSERT_TRUE(Fixture::eventually([&] { return seen->begun.load(); }));
  ASSERT_TRUE(f.run(f.engine->kill(f.caller(), sandbox.record.id)).ok());
  EXPECT_THAT(client.read_until("}"), HasSubstr("The sandbox was not found"));
}

TEST_F(ProxyTest, ExpiryBreaksStreamsToo) {
  const auto sandbox = create();
  f.runtime.handler = holding(std::make_shared<Seen>(), Head::sent);
  RawClient client(port);
  client.send("GET /stream HTTP/1.1\r\n" + raw_headers(sandbox.record.id) + "\r\n");
  client.read_until("\r\n\r\n");
  ASSERT_TRUE(f.engine->set_timeout(f.caller(), sandbox.record.id, std::chrono::seconds(0)).ok());
  client.read_all();
  EXPECT_TRUE(client.was_reset());
}

TEST_F(ProxyTest, AnAnswerThatBreaksOffBreaksOffForTheClient) {
  const auto sandbox = create();
  f.runtime.handler = [](net::Exchange& exchange) -> net::Task<void> {
    auto starting = exchange.response.start(200, {}, 100'000);
    (void)co_await std::move(starting);
    auto writing = exchange.response.write("part");
    (void)co_await std::move(writing);
    exchange.response.abort();
  };
  RawClient client(port);
  client.send("GET /x HTTP/1.1\r\n" + raw_headers(sandbox.record.id) + "\r\n");
  client.read_all();
  EXPECT_TRUE(client.was_reset());
}

TEST_F(ProxyTest, ConnectionsToTheAgentAreReused) {
  const auto sandbox = create();
  const int before = f.runtime.dials();
  for (int i = 0; i < 20; ++i) {
    const Got got =
        fetch(f, port, "POST", "/x", to(sandbox.record.id), "body " + std::to_string(i));
    ASSERT_EQ(got.status, 200);
    EXPECT_EQ(parse_json(got.body).value().at("body").as_string(), "body " + std::to_string(i));
  }
  // Every client connection was another. The answer reaches the client a moment before the
  // connection is put back.
  EXPECT_LE(f.runtime.dials() - before, 8);
}

TEST_F(ProxyTest, ADeadKeptConnectionIsReplaced) {
  const auto sandbox = create();
  auto seen = std::make_shared<Seen>();
  f.runtime.handler = [seen](net::Exchange& exchange) { return answer_and_close(exchange, seen); };
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(fetch(f, port, "POST", "/x", to(sandbox.record.id), "b").status, 200);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(seen->requests, 5);
}

TEST_F(ProxyTest, ConnectionsOfOneSandboxAreNeverUsedForAnother) {
  const auto a = create();
  const auto b = create();
  const int before = f.runtime.dials();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(get("/x", to(a.record.id)).status, 200);
    EXPECT_EQ(get("/x", to(b.record.id)).status, 200);
  }
  EXPECT_GE(f.runtime.dials() - before, 2);
}

TEST_F(ProxyTest, ManyRequestsOnOneClientConnection) {
  const auto sandbox = create();
  const int before = f.runtime.dials();
  RawClient client(port);
  for (int i = 0; i < 20; ++i) {
    client.send("POST /n" + std::to_string(i) + " HTTP/1.1\r\n" + raw_headers(sandbox.record.id) +
                "Content-Length: 2\r\n\r\nhi");
    const std::string answer = client.read_until("\"hi\"}");
    EXPECT_THAT(answer, HasSubstr("/n" + std::to_string(i)));
  }
  EXPECT_EQ(f.runtime.dials() - before, 1);
  // Two at once: the second waits its turn.
  client.send("GET /p1 HTTP/1.1\r\n" + raw_headers(sandbox.record.id) + "\r\nGET /p2 HTTP/1.1\r\n" +
              raw_headers(sandbox.record.id) + "\r\n");
  EXPECT_THAT(client.read_until("\"body\":\"\"}"), HasSubstr("/p1"));
  EXPECT_THAT(client.read_until("\"body\":\"\"}"), HasSubstr("/p2"));
}

TEST_F(ProxyTest, SmuggledRequestsAreRefused) {
  const auto sandbox = create();
  const std::string start = "POST /x HTTP/1.1\r\n" + raw_headers(sandbox.record.id);
  for (const std::string& framing :
       {std::string("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled "
                    "HTTP/1.1\r\n\r\n"),
        std::string("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\nGET /smuggled "
                    "HTTP/1.1\r\n\r\n"),
        std::string("Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!"),
        std::string("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n"),
        std::string("Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
        std::string("Content-Length: 5 \r\n 6\r\n\r\nhello!"),
        std::string("Content-Length: -1\r\n\r\n"), std::string("Content Length: 5\r\n\r\nhello")}) {
    RawClient client(port);
    client.send(start + framing);
    const std::string answer = client.read_all();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 400")) << framing;
    EXPECT_EQ(answer.find("smuggled"), std::string::npos) << framing;
    EXPECT_EQ(answer.find("HTTP/1.1", 5), std::string::npos) << framing;
  }
}

TEST_F(ProxyTest, MalformedTargetsAreAnswered) {
  EXPECT_EQ(get("/", {{"E2b-Sandbox-Id", "iabc"}}).body, "missing header");
  EXPECT_EQ(get("/", {{"E2b-Sandbox-Id", "I!"}, {"E2b-Sandbox-Port", "1"}}).body,
            "Invalid sandbox ID");
  const Got got = get("/", {{"Host", "0-iabc.box.example"}});
  EXPECT_EQ(got.status, 400);
  EXPECT_EQ(got.body, "Invalid sandbox port");
}

TEST_F(ProxyTest, ManyClientsAtOnce) {
  const auto sandbox = create();
  std::atomic<int> good = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([&] {
      RawClient client(port);
      for (int n = 0; n < 25; ++n) {
        client.send("POST /x HTTP/1.1\r\n" + raw_headers(sandbox.record.id) +
                    "Content-Length: 2\r\n\r\nhi");
        if (client.read_until("\"hi\"}").starts_with("HTTP/1.1 200")) ++good;
      }
    });
  }
  for (auto& client : clients) client.join();
  EXPECT_EQ(good, 200);
}

TEST_F(ProxyTest, ServicesThatSpeakTls) {
  auto ca = certs::make_ca("A CA that nobody knows");
  ASSERT_TRUE(ca.ok());
  const auto context = net::TlsServerContext::by_name(
      [&](std::string_view name) -> Result<net::TlsServerContext::Pem> {
        const std::vector<std::string> names{std::string(name)};
        ATOLL_TRY_ASSIGN(certs::Pem leaf, ca->issue(names));
        return net::TlsServerContext::Pem{leaf.certificate, leaf.key};
      },
      {"http/1.1"});
  ASSERT_TRUE(context.ok()) << context.error().message;
  service = std::make_unique<net::HttpServer>(f.threads.io, net::ServerOptions{}, echo);
  const auto secured = service->listen_tls("127.0.0.1:0", "service", *context);
  ASSERT_TRUE(secured.ok());
  f.runtime.open_ports[8443] = *secured;
  f.runtime.open_ports[8444] = *secured;
  auto command = f.command();
  command.network = R"({"httpsPorts":[8443]})";
  auto sandbox = f.run(f.engine->create(command));
  ASSERT_TRUE(sandbox.ok());
  for (int i = 0; i < 2; ++i) {
    const Got got = fetch(f, port, "POST", "/x", to(sandbox->record.id, 8443), "hi");
    ASSERT_EQ(got.status, 200) << got.body;
    EXPECT_EQ(parse_json(got.body).value().at("body").as_string(), "hi");
  }
  EXPECT_NE(get("/x", to(sandbox->record.id, 8444)).status, 200) << "plain HTTP to a TLS service";
}

class LimitedProxyTest : public GatewayTest {
 protected:
  LimitedProxyTest() : GatewayTest({.max_connections_per_sandbox = 1}) {}
};

TEST_F(LimitedProxyTest, ConnectionsPerSandboxAreLimited) {
  const auto sandbox = create();
  auto seen = std::make_shared<Seen>();
  f.runtime.handler = holding(seen, Head::held_back);
  {
    RawClient client(port);
    client.send("GET /x HTTP/1.1\r\n" + raw_headers(sandbox.record.id) + "\r\n");
    ASSERT_TRUE(Fixture::eventually([&] { return seen->begun.load(); }));
    const Got got = get("/health", to(sandbox.record.id));
    EXPECT_EQ(got.status, 429);
    EXPECT_THAT(got.body, HasSubstr(R"("connectionLimit":1)"));
  }
  EXPECT_TRUE(
      Fixture::eventually([&] { return get("/health", to(sandbox.record.id)).status == 204; }));
}

}  // namespace
}  // namespace atl::proxy
