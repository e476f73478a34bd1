// Snapshots, forks and rollback over the wire.
#include <gmock/gmock.h>

#include "api_server/testing.h"
#include "base/encoding.h"

namespace atl::api {
namespace {

using engine::testing::fetch;
using engine::testing::Fixture;
using engine::testing::Got;
using ::testing::HasSubstr;

class SnapshotsTest : public ApiTest {
 protected:
  SnapshotsTest() { f.runtime.durable = true; }

  json::value snapshot(const std::string& id, const std::string& body = "{}") {
    const Got got = call("POST", "/sandboxes/" + id + "/snapshots", body);
    EXPECT_EQ(got.status, 201) << got.body;
    return parsed(got);
  }
  std::string snapshot_id(const std::string& id, const std::string& body = "{}") {
    return std::string(snapshot(id, body).at("snapshotID").as_string());
  }
  Got create_from(const std::string& reference, const std::string& extra = {}) {
    return call("POST", "/sandboxes",
                R"({"templateID":")" + reference + R"(","timeout":60)" + extra + "}");
  }
  std::string made_from(const std::string& reference) {
    const Got got = create_from(reference);
    EXPECT_EQ(got.status, 201) << got.body;
    return std::string(parsed(got).at("sandboxID").as_string());
  }
  Got remove(const std::string& reference) {
    return call("DELETE", "/templates/" + percent_encode(reference));
  }
  std::vector<std::string> listed(const std::string& query = {}) {
    const Got got = call("GET", "/snapshots" + query);
    EXPECT_EQ(got.status, 200) << got.body;
    std::vector<std::string> ids;
    const json::value all = parsed(got);
    for (const auto& one : all.as_array()) ids.emplace_back(one.at("snapshotID").as_string());
    return ids;
  }
};

TEST_F(SnapshotsTest, LifeOfOne) {
  const std::string source = create();
  const std::string end(parsed(call("GET", "/sandboxes/" + source)).at("endAt").as_string());
  const auto made = snapshot(source);
  const std::string id(made.at("snapshotID").as_string());
  EXPECT_THAT(id, ::testing::EndsWith(":default"));
  EXPECT_TRUE(made.at("names").as_array().empty());
  EXPECT_EQ(made.at("sandboxID").as_string(), source);
  EXPECT_GE(made.at("pausedMs").to_number<double>(), 0);
  const auto info = parsed(call("GET", "/sandboxes/" + source));
  EXPECT_EQ(info.at("state").as_string(), "running");
  EXPECT_EQ(info.at("endAt").as_string(), end) << "its end stays";
  EXPECT_EQ(info.at("memoryTier").as_string(), "running");
  EXPECT_EQ(listed(), std::vector{id});

  const Got got = create_from(id, R"(,"secure":true,"metadata":{"a":"b"})");
  ASSERT_EQ(got.status, 201) << got.body;
  const auto copy = parsed(got);
  EXPECT_NE(copy.at("sandboxID").as_string(), source);
  EXPECT_EQ(copy.at("templateID").as_string(), made.at("templateID").as_string());
  const std::string copy_id(copy.at("sandboxID").as_string());
  EXPECT_EQ(parsed(call("GET", "/sandboxes/" + copy_id)).at("metadata").at("a").as_string(), "b");

  EXPECT_EQ(error_of(remove(id), 400),
            "cannot delete template '" + id + "' because there are running sandboxes using it");
  EXPECT_EQ(call("POST", "/sandboxes/" + copy_id + "/pause").status, 204);
  EXPECT_THAT(error_of(remove(id), 400), HasSubstr("paused sandboxes"));
  EXPECT_EQ(call("DELETE", "/sandboxes/" + copy_id).status, 204);
  EXPECT_EQ(remove(id).status, 204) << "the source does not keep it";
  EXPECT_EQ(error_of(remove(id), 404), "template '" + id + "' not found");
  EXPECT_TRUE(listed().empty());
  error_of(create_from(id), 404);
  EXPECT_EQ(f.runtime.snapshots(), 0u);
}

TEST_F(SnapshotsTest, Names) {
  const std::string source = create();
  const auto first = snapshot(source, R"({"name":"mine"})");
  const std::string id(first.at("snapshotID").as_string());
  EXPECT_EQ(id, "mine:default");
  EXPECT_EQ(first.at("names").at(0).as_string(), "default/mine:default");
  const auto again = snapshot(source, R"({"name":"default/mine"})");
  EXPECT_EQ(again.at("snapshotID").as_string(), id) << "the same name is the same id";
  EXPECT_EQ(again.at("templateID").as_string(), first.at("templateID").as_string());
  EXPECT_EQ(snapshot_id(source, R"({"name":"mine:v2"})"), "mine:v2");
  EXPECT_TRUE(Fixture::eventually([&] { return f.runtime.snapshots() == 2; }))
      << "the one that was replaced is gone";
  for (const char* reference : {"mine", "mine:default", "mine:v2", "default/mine"})
    made_from(reference);
  error_of(create_from("mine:v3"), 404);
  error_of(create_from("other/mine"), 404);
  EXPECT_EQ(parsed(call("GET", "/templates/aliases/mine")).at("templateID").as_string(),
            first.at("templateID").as_string());
  EXPECT_EQ(parsed(call("GET", "/v2/sandboxes?template=mine")).as_array().size(), 4u);
  EXPECT_EQ(parsed(call("GET", "/templates")).as_array().size(), 1u) << "templates only";
  for (const char* bad : {R"({"name":"base"})", R"({"name":"a b"})", R"({"name":"other/mine"})",
                          R"({"name":"mine:"})", R"({"name":""})"})
    error_of(call("POST", "/sandboxes/" + source + "/snapshots", bad), 400);
}

TEST_F(SnapshotsTest, ListIsFilteredAndPaged) {
  const std::string one = create();
  const std::string two = create();
  const std::string a = snapshot_id(one);
  const std::string b = snapshot_id(two, R"({"name":"mine"})");
  const std::string c = snapshot_id(one, R"({"name":"mine:v2"})");
  EXPECT_EQ(listed(), (std::vector{c, b, a})) << "newest first";
  EXPECT_EQ(listed("?sandboxID=" + one), (std::vector{c, a}));
  EXPECT_EQ(listed("?name=mine"), (std::vector{c, b}));
  EXPECT_EQ(listed("?name=mine:v2"), std::vector{c});
  EXPECT_EQ(listed("?name=mine:default"), std::vector{b});
  EXPECT_TRUE(listed("?name=nothing").empty());
  EXPECT_TRUE(listed("?sandboxID=inone").empty());
  Got page = call("GET", "/snapshots?limit=2");
  EXPECT_EQ(parsed(page).as_array().size(), 2u);
  const std::string token(page.headers.get("X-Next-Token"));
  ASSERT_FALSE(token.empty());
  page = call("GET", "/snapshots?limit=2&nextToken=" + token);
  EXPECT_EQ(parsed(page).at(0).at("snapshotID").as_string(), a);
  EXPECT_FALSE(page.headers.has("X-Next-Token"));
  for (const char* bad :
       {"?limit=0", "?limit=101", "?nextToken=x", "?sandboxID=BAD", "?name=a%20b"})
    error_of(call("GET", "/snapshots" + std::string(bad)), 400);
}

TEST_F(SnapshotsTest, OtherTeamsSeeNothing) {
  const std::string source = create();
  const std::string id = snapshot_id(source, R"({"name":"mine"})");
  const auto team = f.store->create_team("other");
  const auto key = store::create_key(*f.store, team->id, "k");
  const auto ask = [&](const char* method, const std::string& target,
                       const std::string& body = {}) {
    return fetch(f, port, method, target, {{"X-API-Key", key->secret}}, body);
  };
  EXPECT_EQ(ask("GET", "/snapshots").body, "[]");
  error_of(ask("DELETE", "/templates/" + percent_encode(id)), 404);
  error_of(ask("POST", "/sandboxes", R"({"templateID":"mine"})"), 404);
  for (const char* verb : {"fork", "snapshots"})
    error_of(ask("POST", "/sandboxes/" + source + "/" + verb, "{}"), 404);
  error_of(ask("POST", "/sandboxes/" + source + "/rollback", R"({"snapshotID":"mine"})"), 404);
}

TEST_F(SnapshotsTest, TemplatesOfTheServerStay) {
  EXPECT_THAT(error_of(remove("base"), 403), HasSubstr("belongs to the server"));
  error_of(remove("nothing"), 404);
  error_of(remove("a b"), 400);
}

TEST_F(SnapshotsTest, WhatCannotBeHadIsToldWhy) {
  const std::string source = create();
  EXPECT_EQ(call("POST", "/sandboxes/" + source + "/pause").status, 204);
  error_of(call("POST", "/sandboxes/" + source + "/snapshots", "{}"), 404);
  EXPECT_EQ(error_of(call("POST", "/sandboxes/" + source + "/fork"), 409),
            "Sandbox '" + source + "' is paused and cannot be forked; resume it first");
  error_of(call("POST", "/sandboxes/" + source + "/rollback", R"({"snapshotID":"x"})"), 404);
  EXPECT_EQ(call("POST", "/v2/sandboxes/" + source + "/connect").status, 201);
  f.runtime.failing["snapshot"] = 2;
  f.runtime.failing_with = Errc::failed_precondition;
  EXPECT_THAT(error_of(call("POST", "/sandboxes/" + source + "/snapshots", "{}"), 409),
              HasSubstr("snapshot fails"));
  error_of(call("POST", "/sandboxes/" + source + "/fork", "{}"), 409);
  f.runtime.failing["snapshot"] = 1;
  f.runtime.failing_with = Errc::resource_exhausted;
  error_of(call("POST", "/sandboxes/" + source + "/snapshots", "{}"), 507);
  EXPECT_EQ(parsed(call("GET", "/sandboxes/" + source)).at("state").as_string(), "running");
  EXPECT_TRUE(listed().empty());
  const auto disk = snapshot(source, R"({"memory":false})");
  EXPECT_FALSE(disk.at("memory").as_bool());
  made_from(std::string(disk.at("snapshotID").as_string()));
  EXPECT_EQ(f.runtime.specs().back().memory, runtime::Memory::none);
  EXPECT_FALSE(f.runtime.specs().back().snapshot.empty());
}

TEST_F(SnapshotsTest, Forks) {
  const std::string source = create(R"(,"secure":true,"metadata":{"a":"b"})");
  const Got got = call("POST", "/sandboxes/" + source + "/fork", R"({"timeout":300,"count":3})");
  ASSERT_EQ(got.status, 201) << got.body;
  const auto forks = parsed(got).as_array();
  ASSERT_EQ(forks.size(), 3u);
  std::set<std::string> ids{source};
  std::set<std::string> tokens;
  for (const auto& fork : forks) {
    ASSERT_TRUE(fork.as_object().contains("sandbox")) << got.body;
    EXPECT_FALSE(fork.as_object().contains("error"));
    const auto& sandbox = fork.at("sandbox");
    ids.emplace(sandbox.at("sandboxID").as_string());
    tokens.emplace(sandbox.at("envdAccessToken").as_string());
    EXPECT_EQ(sandbox.at("templateID").as_string(), engine::testing::kTemplateId);
    const auto info =
        parsed(call("GET", "/sandboxes/" + std::string(sandbox.at("sandboxID").as_string())));
    EXPECT_EQ(info.at("metadata").at("a").as_string(), "b");
  }
  EXPECT_EQ(ids.size(), 4u);
  EXPECT_EQ(tokens.size(), 3u);
  EXPECT_TRUE(listed().empty()) << "what forks are made from is nobody's";
  for (const char* bad : {R"({"count":0})", R"({"count":101})", R"({"timeout":0})",
                          R"({"timeout":-1})", R"({"count":"2"})"})
    error_of(call("POST", "/sandboxes/" + source + "/fork", bad), 400);
  EXPECT_EQ(parsed(call("POST", "/sandboxes/" + source + "/fork")).as_array().size(), 1u);
}

TEST_F(SnapshotsTest, AForkThatFailsIsOneOfMany) {
  const std::string source = create();
  f.runtime.failing_creates = 1;
  const Got got = call("POST", "/sandboxes/" + source + "/fork", R"({"count":3})");
  ASSERT_EQ(got.status, 201) << got.body;
  int failed = 0;
  const json::value answers = parsed(got);
  for (const auto& fork : answers.as_array()) {
    const auto* error = fork.as_object().if_contains("error");
    EXPECT_NE(error != nullptr, fork.as_object().contains("sandbox"));
    if (error == nullptr) continue;
    ++failed;
    EXPECT_EQ(error->at("code").to_number<int>(), 500);
    EXPECT_FALSE(error->at("message").as_string().empty());
  }
  EXPECT_EQ(failed, 1);
}

TEST_F(SnapshotsTest, Rollback) {
  const std::string source = create(R"(,"secure":true)");
  const auto before = parsed(call("GET", "/sandboxes/" + source));
  const std::string id = snapshot_id(source);
  const Got got =
      call("POST", "/sandboxes/" + source + "/rollback", R"({"snapshotID":")" + id + R"("})");
  ASSERT_EQ(got.status, 200) << got.body;
  EXPECT_EQ(parsed(got).at("sandboxID").as_string(), source);
  const auto after = parsed(call("GET", "/sandboxes/" + source));
  for (const char* field : {"envdAccessToken", "endAt", "startedAt", "state"})
    EXPECT_EQ(after.at(field), before.at(field)) << field;
  error_of(remove(id), 400);
  error_of(call("POST", "/sandboxes/" + source + "/rollback", R"({"snapshotID":"nothing"})"), 404);
  error_of(call("POST", "/sandboxes/" + source + "/rollback", "{}"), 400);
}

}  // namespace
}  // namespace atl::api
