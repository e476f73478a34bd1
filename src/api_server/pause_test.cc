// Pause, resume, connect and network over the wire.
#include <gmock/gmock.h>

#include <thread>

#include "api_server/testing.h"

namespace atl::api {
namespace {

using engine::testing::Fixture;
using engine::testing::Got;
using ::testing::HasSubstr;

class PauseTest : public ApiTest {
 protected:
  std::string state(const std::string& id) {
    const Got got = call("GET", "/sandboxes/" + id);
    return got.status == 200 ? std::string(parsed(got).at("state").as_string())
                             : std::to_string(got.status);
  }
  Got pause(const std::string& id, const std::string& body = {}) {
    return call("POST", "/sandboxes/" + id + "/pause", body);
  }
};

TEST_F(PauseTest, PausedOnesAreListedAndComeBack) {
  const std::string id = create(R"(,"secure":true)");
  const std::string token(
      parsed(call("GET", "/sandboxes/" + id)).at("envdAccessToken").as_string());
  EXPECT_EQ(pause(id).status, 204);
  EXPECT_EQ(state(id), "paused");
  EXPECT_EQ(error_of(pause(id), 409),
            "Error pausing sandbox - sandbox '" + id + "' is already paused");
  EXPECT_EQ(parsed(call("GET", "/v2/sandboxes?state=paused")).as_array().size(), 1u);
  EXPECT_EQ(call("GET", "/v2/sandboxes?state=running").body, "[]");
  EXPECT_EQ(call("GET", "/sandboxes").body, "[]") << "v1 lists running ones only";
  const Got back = call("POST", "/sandboxes/" + id + "/connect", R"({"timeout":60})");
  ASSERT_EQ(back.status, 201) << back.body;
  EXPECT_EQ(parsed(back).at("sandboxID").as_string(), id);
  EXPECT_EQ(parsed(back).at("envdAccessToken").as_string(), token);
  EXPECT_EQ(state(id), "running");
  EXPECT_EQ(call("POST", "/v2/sandboxes/" + id + "/connect").status, 200);
}

TEST_F(PauseTest, BothTiersAndAColdBootOnRequest) {
  const std::string id = create();
  EXPECT_EQ(pause(id, R"({"memory":false})").status, 204);
  EXPECT_EQ(call("POST", "/sandboxes/" + id + "/connect", R"({"timeout":60})").status, 201);
  EXPECT_EQ(pause(id, R"({"memory":true})").status, 204);
  const Got cold = call("POST", "/v2/sandboxes/" + id + "/connect", R"({"memory":false})");
  ASSERT_EQ(cold.status, 201) << cold.body;
  EXPECT_EQ(state(id), "running");
}

TEST_F(PauseTest, TheOldResume) {
  const std::string id = create();
  EXPECT_EQ(error_of(call("POST", "/sandboxes/" + id + "/resume"), 409),
            "Sandbox " + id + " is already running");
  EXPECT_EQ(pause(id).status, 204);
  const Got back =
      call("POST", "/sandboxes/" + id + "/resume", R"({"timeout":60,"autoPause":true})");
  ASSERT_EQ(back.status, 201) << back.body;
  EXPECT_EQ(parsed(call("GET", "/sandboxes/" + id)).at("lifecycle").at("onTimeout").as_string(),
            "pause");
}

TEST_F(PauseTest, WhatAPausedOneRefuses) {
  const std::string id = create();
  EXPECT_EQ(pause(id).status, 204);
  error_of(call("POST", "/sandboxes/" + id + "/timeout", R"({"timeout":5})"), 404);
  error_of(call("PUT", "/sandboxes/" + id + "/network", "{}"), 404);
  EXPECT_EQ(call("DELETE", "/sandboxes/" + id).status, 204);
  error_of(pause(id), 404);
  error_of(call("POST", "/sandboxes/" + id + "/connect", R"({"timeout":5})"), 404);
}

TEST_F(PauseTest, TwoPausesAndTwoConnectsAtOnceJoin) {
  const std::string id = create();
  const auto both = [&](const std::function<int()>& ask) {
    int first = 0;
    std::thread other([&] { first = ask(); });
    const int second = ask();
    other.join();
    return std::pair(first, second);
  };
  const auto paused = both([&] { return pause(id).status; });
  EXPECT_TRUE(paused == std::pair(204, 204) || paused == std::pair(204, 409) ||
              paused == std::pair(409, 204));
  const auto back = both([&] { return call("POST", "/v2/sandboxes/" + id + "/connect").status; });
  for (const int status : {back.first, back.second})
    EXPECT_TRUE(status == 201 || status == 200) << status;
}

TEST_F(PauseTest, LifecycleIsEchoedAndActedOn) {
  const std::string id = create(R"(,"autoPause":true,"autoResume":{"enabled":true})");
  const auto info = parsed(call("GET", "/sandboxes/" + id));
  EXPECT_EQ(info.at("lifecycle").at("onTimeout").as_string(), "pause");
  EXPECT_TRUE(info.at("lifecycle").at("autoResume").as_bool());
  EXPECT_EQ(call("POST", "/sandboxes/" + id + "/timeout", R"({"timeout":0})").status, 204);
  EXPECT_TRUE(Fixture::eventually([&] { return state(id) == "paused"; }));
}

TEST_F(PauseTest, NetworkIsReplacedAndEchoed) {
  const std::string id = create(
      R"(,"secure":true,"network":{"denyOut":["8.8.8.8"],"maskRequestHost":"m.example","allowPublicTraffic":false,)"
      R"("egressProxy":{"address":"93.184.216.34:1080","username":"u","password":"s3cret"}})");
  const auto network = [&] {
    return parsed(call("GET", "/sandboxes/" + id)).at("network").as_object();
  };
  EXPECT_EQ(network().at("denyOut").at(0).as_string(), "8.8.8.8");
  EXPECT_FALSE(network().at("egressProxy").as_object().contains("password"));
  const Got put = call("PUT", "/sandboxes/" + id + "/network", R"({"denyOut":["1.1.1.1"]})");
  EXPECT_EQ(put.status, 204) << put.body;
  EXPECT_EQ(network().at("denyOut").at(0).as_string(), "1.1.1.1");
  EXPECT_FALSE(network().contains("egressProxy")) << "what is left out is cleared";
  EXPECT_EQ(network().at("maskRequestHost").as_string(), "m.example") << "ingress is untouched";
  EXPECT_FALSE(network().at("allowPublicTraffic").as_bool());
  EXPECT_EQ(call("PUT", "/sandboxes/" + id + "/network", "{}").status, 204);
  EXPECT_FALSE(network().contains("denyOut"));
  EXPECT_EQ(error_of(call("PUT", "/sandboxes/" + id + "/network", R"({"denyOut":["x"]})"), 400),
            "invalid denied CIDR x");
  EXPECT_EQ(
      call("PUT", "/sandboxes/" + id + "/network", R"({"allow_internet_access":false})").status,
      204);
  EXPECT_FALSE(parsed(call("GET", "/sandboxes/" + id)).at("allowInternetAccess").as_bool());
}

class CrowdedTest : public ApiTest {
 protected:
  CrowdedTest()
      : ApiTest(engine::EngineOptions{.max_creates_in_flight = 1,
                                      .max_creates_waiting = 1,
                                      .queue_deadline = std::chrono::milliseconds(5'000)}) {}
};

TEST_F(CrowdedTest, ARushIsToldToComeBack) {
  f.runtime.create_takes = std::chrono::milliseconds(300);
  std::vector<Got> answers(6);
  std::vector<std::thread> clients;
  for (Got& answer : answers) {
    clients.emplace_back([&] { answer = call("POST", "/sandboxes", R"({"templateID":"base"})"); });
  }
  for (auto& client : clients) client.join();
  int made = 0;
  int refused = 0;
  for (const Got& got : answers) {
    if (got.status == 201) {
      ++made;
      continue;
    }
    error_of(got, 429);
    EXPECT_EQ(got.headers.get("Retry-After"), "1");
    EXPECT_EQ(got.headers.get("RateLimit-Remaining"), "0");
    ++refused;
  }
  EXPECT_GE(made, 2);
  EXPECT_GE(refused, 1);
}

}  // namespace
}  // namespace atl::api
