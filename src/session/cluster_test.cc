// Two servers, each with an engine of its own, on one real Redis.
#include "session/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api_server/errors.h"
#include "engine/testing/http.h"
#include "net/http_server.h"
#include "proxy/gateway.h"
#include "session/node.h"
#include "session/redis_testing.h"

namespace atl::session {
namespace {

using engine::testing::Fixture;
using engine::testing::Got;
using std::chrono::milliseconds;
using testing::RedisServer;

TEST(Signature, CountsForWhatWasSigned) {
  const Timestamp now = from_ns(1'700'000'000'000'000'000);
  net::RequestHead head;
  head.method = "PUT";
  head.target = "/sessions/a";
  sign(head, {"n1", "team\n1"}, "secret", now);
  const auto by = verify(head, "secret", now);
  ASSERT_TRUE(by);
  EXPECT_EQ(by->node, "n1");
  EXPECT_EQ(by->team, "team\n1");
  EXPECT_FALSE(verify(head, "other", now));
  EXPECT_FALSE(verify(head, "", now));
  EXPECT_FALSE(verify(head, "secret", now + std::chrono::minutes(2)));
  EXPECT_FALSE(verify(head, "secret", now - std::chrono::minutes(2)));
  for (const char* name : {"X-Atoll-Team", "X-Atoll-Node", "X-Atoll-Time"}) {
    net::RequestHead changed = head;
    changed.headers.set(name, "1");
    EXPECT_FALSE(verify(changed, "secret", now)) << name;
  }
  net::RequestHead other = head;
  other.target = "/sessions/b";
  EXPECT_FALSE(verify(other, "secret", now));
  erase_signature(head.headers);
  EXPECT_EQ(head.headers.size(), 0u);
  net::RequestHead empty;
  sign(empty, {"n1", "t"}, "", now);
  EXPECT_FALSE(verify(empty, "", now)) << "no secret, no trust";
}

TEST(NodeUrl, IsAnAddress) {
  EXPECT_EQ(parse_node_url("http://10.0.0.1:3000")->port, 3000);
  EXPECT_EQ(parse_node_url("http://[::1]:3000/")->ip, "::1");
  for (const char* bad : {"", "10.0.0.1:3000", "https://10.0.0.1:3000", "http://10.0.0.1",
                          "http://host:3000", "http://10.0.0.1:0", "http://10.0.0.1:3000/x"})
    EXPECT_FALSE(parse_node_url(bad).ok()) << bad;
}

struct Server {
  explicit Server(const RedisServer& redis) {
    f.runtime.handler = [this](net::Exchange& exchange) { return echo(exchange); };
    start("redis://:open%20sesame@127.0.0.1:" + std::to_string(redis.address().port) + "/3");
  }
  ~Server() { stop(); }
  void start(std::string store_url) {
    http = std::make_unique<net::HttpServer>(
        f.threads.io, net::ServerOptions{.error_body = api::error_body},
        [this](net::Exchange& exchange) { return handler(exchange); });
    port = *http->listen_tcp("127.0.0.1:" + std::to_string(port), "main");
    auto made = Node::create(f.threads.io, *f.engine, *f.store,
                             {.id_file = (f.home.path() / "node.id").string(),
                              .domain = "",
                              .shared = std::move(store_url),
                              .url = "http://127.0.0.1:" + std::to_string(port),
                              .admin_token = "admin"});
    ASSERT_TRUE(made.ok()) << made.error().message;
    node = std::move(*made);
    api = std::make_unique<api::ApiServer>(
        *f.engine, *f.store,
        api::ApiOptions{.admin_token = "admin", .vouched_team = node->vouched_team()},
        std::vector<api::Service*>{&node->service()});
    proxy = std::make_unique<proxy::Proxy>(*f.engine, proxy::ProxyOptions{});
    handler = node->in_front_of(
        proxy::make_gateway_handler(*api, *proxy),
        {"", [this](std::string_view path) { return api->is_control_path(path); }});
    f.run(node->start());
  }
  void stop() {
    if (!http) return;
    f.run(http->shutdown(milliseconds(0)));
    http.reset();
    f.run(node->stop());
  }
  net::Task<void> echo(net::Exchange& exchange) {
    auto reading = exchange.body.read_all(1 << 20);
    auto body = co_await std::move(reading);
    ++echoed;
    leaked = leaked || exchange.request.headers.has("X-Atoll-Signature") ||
             exchange.request.headers.has("X-API-Key");
    net::Headers headers{{"X-Target", exchange.request.target}};
    auto sending = exchange.response.send(200, headers, body.ok() ? "echo " + *body : "broken");
    (void)co_await std::move(sending);
  }
  Got call(const std::string& method, const std::string& target, const std::string& body = {},
           std::string key = {}) {
    if (key.empty()) key = f.key.secret;
    return engine::testing::fetch(f, port, method, target, {{"X-API-Key", key}}, body);
  }
  std::size_t sandboxes() const {
    engine::ListQuery query;
    query.team_id = f.store->default_team().id;
    return f.engine->list(query).items.size();
  }

