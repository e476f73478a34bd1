#include "session/service.h"

#include "api_server/testing.h"
#include "session/testing.h"

namespace atl::session {
namespace {

using engine::testing::Got;

class SessionServiceTest : public ::testing::Test {
 protected:
  SessionServiceTest() {
    f.run(manager.start());
    port = *server.listen_tcp("127.0.0.1:0", "api");
  }
  ~SessionServiceTest() override {
    f.run(server.shutdown(std::chrono::milliseconds(0)));
    f.run(manager.stop(std::chrono::milliseconds(5'000)));
  }
  Got call(const std::string& method, const std::string& target, const std::string& body = {}) {
    return engine::testing::fetch(f, port, method, target, {{"X-API-KEY", f.key.secret}}, body);
  }
  static json::value parsed(const Got& got) { return parse_json(got.body).value(); }

  engine::testing::Fixture f;
  std::unique_ptr<store::SessionRows> rows = store::SessionRows::open(*f.store).value();
  SqliteTable table{*rows};
  Manager manager{f.threads.io, *f.engine, *f.store, table, nullptr, nullptr, {}};
  SessionService service{manager, "example.org"};
  api::ApiServer api{*f.engine, *f.store, {}, {&service}};
  net::HttpServer server{f.threads.io,
                         {.error_body = api::error_body},
                         [this](net::Exchange& exchange) { return api.handle(exchange); }};
  std::uint16_t port = 0;
};

TEST_F(SessionServiceTest, LifeOfASession) {
  const std::string body = R"({"templateID":"base","timeout":60,"workspace":"w"})";
  const Got made = call("PUT", "/sessions/user%2F1", body);
  ASSERT_EQ(made.status, 201) << made.body;
  const json::value session = parsed(made);
  EXPECT_EQ(session.at("key"), "user/1");
  EXPECT_EQ(session.at("came"), "created");
  EXPECT_EQ(session.at("created"), true);
  EXPECT_EQ(session.at("state"), "running");
  EXPECT_EQ(session.at("domain"), "example.org");
  EXPECT_EQ(session.at("workspace"), "w");
  EXPECT_EQ(session.at("timeout"), 60);
  EXPECT_EQ(session.at("pauseAfter"), 900);
  EXPECT_EQ(session.at("ttl"), 43200);
  for (const char* field : {"sandboxID", "templateID", "clientID", "envdVersion", "envdAccessToken",
                            "trafficAccessToken", "endAt", "expiresAt"})
    EXPECT_TRUE(session.as_object().contains(field)) << field;
  const Got again = call("PUT", "/sessions/user%2F1");
  EXPECT_EQ(again.status, 200);
  EXPECT_EQ(parsed(again).at("came"), "reused");
  EXPECT_EQ(parsed(again).at("sandboxID"), session.at("sandboxID"));
  const Got paused = call("POST", "/sessions/user%2F1/pause");
  EXPECT_EQ(paused.status, 200) << paused.body;
  EXPECT_EQ(parsed(paused).at("state"), "paused");
  EXPECT_EQ(parsed(call("GET", "/sessions/user%2F1")).at("state"), "paused");
  EXPECT_EQ(parsed(call("GET", "/sessions")).as_array().size(), 1u);
  EXPECT_EQ(parsed(call("PUT", "/sessions/user%2F1")).at("came"), "resumed");
  EXPECT_EQ(call("DELETE", "/sessions/user%2F1").status, 204);
  EXPECT_EQ(call("DELETE", "/sessions/user%2F1").status, 204);
  EXPECT_EQ(call("GET", "/sessions/user%2F1").status, 404);
}

TEST_F(SessionServiceTest, SecretsAreNotToldAgain) {
  const Got made =
      call("PUT", "/sessions/a", R"({"templateID":"base","envVars":{"PASSWORD":"hunter2"}})");
  ASSERT_EQ(made.status, 201) << made.body;
  EXPECT_EQ(made.body.find("hunter2"), std::string::npos);
  EXPECT_EQ(call("GET", "/sessions/a").body.find("hunter2"), std::string::npos);
  EXPECT_EQ(call("GET", "/sessions").body.find("hunter2"), std::string::npos);
}

TEST_F(SessionServiceTest, Refusals) {
  EXPECT_EQ(call("PUT", "/sessions/" + std::string(257, 'k')).status, 400);
  EXPECT_EQ(call("PUT", "/sessions/a%0Ab").status, 400);
  EXPECT_EQ(call("PUT", "/sessions/a", R"({"ttl":0})").status, 400);
  EXPECT_EQ(call("PUT", "/sessions/a", "{").status, 400);
  EXPECT_EQ(call("PUT", "/sessions/a", R"({"templateID":"nosuch"})").status, 404);
  EXPECT_EQ(call("POST", "/sessions/a/pause").status, 404);
  EXPECT_EQ(call("PATCH", "/sessions/a").status, 405);
  EXPECT_EQ(engine::testing::fetch(f, port, "GET", "/sessions").status, 401);
  EXPECT_EQ(parsed(call("GET", "/sessions")).as_array().size(), 0u);
}

}  // namespace
}  // namespace atl::session
