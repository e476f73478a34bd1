// Every route with every kind of request that must be refused.
#include <gmock/gmock.h>

#include "api_server/routes.h"
#include "api_server/testing.h"

namespace atl::api {
namespace {

using engine::testing::fetch;
using engine::testing::Got;

constexpr const char* kUuid = "00000000-0000-4000-8000-000000000000";

std::string fill(std::string_view pattern, const std::string& with) {
  std::string out;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern.substr(i, 2) == "{}") {
      out += with;
      ++i;
    } else {
      out += pattern[i];
    }
  }
  return out;
}

bool is_sandbox_route(const Route& route) {
  return (route.pattern.starts_with("/sandboxes/{}") ||
          route.pattern.starts_with("/v2/sandboxes/{}")) &&
         route.action != Action::unsupported;
}

// A body that would be right, one of the wrong type, for the routes that read one.
struct Bodies {
  std::string good;
  std::string wrong_type;
};
std::optional<Bodies> bodies_of(Action action) {
  switch (action) {
    case Action::create_v1:
    case Action::create_v2:
      return Bodies{R"({"templateID":"base"})", R"({"templateID":7})"};
    case Action::connect:
    case Action::resume:
    case Action::set_timeout:
      return Bodies{R"({"timeout":5})", R"({"timeout":"5"})"};
    case Action::refresh:
      return Bodies{R"({"duration":5})", R"({"duration":"5"})"};
    case Action::pause:
      return Bodies{R"({"memory":true})", R"({"memory":"yes"})"};
    case Action::snapshot:
      return Bodies{"{}", R"({"name":7})"};
    case Action::fork:
      return Bodies{R"({"count":1})", R"({"count":"1"})"};
    case Action::rollback:
      return Bodies{R"({"snapshotID":"s"})", R"({"snapshotID":7})"};
    case Action::update_network:
      return Bodies{"{}", R"({"denyOut":"all"})"};
    case Action::create_key:
    case Action::rename_key:
    case Action::admin_create_key:
      return Bodies{R"({"name":"n"})", R"({"name":1})"};
    default:
      return std::nullopt;
  }
}

class TableTest : public ApiTest {
 protected:
  net::Headers credentials(const Route& route) {
    if (route.auth == Auth::admin || route.auth == Auth::team_admin)
      return {{"X-Admin-Token", kAdmin}, {"X-Team-ID", f.store->default_team().id}};
    return {{"X-API-Key", f.key.secret}};
  }
  Got ask(const Route& route, const std::string& param, net::Headers headers,
          const std::string& body = {}) {
    return fetch(f, port, std::string(route.method), fill(route.pattern, param), std::move(headers),
                 body);
  }
  static std::string name(const Route& route) {
    return std::string(route.method) + " " + std::string(route.pattern);
  }
  std::string good_body(const Route& route) {
    const auto bodies = bodies_of(route.action);
    return bodies ? bodies->good : std::string();
  }
};

TEST_F(TableTest, WithoutCredentials) {
  for (const Route& route : all_routes()) {
    if (route.auth == Auth::none) continue;
    SCOPED_TRACE(name(route));
    // Nothing of the request is looked at before the credentials are.
    EXPECT_EQ(error_of(ask(route, "BAD!", {}, "{"), 401), "authorization header is missing");
  }
}

TEST_F(TableTest, WithWrongCredentials) {
  const std::string unknown = "e2b_" + std::string(40, '0');
  for (const Route& route : all_routes()) {
    if (route.auth == Auth::none) continue;
    SCOPED_TRACE(name(route));
    EXPECT_EQ(error_of(ask(route, "BAD!", {{"X-API-Key", "sk_1"}}, "{"), 401),
              "authorization header is malformed");
    EXPECT_THAT(error_of(ask(route, "BAD!", {{"X-API-Key", unknown}}, "{"), 401),
                ::testing::StartsWith("Invalid API key"));
    EXPECT_THAT(error_of(ask(route, "BAD!", {{"Authorization", "Bearer " + unknown}}, "{"), 401),
                ::testing::StartsWith("Invalid API key"));
    EXPECT_EQ(error_of(ask(route, "BAD!", {{"X-Admin-Token", "guess"}}, "{"), 401),
              "Invalid Access token.");
  }
}