  std::atomic<bool> leaked = false;
  std::atomic<int> echoed = 0;
  Fixture f;
  std::uint16_t port = 0;
  net::Handler handler;
  std::unique_ptr<Node> node;
  std::unique_ptr<api::ApiServer> api;
  std::unique_ptr<proxy::Proxy> proxy;
  std::unique_ptr<net::HttpServer> http;
};

class ClusterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ATOLL_NEEDS_REDIS();
    redis.emplace();
    a.emplace(*redis);
    b.emplace(*redis);
  }
  static json::value parsed(const Got& got) {
    auto value = parse_json(got.body);
    EXPECT_TRUE(value.ok()) << got.status << " " << got.body;
    return value.ok() ? *value : json::value();
  }
  std::optional<RedisServer> redis;
  std::optional<Server> a;
  std::optional<Server> b;
  const std::string body = R"({"templateID":"base","timeout":600})";
};

TEST_F(ClusterTest, TenAtOnceThroughTwoServersGetOneSandbox) {
  a->f.runtime.create_takes = b->f.runtime.create_takes = milliseconds(50);
  std::vector<std::future<Got>> all;
  for (int i = 0; i < 10; ++i) {
    Server& one = i % 2 == 0 ? *a : *b;
    all.push_back(
        std::async(std::launch::async, [&] { return one.call("PUT", "/sessions/x", body); }));
  }
  int created = 0;
  std::string id;
  for (auto& each : all) {
    const Got got = each.get();
    ASSERT_TRUE(got.status == 200 || got.status == 201) << got.body;
    created += got.status == 201 ? 1 : 0;
    const std::string its(parsed(got).at("sandboxID").as_string());
    if (id.empty()) id = its;
    EXPECT_EQ(its, id);
  }
  EXPECT_EQ(created, 1);
  EXPECT_EQ(a->sandboxes() + b->sandboxes(), 1u);
}

