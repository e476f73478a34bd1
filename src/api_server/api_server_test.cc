#include "api_server/api_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api_server/testing.h"
#include "base/encoding.h"

namespace atl::api {
namespace {

using engine::testing::Fixture;
using engine::testing::Got;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST_F(ApiTest, HealthNeedsNoKey) {
  EXPECT_EQ(engine::testing::fetch(f, port, "GET", "/health").status, 204);
}

TEST_F(ApiTest, AuthenticationComesBeforeEverythingElse) {
  const auto with = [&](net::Headers headers) {
    return error_of(engine::testing::fetch(f, port, "PUT", "/sandboxes/BAD!ID/network",
                                           std::move(headers), "{"),
                    401);
  };
  EXPECT_EQ(with({}), "authorization header is missing");
  EXPECT_EQ(with({{"X-API-Key", ""}}), "authorization header is missing");
  EXPECT_EQ(with({{"X-API-Key", "sk_123"}}), "authorization header is malformed");
  EXPECT_THAT(
      with({{"X-API-Key", "e2b_" + std::string(40, '0')}}),
      StartsWith(
          "Invalid API key, please visit https://e2b.dev/docs/api-key for more information."));
  EXPECT_THAT(with({{"X-API-Key", f.key.secret + "0"}}), StartsWith("Invalid API key"));
}

TEST_F(ApiTest, CreateV1) {
  const Got got = call("POST", "/sandboxes",
                       R"({"templateID":"base","timeout":60,"secure":true,"metadata":{"a":"b"}})");
  ASSERT_EQ(got.status, 201) << got.body;
  const auto body = parsed(got).as_object();
  EXPECT_EQ(body.at("templateID").as_string(), engine::testing::kTemplateId);
  EXPECT_THAT(std::string(body.at("sandboxID").as_string()), ::testing::MatchesRegex("i[a-z0-9]+"));
  EXPECT_EQ(body.at("clientID").as_string(), "6532622b");
  EXPECT_EQ(body.at("envdVersion").as_string(), "0.6.13");
  EXPECT_EQ(body.at("alias").as_string(), "base");
  EXPECT_EQ(body.at("envdAccessToken").as_string().size(), 64u);
  EXPECT_TRUE(body.at("domain").is_null());
  EXPECT_TRUE(body.at("trafficAccessToken").is_null());
}

TEST_F(ApiTest, CreateV2IsAlwaysSecured) {
  const Got got = call("POST", "/v2/sandboxes", R"({"templateID":"base"})");
  ASSERT_EQ(got.status, 201) << got.body;
  EXPECT_EQ(parsed(got).at("envdAccessToken").as_string().size(), 64u);
  const Got v1 = call("POST", "/sandboxes", R"({"templateID":"base"})");
  ASSERT_EQ(v1.status, 201);
  EXPECT_FALSE(parsed(v1).as_object().contains("envdAccessToken"));
}

TEST_F(ApiTest, PrivateSandboxesGetATrafficToken) {
  const Got got = call("POST", "/v2/sandboxes",
                       R"({"templateID":"base","network":{"allowPublicTraffic":false}})");
  ASSERT_EQ(got.status, 201) << got.body;
  EXPECT_EQ(parsed(got).at("trafficAccessToken").as_string().size(), 64u);
  const std::string id(parsed(got).at("sandboxID").as_string());
  EXPECT_EQ(
      parsed(call("GET", "/sandboxes/" + id)).at("network").at("allowPublicTraffic").as_bool(),
      false);
}

TEST_F(ApiTest, CreateErrors) {
  EXPECT_EQ(error_of(call("POST", "/sandboxes", R"({"templateID":"nope"})"), 404),
            "template 'nope' not found");
  EXPECT_THAT(error_of(call("POST", "/sandboxes", R"({"templateID":"a b"})"), 400),
              StartsWith("Invalid template reference: "));
  EXPECT_EQ(error_of(call("POST", "/sandboxes", R"({"templateID":"base","timeout":0})"), 400),
            "Timeout must be greater than 0");
  EXPECT_EQ(error_of(call("POST", "/sandboxes", R"({"templateID":"base","timeout":86401})"), 400),
            "Timeout cannot be greater than 24 hours");
  EXPECT_THAT(error_of(call("POST", "/sandboxes", "{nope"), 400), StartsWith("validation error: "));
  EXPECT_EQ(f.engine->live(), 0u);
}

TEST_F(ApiTest, InternalFailuresAreTypedAndTellNoSecrets) {
  f.runtime.failing_creates = 1;
  const Got got = call("POST", "/sandboxes", R"({"templateID":"base"})");
  const std::string message = error_of(got, 500);
  EXPECT_THAT(message, HasSubstr("trace"));
  EXPECT_THAT(message, ::testing::Not(HasSubstr("mount")));
  EXPECT_EQ(parsed(got).at("error_code").as_string(), "sandbox_create_failed");
}

TEST_F(ApiTest, BodiesAreLimited) {
  const Got got = call("POST", "/sandboxes", std::string((1 << 20) + 1, ' '));
  EXPECT_THAT(error_of(got, 413), HasSubstr("limit"));
  EXPECT_EQ(call("GET", "/health").status, 204);
}

TEST_F(ApiTest, InfoTellsEverything) {
  const std::string id =
      create(R"(,"metadata":{"k":"v"},"secure":true,"allow_internet_access":false)");
  const Got got = call("GET", "/sandboxes/" + id);
  ASSERT_EQ(got.status, 200);
  const auto body = parsed(got).as_object();
  EXPECT_EQ(body.at("sandboxID").as_string(), id);
  EXPECT_EQ(body.at("state").as_string(), "running");
  EXPECT_EQ(body.at("metadata").at("k").as_string(), "v");
  EXPECT_EQ(body.at("cpuCount").to_number<int>(), 2);
  EXPECT_EQ(body.at("memoryMB").to_number<int>(), 512);
  EXPECT_EQ(body.at("diskSizeMB").to_number<int>(), 1024);
  EXPECT_EQ(body.at("lifecycle").at("onTimeout").as_string(), "kill");
  EXPECT_EQ(body.at("lifecycle").at("autoResume").as_bool(), false);
  EXPECT_EQ(body.at("allowInternetAccess").as_bool(), false);
  EXPECT_EQ(body.at("envdAccessToken").as_string().size(), 64u);
  const auto started = parse_rfc3339(std::string(body.at("startedAt").as_string()));
  const auto end = parse_rfc3339(std::string(body.at("endAt").as_string()));
  ASSERT_TRUE(started && end);
  EXPECT_EQ(*end - *started, std::chrono::seconds(60));
  EXPECT_EQ(call("GET", "/sandboxes/" + id + "-6532622b").status, 200) << "id-clientid";
}

TEST_F(ApiTest, IdsAreCheckedThenLookedUp) {
  EXPECT_EQ(error_of(call("GET", "/sandboxes/nonexistingsandbox"), 404),
            "Sandbox \"nonexistingsandbox\" doesn't exist or you don't have access to it");
  for (const char* bad : {"I-UPPER", "a-b-c", "a_b", "a.b", "a%2Fb", "a-", "%20"}) {
    EXPECT_EQ(error_of(call("GET", std::string("/sandboxes/") + bad), 400), "Invalid sandbox ID")
        << bad;
    EXPECT_EQ(error_of(call("DELETE", std::string("/sandboxes/") + bad), 400), "Invalid sandbox ID")
        << bad;
  }
}

TEST_F(ApiTest, KillOnceAndNoMore) {
  const std::string id = create();
  const Got killed = call("DELETE", "/sandboxes/" + id);
  EXPECT_EQ(killed.status, 204);
  EXPECT_TRUE(killed.body.empty());
  error_of(call("DELETE", "/sandboxes/" + id), 404);
  error_of(call("GET", "/sandboxes/" + id), 404);
  error_of(call("POST", "/sandboxes/" + id + "/timeout", R"({"timeout":1})"), 404);
  error_of(call("POST", "/sandboxes/" + id + "/connect", R"({"timeout":1})"), 404);
  EXPECT_TRUE(parsed(call("GET", "/v2/sandboxes")).as_array().empty());
}

TEST_F(ApiTest, KeysOfAnotherTeamSeeNothing) {
  const std::string id = create();
  // Another team's key: its row belongs to a team of its own.
  auto database = store::Database::open((f.home.path() / "state.db").string());
  ASSERT_TRUE(database.ok());
  ASSERT_TRUE(database->exec("INSERT INTO teams VALUES ('t2', 'second', 0)").ok());
  auto other = store::create_key(*f.store, "t2", "other");
  ASSERT_TRUE(other.ok());
  const net::Headers key{{"X-API-Key", other->secret}};
  using engine::testing::fetch;
  EXPECT_EQ(fetch(f, port, "GET", "/sandboxes/" + id, key).status, 404);
  EXPECT_EQ(fetch(f, port, "DELETE", "/sandboxes/" + id, key).status, 404);
  EXPECT_EQ(fetch(f, port, "POST", "/sandboxes/" + id + "/timeout", key, R"({"timeout":1})").status,
            404);
  EXPECT_EQ(fetch(f, port, "POST", "/sandboxes/" + id + "/connect", key, R"({"timeout":1})").status,
            404);
  EXPECT_EQ(fetch(f, port, "POST", "/sandboxes/" + id + "/refreshes", key, "").status, 404);
  EXPECT_EQ(fetch(f, port, "GET", "/v2/sandboxes", key).body, "[]");
  EXPECT_EQ(call("GET", "/sandboxes/" + id).status, 200);
}

TEST_F(ApiTest, ConnectLeavesALaterEndExactlyAsItIs) {
  const std::string id = create();
  const auto end = [&] {
    return std::string(parsed(call("GET", "/sandboxes/" + id)).at("endAt").as_string());
  };
  const std::string before = end();
  for (const char* path : {"/connect", "/connect"}) {
    const Got got = call("POST", "/sandboxes/" + id + path, R"({"timeout":10})");
    ASSERT_EQ(got.status, 200) << got.body;
    EXPECT_EQ(parsed(got).at("sandboxID").as_string(), id);
    EXPECT_EQ(end(), before);
  }
  EXPECT_EQ(call("POST", "/v2/sandboxes/" + id + "/connect").status, 200) << "no body";
  EXPECT_GT(end(), before) << "300 s by default";
  EXPECT_EQ(error_of(call("POST", "/sandboxes/" + id + "/connect", R"({"timeout":100000})"), 400),
            "Timeout cannot be greater than 24 hours");
}

TEST_F(ApiTest, TimeoutAndRefreshes) {
  const std::string id = create();
  EXPECT_EQ(call("POST", "/sandboxes/" + id + "/timeout", R"({"timeout":5})").status, 204);
  EXPECT_EQ(call("POST", "/sandboxes/" + id + "/refreshes", R"({"duration":100})").status, 204);
  EXPECT_EQ(call("POST", "/sandboxes/" + id + "/refreshes").status, 204);
  error_of(call("POST", "/sandboxes/" + id + "/refreshes", R"({"duration":9999})"), 400);
  error_of(call("POST", "/sandboxes/" + id + "/timeout"), 400);
  EXPECT_EQ(call("POST", "/sandboxes/" + id + "/timeout", R"({"timeout":0})").status, 204);
  EXPECT_TRUE(Fixture::eventually([&] { return call("GET", "/sandboxes/" + id).status == 404; }));
}

TEST_F(ApiTest, ListsPageFilterAndCount) {
  std::vector<std::string> ids;
  for (int i = 0; i < 3; ++i) {
    ids.push_back(
        create(R"(,"metadata":{"n":")" + std::to_string(i) + R"(","sp ecial":"a&b=c%"})"));
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  std::vector<std::string> paged;
  std::string token;
  for (int guard = 0; guard < 10; ++guard) {
    const Got got =
        call("GET", "/v2/sandboxes?limit=1" + (token.empty() ? "" : "&nextToken=" + token));
    ASSERT_EQ(got.status, 200) << got.body;
    EXPECT_EQ(got.headers.get("X-Total-Running"), "3");
    ASSERT_EQ(parsed(got).as_array().size(), 1u);
    paged.emplace_back(parsed(got).at(0).at("sandboxID").as_string());
    if (!got.headers.has("X-Next-Token")) break;
    token = got.headers.get("X-Next-Token");
  }
  EXPECT_EQ(paged, (std::vector<std::string>{ids[2], ids[1], ids[0]}));

  const std::string pair = percent_encode(percent_encode("sp ecial")) + "=" +
                           percent_encode(percent_encode("a&b=c%")) + "&n=1";
  const Got filtered = call("GET", "/v2/sandboxes?state=running&metadata=" + percent_encode(pair));
  ASSERT_EQ(filtered.status, 200) << filtered.body;
  ASSERT_EQ(parsed(filtered).as_array().size(), 1u);
  EXPECT_EQ(parsed(filtered).at(0).at("sandboxID").as_string(), ids[1]);
  EXPECT_EQ(filtered.headers.get("X-Total-Running"), "1");

  const Got paused = call("GET", "/v2/sandboxes?state=paused");
  EXPECT_EQ(paused.body, "[]");
  EXPECT_FALSE(paused.headers.has("X-Total-Running"));
  EXPECT_EQ(call("GET", "/v2/sandboxes?template=unknown-template").body, "[]");
  EXPECT_EQ(
      parsed(call("GET", std::string("/v2/sandboxes?template=") + engine::testing::kTemplateId))
          .as_array()
          .size(),
      3u);
  EXPECT_EQ(parsed(call("GET", "/v2/sandboxes?template=base")).as_array().size(), 3u);
  EXPECT_EQ(parsed(call("GET", "/sandboxes")).as_array().size(), 3u);
  EXPECT_EQ(parsed(call("GET", "/sandboxes?metadata=n%3D2")).as_array().size(), 1u);
  EXPECT_EQ(error_of(call("GET", "/v2/sandboxes?nextToken=bogus"), 400), "Invalid next token");
  error_of(call("GET", "/v2/sandboxes?limit=1000"), 400);
}

TEST_F(ApiTest, UnknownRoutesMethodsAndFeatures) {
  error_of(call("GET", "/nothing"), 404);
  const Got wrong = call("PATCH", "/sandboxes");
  error_of(wrong, 405);
  EXPECT_EQ(wrong.headers.get("Allow"), "POST, GET");
  EXPECT_THAT(error_of(call("POST", "/v3/templates", "{}"), 501), HasSubstr("templates"));
}

TEST_F(ApiTest, BrowsersMayCall) {
  const Got preflight =
      engine::testing::fetch(f, port, "OPTIONS", "/sandboxes",
                             {{"Origin", "https://x"},
                              {"Access-Control-Request-Method", "POST"},
                              {"Access-Control-Request-Headers", "x-api-key,lang"}});
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.headers.get("Access-Control-Allow-Origin"), "*");
  EXPECT_EQ(preflight.headers.get("Access-Control-Allow-Headers"), "x-api-key,lang");
  const Got got = call("GET", "/v2/sandboxes");
  EXPECT_EQ(got.headers.get("Access-Control-Allow-Origin"), "*");
  EXPECT_THAT(std::string(got.headers.get("Access-Control-Expose-Headers")),
              HasSubstr("X-Next-Token"));
}

TEST_F(ApiTest, Templates) {
  const Got list = call("GET", "/templates");
  ASSERT_EQ(list.status, 200);
  const auto first = parsed(list).at(0).as_object();
  EXPECT_EQ(first.at("templateID").as_string(), engine::testing::kTemplateId);
  EXPECT_EQ(first.at("aliases").at(0).as_string(), "base");
  EXPECT_EQ(first.at("buildStatus").as_string(), "ready");
  const Got alias = call("GET", "/templates/aliases/base");
  ASSERT_EQ(alias.status, 200);
  EXPECT_EQ(parsed(alias).at("templateID").as_string(), engine::testing::kTemplateId);
  error_of(call("GET", "/templates/aliases/nope"), 404);
}

class SmallApiTest : public ApiTest {
 protected:
  SmallApiTest()
      : ApiTest(engine::EngineOptions{.domain = "sandbox.example", .max_sandboxes = 1}) {}
};

TEST_F(SmallApiTest, LimitsAre429AndTheDomainIsTold) {
  const Got first = call("POST", "/sandboxes", R"({"templateID":"base"})");
  ASSERT_EQ(first.status, 201);
  EXPECT_EQ(parsed(first).at("domain").as_string(), "sandbox.example");
  EXPECT_THAT(error_of(call("POST", "/sandboxes", R"({"templateID":"base"})"), 429),
              StartsWith("you have reached the maximum number of concurrent E2B sandboxes (1)"));
}

}  // namespace
}  // namespace atl::api
