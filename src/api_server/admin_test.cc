#include <gmock/gmock.h>

#include "api_server/testing.h"
#include "store/keys.h"

namespace atl::api {
namespace {

using engine::testing::fetch;
using engine::testing::Got;

class AdminTest : public ApiTest {
 protected:
  std::string team() { return f.store->default_team().id; }
};

TEST_F(AdminTest, KeysLiveAndDie) {
  const Got made = admin("POST", "/api-keys", R"({"name":"ci"})");
  ASSERT_EQ(made.status, 201) << made.body;
  const auto key = parsed(made).as_object();
  const std::string secret(key.at("key").as_string());
  const std::string id(key.at("id").as_string());
  EXPECT_THAT(secret, ::testing::MatchesRegex("e2b_[0-9a-f]+"));
  EXPECT_EQ(key.at("name").as_string(), "ci");
  EXPECT_EQ(key.at("mask").at("prefix").as_string(), "e2b_");
  EXPECT_EQ(key.at("mask").at("valueLength").to_number<int>(), 40);
  EXPECT_EQ(key.at("mask").at("maskedValueSuffix").as_string(), secret.substr(secret.size() - 4));
  EXPECT_EQ(fetch(f, port, "GET", "/sandboxes", {{"X-API-Key", secret}}).status, 200);

  EXPECT_EQ(admin("PATCH", "/api-keys/" + id, R"({"name":"renamed"})").status, 200);
  const Got listed = admin("GET", "/api-keys");
  ASSERT_EQ(listed.status, 200);
  EXPECT_THAT(listed.body, ::testing::HasSubstr("renamed"));
  EXPECT_THAT(listed.body, ::testing::Not(::testing::HasSubstr(secret)));

  EXPECT_EQ(admin("DELETE", "/api-keys/" + id).status, 204);
  EXPECT_EQ(error_of(admin("DELETE", "/api-keys/" + id), 404), "id not found");
  error_of(fetch(f, port, "GET", "/sandboxes", {{"X-API-Key", secret}}), 401);
  EXPECT_EQ(error_of(admin("DELETE", "/api-keys/nothing"), 400), "Invalid API key ID");
  error_of(admin("POST", "/api-keys", R"({"name":"  "})"), 400);

  const auto audit = f.store->audit({});
  ASSERT_TRUE(audit.ok());
  std::vector<std::string> actions;
  for (const auto& row : *audit) {
    if (row.subject != id) continue;
    actions.push_back(row.action);
    EXPECT_EQ(row.key_id, "admin");
    EXPECT_EQ(row.peer, "127.0.0.1");
  }
  EXPECT_EQ(actions, (std::vector<std::string>{"key.delete", "key.rename", "key.create"}));
}

TEST_F(AdminTest, KeysOfATeamByTheAdministratorAlone) {
  const net::Headers token{{"X-Admin-Token", kAdmin}};
  const std::string path = "/admin/teams/" + team() + "/api-keys";
  const Got made = fetch(f, port, "POST", path, token, R"({"name":"ops"})");
  ASSERT_EQ(made.status, 201) << made.body;
  const std::string id(parsed(made).at("id").as_string());
  EXPECT_EQ(fetch(f, port, "DELETE", path + "/" + id, token).status, 204);
  error_of(fetch(f, port, "DELETE", path + "/" + id, token), 404);
  error_of(fetch(f, port, "POST", "/admin/teams/none/api-keys", token, R"({"name":"x"})"), 404);
}

TEST_F(AdminTest, TheAdministratorActsForATeam) {
  const std::string id = create();
  EXPECT_EQ(admin("GET", "/sandboxes/" + id).status, 200);
  const Got bearer =
      fetch(f, port, "GET", "/sandboxes/" + id,
            {{"Authorization", std::string("Bearer ") + kAdmin}, {"X-Team-ID", team()}});
  EXPECT_EQ(bearer.status, 200);
  EXPECT_EQ(fetch(f, port, "GET", "/sandboxes/" + id, {{"Authorization", "Bearer " + f.key.secret}})
                .status,
            200);
}

TEST_F(AdminTest, TeamsForALogin) {
  const Got own = fetch(f, port, "GET", "/teams", {{"Authorization", "Bearer " + f.key.secret}});
  ASSERT_EQ(own.status, 200) << own.body;
  const auto teams = parsed(own).as_array();
  ASSERT_EQ(teams.size(), 1u);
  EXPECT_EQ(teams[0].at("teamID").as_string(), team());
  EXPECT_EQ(teams[0].at("apiKey").as_string(), f.key.secret);
  EXPECT_TRUE(teams[0].at("isDefault").as_bool());
  const Got minted =
      fetch(f, port, "GET", "/teams", {{"Authorization", std::string("Bearer ") + kAdmin}});
  ASSERT_EQ(minted.status, 200);
  const std::string key(parsed(minted).at(0).at("apiKey").as_string());
  EXPECT_EQ(fetch(f, port, "GET", "/sandboxes", {{"X-API-Key", key}}).status, 200);
}

TEST_F(AdminTest, CountsAndKillsATeam) {
  EXPECT_EQ(admin("GET", "/admin/sandboxes/running-counts").body, "{}");
  create();
  create();
  EXPECT_EQ(parsed(admin("GET", "/admin/sandboxes/running-counts")).at(team()).to_number<int>(), 2);
  const Got killed = admin("POST", "/admin/teams/" + team() + "/sandboxes/kill");
  ASSERT_EQ(killed.status, 200) << killed.body;
  EXPECT_EQ(parsed(killed).at("killedCount").to_number<int>(), 2);
  EXPECT_EQ(parsed(killed).at("failedCount").to_number<int>(), 0);
  EXPECT_EQ(admin("GET", "/admin/sandboxes/running-counts").body, "{}");
  error_of(admin("POST", "/admin/teams/none/sandboxes/kill"), 404);
}

TEST_F(AdminTest, TheNode) {
  create();
  const Got nodes = admin("GET", "/nodes");
  ASSERT_EQ(nodes.status, 200) << nodes.body;
  const auto node = parsed(nodes).at(0).as_object();
  EXPECT_EQ(node.at("status").as_string(), "ready");
  EXPECT_EQ(node.at("sandboxCount").to_number<int>(), 1);
  EXPECT_EQ(node.at("createSuccesses").to_number<int>(), 1);
  EXPECT_GT(node.at("metrics").at("memoryTotalBytes").to_number<std::uint64_t>(), 0u);
  EXPECT_EQ(node.at("metrics").at("allocatedCPU").to_number<int>(), 2);
  EXPECT_EQ(admin("GET", "/nodes/" + std::string(node.at("id").as_string())).status, 200);
}

TEST(NoAdmin, WithoutATokenNobodyIsTheAdministrator) {
  engine::testing::Fixture f;
  ApiServer api(*f.engine, *f.store);
  net::HttpServer server(f.threads.io, {}, [&](net::Exchange& e) { return api.handle(e); });
  const auto port = *server.listen_tcp("127.0.0.1:0", "api");
  for (const char* token : {"", " ", "x"}) {
    EXPECT_EQ(fetch(f, port, "GET", "/nodes", {{"X-Admin-Token", token}}).status, 401);
    EXPECT_EQ(
        fetch(f, port, "GET", "/nodes", {{"Authorization", std::string("Bearer ") + token}}).status,
        401);
  }
  f.run(server.shutdown(std::chrono::milliseconds(0)));
}

}  // namespace
}  // namespace atl::api
