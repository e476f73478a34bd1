// What the API's tests share: an ApiServer on a port over an engine with fake sandboxes. Only tests
// use it.
#pragma once

#include <gtest/gtest.h>

#include "api_server/api_server.h"
#include "api_server/errors.h"
#include "base/json.h"
#include "engine/testing/http.h"
#include "net/http_server.h"

namespace atl::api {

inline constexpr const char* kAdmin = "0123456789abcdef0123456789abcdef";

class ApiTest : public ::testing::Test {
 protected:
  ApiTest() : ApiTest(engine::EngineOptions{}) {}
  explicit ApiTest(engine::EngineOptions options)
      : f(std::move(options)),
        api(*f.engine, *f.store, ApiOptions{.admin_token = kAdmin}),
        server(f.threads.io, {.error_body = error_body},
               [this](net::Exchange& exchange) { return api.handle(exchange); }) {
    port = *server.listen_tcp("127.0.0.1:0", "api");
  }
  ~ApiTest() override { f.run(server.shutdown(std::chrono::milliseconds(0))); }

  engine::testing::Got call(const std::string& method, const std::string& target,
                            const std::string& body = {}) {
    return engine::testing::fetch(f, port, method, target, {{"X-API-KEY", f.key.secret}}, body);
  }
  // As the administrator, for the default team unless another is named.
  engine::testing::Got admin(const std::string& method, const std::string& target,
                             const std::string& body = {}, net::Headers extra = {}) {
    extra.add("X-Admin-Token", kAdmin);
    if (!extra.has("X-Team-ID")) extra.add("X-Team-ID", f.store->default_team().id);
    return engine::testing::fetch(f, port, method, target, std::move(extra), body);
  }
  static json::value parsed(const engine::testing::Got& got) {
    auto value = parse_json(got.body);
    EXPECT_TRUE(value.ok()) << got.body;
    return value.ok() ? *value : json::value();
  }
  // Every error: JSON, and `code` equal to the status.
  static std::string error_of(const engine::testing::Got& got, int status) {
    EXPECT_EQ(got.status, status) << got.body;
    EXPECT_EQ(std::string(got.headers.get("Content-Type")).find("application/json"), 0u);
    const auto value = parsed(got);
    EXPECT_EQ(value.at("code").to_number<int>(), status);
    return std::string(value.at("message").as_string());
  }
  std::string create(const std::string& extra = "") {
    const engine::testing::Got got =
        call("POST", "/sandboxes", R"({"templateID":"base","timeout":60)" + extra + "}");
    EXPECT_EQ(got.status, 201) << got.body;
    return std::string(parsed(got).at("sandboxID").as_string());
  }

  engine::testing::Fixture f;
  ApiServer api;
  net::HttpServer server;
  std::uint16_t port = 0;
};

}  // namespace atl::api