TEST_F(TableTest, KeysAreNoAdministrators) {
  for (const Route& route : all_routes()) {
    if (route.auth != Auth::admin && route.auth != Auth::team_admin) continue;
    SCOPED_TRACE(name(route));
    EXPECT_THAT(error_of(ask(route, kUuid, {{"X-API-Key", f.key.secret}}), 403),
                ::testing::HasSubstr("X-Admin-Token"));
  }
}

TEST_F(TableTest, TheAdministratorNamesATeam) {
  for (const Route& route : all_routes()) {
    if (route.auth != Auth::team && route.auth != Auth::team_admin) continue;
    SCOPED_TRACE(name(route));
    EXPECT_THAT(error_of(ask(route, kUuid, {{"X-Admin-Token", kAdmin}}), 401),
                ::testing::HasSubstr("X-Team-ID"));
    error_of(ask(route, kUuid, {{"X-Admin-Token", kAdmin}, {"X-Team-ID", "nobody"}}), 404);
  }
}

TEST_F(TableTest, BadIds) {
  for (const Route& route : all_routes()) {
    if (!is_sandbox_route(route)) continue;
    SCOPED_TRACE(name(route));
    for (const char* bad : {"BAD", "a-b-c", "a_b", "%20"}) {
      EXPECT_EQ(error_of(ask(route, bad, credentials(route), good_body(route)), 400),
                "Invalid sandbox ID")
          << bad;
    }
  }
}

TEST_F(TableTest, UnknownIds) {
  for (const Route& route : all_routes()) {
    SCOPED_TRACE(name(route));
    if (is_sandbox_route(route)) {
      EXPECT_EQ(
          error_of(ask(route, "nonexistingsandbox", credentials(route), good_body(route)), 404),
          "Sandbox \"nonexistingsandbox\" doesn't exist or you don't have access to it");
    } else if (route.action != Action::unsupported && route.action != Action::gone &&
               route.pattern.find("{}") != std::string_view::npos) {
      error_of(ask(route, kUuid, credentials(route), good_body(route)), 404);
    }
  }
}

TEST_F(TableTest, BadBodies) {
  const std::string id = create();
  for (const Route& route : all_routes()) {
    const auto bodies = bodies_of(route.action);
    if (!bodies) continue;
    SCOPED_TRACE(name(route));
    const std::string param = is_sandbox_route(route) ? id
                              : route.action == Action::admin_create_key
                                  ? f.store->default_team().id
                                  : kUuid;
    for (const std::string& body :
         {std::string("{"), std::string("[]"), std::string("\"x\""), std::string("\xff"),
          std::string(200'000, '['), bodies->wrong_type}) {
      const std::string message = error_of(ask(route, param, credentials(route), body), 400);
      EXPECT_THAT(message, ::testing::StartsWith("validation error: ")) << body.substr(0, 40);
    }
    const Got large = ask(route, param, credentials(route), std::string((1 << 20) + 1, ' '));
    EXPECT_EQ(large.status, 413) << large.body;
  }
}

TEST_F(TableTest, WrongMethods) {
  for (const Route& route : all_routes()) {
    SCOPED_TRACE(name(route));
    const Got got = fetch(f, port, "PROPFIND", fill(route.pattern, kUuid), credentials(route));
    error_of(got, 405);
    EXPECT_THAT(std::string(got.headers.get("Allow")),
                ::testing::HasSubstr(std::string(route.method)));
  }
}

TEST_F(TableTest, WhatIsNotServedSaysSo) {
  for (const Route& route : all_routes()) {
    SCOPED_TRACE(name(route));
    if (route.action == Action::unsupported) {
      EXPECT_THAT(error_of(ask(route, kUuid, credentials(route), "{}"), 501),
                  ::testing::HasSubstr("not supported by this server"));
    } else if (route.action == Action::gone) {
      error_of(ask(route, kUuid, credentials(route), "{}"), 410);
    }
  }
}

}  // namespace
}  // namespace atl::api