TEST_F(ClusterTest, EverythingWorksThroughTheOtherServer) {
  const json::value made = parsed(a->call("PUT", "/sessions/x", body));
  const std::string id(made.at("sandboxID").as_string());
  const json::value there = parsed(b->call("PUT", "/sessions/x"));
  EXPECT_EQ(there.at("sandboxID"), json::value(id));
  EXPECT_EQ(there.at("came"), "reused");
  EXPECT_EQ(there.at("envdAccessToken"), made.at("envdAccessToken"));
  // Its API, with the key of either server.
  for (const std::string& key : {a->f.key.secret, b->f.key.secret}) {
    const Got info = b->call("GET", "/sandboxes/" + id, "", key);
    EXPECT_EQ(info.status, 200) << info.body;
    EXPECT_EQ(parsed(info).at("sandboxID"), json::value(id));
  }
  EXPECT_EQ(b->call("GET", "/sandboxes/" + id, "", "e2b_" + std::string(40, '0')).status, 401);
  // Its traffic.
  const std::string token(made.at("envdAccessToken").as_string());
  const Got echoed = engine::testing::fetch(b->f, b->port, "POST", "/x?y=1",
                                            {{"E2b-Sandbox-Id", id},
                                             {"E2b-Sandbox-Port", "49983"},
                                             {"X-API-Key", "e2b_secret"},
                                             {"X-Access-Token", token}},
                                            std::string(100'000, 'b'));
  EXPECT_EQ(echoed.status, 200) << echoed.body;
  EXPECT_EQ(echoed.body, "echo " + std::string(100'000, 'b'));
  EXPECT_EQ(echoed.headers.get("X-Target"), "/x?y=1");
  EXPECT_FALSE(a->leaked) << "neither a key nor how servers speak with one another";
  // Pause, list, resume, end.
  EXPECT_EQ(parsed(b->call("POST", "/sessions/x/pause")).at("state"), "paused");
  const json::value list = parsed(b->call("GET", "/sessions"));
  ASSERT_EQ(list.as_array().size(), 1u);
  EXPECT_EQ(list.at(0).at("state"), "paused");
  EXPECT_EQ(parsed(b->call("PUT", "/sessions/x")).at("came"), "resumed");
  EXPECT_EQ(parsed(b->call("GET", "/sessions/x")).at("state"), "running");
  EXPECT_EQ(b->call("DELETE", "/sessions/x").status, 204);
  EXPECT_EQ(a->sandboxes() + b->sandboxes(), 0u);
  EXPECT_EQ(b->call("DELETE", "/sessions/x").status, 204);
}

TEST_F(ClusterTest, ASandboxKilledThroughTheOtherServer) {
  const std::string id(parsed(a->call("PUT", "/sessions/x", body)).at("sandboxID").as_string());
  EXPECT_EQ(b->call("DELETE", "/sandboxes/" + id).status, 204);
  EXPECT_EQ(a->sandboxes(), 0u);
  const json::value next = parsed(b->call("PUT", "/sessions/x", body));
  EXPECT_EQ(next.at("created"), true);
  EXPECT_NE(next.at("sandboxID"), json::value(id));
}

TEST_F(ClusterTest, KeysOfOneAreGoodForAllUntilTheyAreDeleted) {
  EXPECT_EQ(a->call("GET", "/sandboxes", "", b->f.key.secret).status, 200);
  EXPECT_EQ(a->call("GET", "/sessions", "", "e2b_" + std::string(40, '1')).status, 401);
  const std::string team = b->f.store->create_team("others")->id;
  const auto made = store::create_key(*b->f.store, team, "new").value();
  EXPECT_TRUE(Fixture::eventually(
      [&] { return a->call("GET", "/sessions", "", made.secret).status == 200; }));
  const Got theirs = a->call("PUT", "/sessions/x", body, made.secret);
  EXPECT_EQ(theirs.status, 201) << theirs.body;
  EXPECT_EQ(a->call("GET", "/sessions/x").status, 404) << "it is another team's";
  ASSERT_TRUE(b->f.store->delete_key(team, made.record.id).value());
  bool refused = false;
  for (int i = 0; i < 3 && !refused; ++i) {
    refused = Fixture::eventually(
        [&] { return a->call("GET", "/sessions", "", made.secret).status == 401; });
  }
  EXPECT_TRUE(refused);
}

TEST_F(ClusterTest, NobodyElseCanSpeakForATeam) {
  net::Headers forged{{"X-Atoll-Node", "n1"},
                      {"X-Atoll-Team", "default"},
                      {"X-Atoll-Time", std::to_string(to_ns(now()) / 1'000'000'000)},
                      {"X-Atoll-Signature", std::string(64, '0')}};
  EXPECT_EQ(engine::testing::fetch(a->f, a->port, "GET", "/sessions", forged).status, 401);
}

TEST_F(ClusterTest, AServerThatRestartsIsWaitedFor) {
  const std::string id(parsed(a->call("PUT", "/sessions/x", body)).at("sandboxID").as_string());
  a->stop();
  auto waiting =
      std::async(std::launch::async, [&] { return b->call("PUT", "/sessions/x", body); });
  EXPECT_EQ(waiting.wait_for(milliseconds(500)), std::future_status::timeout);
  a->start("redis://:open%20sesame@127.0.0.1:" + std::to_string(redis->address().port) + "/3");
  const Got got = waiting.get();
  EXPECT_EQ(got.status, 200) << got.body;
  EXPECT_EQ(parsed(got).at("sandboxID"), json::value(id));
  EXPECT_EQ(b->sandboxes(), 0u);
}

TEST_F(ClusterTest, ARedisOutageIsToldAndLosesNothing) {
  const std::string id(parsed(a->call("PUT", "/sessions/x", body)).at("sandboxID").as_string());
  redis->stop();
  for (Server* each : {&*a, &*b}) {
    const Got refused = each->call("PUT", "/sessions/x", body);
    EXPECT_EQ(refused.status, 503) << refused.body;
    EXPECT_THAT(refused.body, ::testing::HasSubstr("redis://127.0.0.1"));
    EXPECT_THAT(refused.body, ::testing::HasSubstr("Nothing was made or lost"));
    EXPECT_EQ(refused.headers.get("Retry-After"), "1");
  }
  EXPECT_EQ(a->call("GET", "/sandboxes/" + id).status, 200) << "what is here goes on";
  redis->start();
  for (Server* each : {&*a, &*b}) {
    const Got again = each->call("PUT", "/sessions/x", body);
    EXPECT_EQ(again.status, 200) << again.body;
    EXPECT_EQ(parsed(again).at("sandboxID"), json::value(id));
  }
  EXPECT_EQ(a->sandboxes() + b->sandboxes(), 1u);
}

// Between two beats, so that none of them fails.
TEST_F(ClusterTest, ARedisThatComesBackEmptyIsToldAgain) {
  const auto forget = [&] {
    redis->stop();
    redis->forget();
    redis->start();
  };
  const std::string id(parsed(a->call("PUT", "/sessions/x", body)).at("sandboxID").as_string());
  forget();
  const Got again = a->call("PUT", "/sessions/x", body);
  EXPECT_EQ(again.status, 200) << again.body;
  EXPECT_EQ(parsed(again).at("sandboxID"), json::value(id));
  // Without being asked for, by the next beat: then the other server knows it, too.
  forget();
  bool told = false;
  for (int i = 0; i < 6 && !told; ++i)
    told = Fixture::eventually([&] { return b->call("GET", "/sessions/x").status == 200; });
  EXPECT_TRUE(told);
  EXPECT_EQ(parsed(b->call("PUT", "/sessions/x", body)).at("sandboxID"), json::value(id));
  EXPECT_EQ(a->sandboxes() + b->sandboxes(), 1u);
  forget();
  EXPECT_EQ(a->call("DELETE", "/sessions/x").status, 204);
  EXPECT_EQ(a->sandboxes() + b->sandboxes(), 0u);
}

}  // namespace
}  // namespace atl::session
