#include "mcp/http_service.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "api_server/api_server.h"
#include "api_server/errors.h"
#include "engine/testing/http.h"
#include "mcp/protocol/sse.h"
#include "mcp/tools/paths.h"
#include "net/http_server.h"

namespace atl::mcp {
namespace {

using engine::testing::Got;

// Sessions whose sandboxes cannot be had: what the protocol does needs none.
class NoSandboxes final : public session::Sessions {
 public:
  net::Task<Result<session::Acquired>> acquire(engine::Caller, std::string key,
                                               session::Options options) override {
    keys.push_back(key);
    last = std::move(options);
    ++asked;
    if (hold) {
      auto waiting = hold->wait(std::chrono::minutes(1));
      co_await std::move(waiting);
    }
    co_return make_error(Errc::resource_exhausted, "all sandboxes are taken");
  }
  net::Task<Result<void>> pause(engine::Caller, std::string) override {
    ++paused;
    co_return make_error(Errc::not_found, "no such session");
  }
  net::Task<Result<void>> remove(engine::Caller, std::string) override { co_return Result<void>(); }
  net::Task<Result<session::Session>> info(engine::Caller, std::string) override {
    co_return make_error(Errc::not_found, "no such session");
  }
  net::Task<Result<std::vector<session::Session>>> list(engine::Caller) override {
    co_return std::vector<session::Session>();
  }

  std::vector<std::string> keys;
  session::Options last;
  std::shared_ptr<engine::Completion> hold;  // acquire waits for it
  std::atomic<int> asked = 0;
  std::atomic<int> paused = 0;
};

class McpHttp : public ::testing::Test {
 protected:
  McpHttp()
      : service(sessions, nullptr, {.domain = "atoll.test"}),
        api(*f.engine, *f.store, {}, {&service}),
        server(f.threads.io, {.error_body = api::error_body},
               [this](net::Exchange& exchange) { return api.handle(exchange); }) {
    port = *server.listen_tcp("127.0.0.1:0", "api");
  }
  ~McpHttp() override { f.run(server.shutdown(std::chrono::milliseconds(0))); }

  Got send(std::string method, std::string body, net::Headers extra = {},
           std::string target = "/mcp") {
    if (!extra.has("X-API-Key")) extra.add("X-API-Key", f.key.secret);
    if (!extra.has("Accept")) extra.add("Accept", "application/json, text/event-stream");
    if (!session.empty() && !extra.has("Mcp-Session-Id")) extra.add("Mcp-Session-Id", session);
    return engine::testing::fetch(f, port, std::move(method), std::move(target), std::move(extra),
                                  std::move(body));
  }
  Got post(std::string body, net::Headers extra = {}) {
    return send("POST", std::move(body), std::move(extra));
  }
  void initialize(const std::string& version = "2025-06-18", net::Headers extra = {},
                  std::string target = "/mcp") {
    const Got got =
        send("POST",
             R"({"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":")" +
                 version + R"("}})",
             std::move(extra), std::move(target));
    ASSERT_EQ(got.status, 200) << got.body;
    session = got.headers.get("Mcp-Session-Id");
    EXPECT_EQ(session.size(), 32u);
    agreed = std::string(parse_json(got.body)->at("result").at("protocolVersion").as_string());
  }
  static json::value parsed(const Got& got) {
    std::string text = got.body;
    if (got.headers.get("Content-Type") == "text/event-stream") {
      auto events = SseReader(1 << 20).feed(got.body);
      EXPECT_TRUE(events.ok() && events->size() == 1) << got.body;
      text = events.ok() && !events->empty() ? events->front() : "";
    }
    auto value = parse_json(text);
    EXPECT_TRUE(value.ok()) << got.body;
    return value.ok() ? *value : json::value();
  }
  static std::int64_t code_of(const Got& got) {
    return parsed(got).at("error").at("code").as_int64();
  }

  NoSandboxes sessions;
  engine::testing::Fixture f{engine::EngineOptions{}};
  HttpService service;
  api::ApiServer api;
  net::HttpServer server;
  std::uint16_t port = 0;
  std::string session;
  std::string agreed;
};

constexpr const char* kPing = R"({"jsonrpc":"2.0","id":1,"method":"ping"})";

TEST_F(McpHttp, VersionsAreNegotiated) {
  for (const char* version : {"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"}) {
    session.clear();
    initialize(version);
    EXPECT_EQ(agreed, version);
  }
  session.clear();
  initialize("2099-01-01");
  EXPECT_EQ(agreed, "2025-11-25");
}

TEST_F(McpHttp, WithoutAKeyNothing) {
  for (const char* method : {"POST", "DELETE"}) {
    const Got got = engine::testing::fetch(f, port, method, "/mcp", {}, kPing);
    EXPECT_EQ(got.status, 401);
    EXPECT_EQ(parsed(got).at("code"), 401);
  }
  const Got wrong = engine::testing::fetch(f, port, "POST", "/mcp",
                                           {{"Authorization", "Bearer e2b_0000"}}, kPing);
  EXPECT_EQ(wrong.status, 401);
  EXPECT_EQ(send("GET", "").status, 405);
}

TEST_F(McpHttp, ASessionIsNeededAndEnds) {
  const Got before = post(kPing);
  EXPECT_EQ(before.status, 400);
  EXPECT_EQ(code_of(before), -32600);
  initialize();
  EXPECT_EQ(json::serialize(parsed(post(kPing))), R"({"jsonrpc":"2.0","id":1,"result":{}})");
  EXPECT_EQ(post(R"({"jsonrpc":"2.0","method":"notifications/initialized"})").status, 202);
  const Got strange = post(kPing, {{"Mcp-Session-Id", "0123"}});
  EXPECT_EQ(strange.status, 404);
  EXPECT_EQ(code_of(strange), -32001);
  EXPECT_EQ(send("DELETE", "", {}, "/mcp?end=burn").status, 400);
  EXPECT_EQ(send("DELETE", "").status, 204);
  EXPECT_EQ(send("DELETE", "").status, 404);
  EXPECT_EQ(post(kPing).status, 404);
}

TEST_F(McpHttp, HeadersThatAreRefused) {
  initialize();
  EXPECT_EQ(post(kPing, {{"Origin", "http://evil.example"}}).status, 403);
  EXPECT_EQ(post(kPing, {{"Origin", "http://localhost:6274"}}).status, 200);
  EXPECT_EQ(post(kPing, {{"Accept", "text/html"}}).status, 406);
  EXPECT_EQ(post(kPing, {{"MCP-Protocol-Version", "1.0"}}).status, 400);
  EXPECT_EQ(post(kPing, {{"MCP-Protocol-Version", "2025-06-18"}}).status, 200);
}

TEST_F(McpHttp, MessagesThatAreNone) {
  initialize();
  const Got broken = post("{");
  EXPECT_EQ(broken.status, 400);
  EXPECT_EQ(code_of(broken), -32700);
  EXPECT_EQ(code_of(post("[]")), -32600);
  EXPECT_EQ(code_of(post(R"({"jsonrpc":"2.0","id":1,"method":"resources/list"})")), -32601);
  EXPECT_EQ(code_of(post(R"({"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}})")), -32602);
  EXPECT_EQ(
      code_of(post(R"({"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"rm"}})")),
      -32602);
  EXPECT_EQ(
      code_of(post(
          R"({"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pause","arguments":[]}})")),
      -32602);
  EXPECT_EQ(
      code_of(post(R"({"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"x"}})")),
      -32602);
}

TEST_F(McpHttp, BatchesOfTheOneVersionThatHasThem) {
  const std::string batch = R"([{"jsonrpc":"2.0","id":1,"method":"ping"},7,)"
                            R"({"jsonrpc":"2.0","method":"notifications/initialized"}])";
  initialize("2025-06-18");
  EXPECT_EQ(post(batch).status, 400);
  session.clear();
  initialize("2025-03-26");
  const Got got = post(batch);
  EXPECT_EQ(got.status, 200);
  ASSERT_EQ(parsed(got).as_array().size(), 2u);
  EXPECT_EQ(parsed(got).at(0).at("id"), 1);
  EXPECT_EQ(parsed(got).at(1).at("error").at("code"), -32600);
}

TEST_F(McpHttp, ToolsAreListed) {
  initialize();
  const json::value list = parsed(post(R"({"jsonrpc":"2.0","id":2,"method":"tools/list"})"));
  EXPECT_EQ(list.at("result").at("tools").as_array().size(), 12u);
}

TEST_F(McpHttp, AToolThatFailsSaysSoAndNamesTheSession) {
  initialize("2025-06-18", {{"X-Atoll-Session", "talk"}, {"X-Atoll-Template", "base"}},
             "/mcp?internet=off");
  const std::string call =
      R"({"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"bash_exec","arguments":{"command":"ls"}}})";
  for (const char* accept : {"application/json, text/event-stream", "application/json"}) {
    const Got got = post(call, {{"Accept", accept}});
    EXPECT_EQ(got.status, 200);
    const json::value result = parsed(got).at("result");
    EXPECT_EQ(result.at("isError"), true);
    const json::object& said = result.at("structuredContent").as_object();
    EXPECT_EQ(said.at("error"), "sandbox_unavailable");
    EXPECT_EQ(said.at("session_id"), "talk");
    EXPECT_EQ(said.at("message"), result.at("content").at(0).at("text"));
  }
  EXPECT_EQ(sessions.keys, (std::vector<std::string>{"talk", "talk"}));
  EXPECT_EQ(sessions.last.template_reference, "base");
  EXPECT_EQ(sessions.last.allow_internet, false);
}

TEST_F(McpHttp, ASandboxThatIsBeingMadeIsEndedWithTheSession) {
  initialize();
  sessions.hold = std::make_shared<engine::Completion>();
  auto call = std::async(std::launch::async, [&] {
    return post(
        R"({"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"bash_exec","arguments":{"command":"ls"}}})");
  });
  EXPECT_TRUE(f.eventually([&] { return sessions.asked == 1; }));
  auto ended = std::async(std::launch::async, [&] { return send("DELETE", ""); });
  EXPECT_TRUE(f.eventually([&] { return post(kPing).status == 404; }));
  EXPECT_EQ(sessions.paused, 0);
  sessions.hold->set();
  EXPECT_EQ(ended.get().status, 204);
  EXPECT_EQ(sessions.paused, 1);
  EXPECT_EQ(call.get().status, 200);
}

TEST_F(McpHttp, ToolsWithoutASandbox) {
  initialize();
  const auto error_of = [&](const std::string& name, const std::string& arguments) {
    const Got got = post(R"({"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":")" +
                         name + R"(","arguments":)" + arguments + "}}");
    const json::object said = parsed(got).at("result").at("structuredContent").as_object();
    EXPECT_EQ(std::string(said.at("session_id").as_string()), "mcp-" + session);
    return std::string(said.at("error").as_string());
  };
  EXPECT_EQ(error_of("pause", "{}"), "no_session");
  EXPECT_EQ(error_of("bash_exec", R"({"command":""})"), "invalid_argument");
  EXPECT_EQ(error_of("bash_exec", R"({"command":"  "})"), "invalid_argument");
  EXPECT_EQ(error_of("edit_file", R"({"path":"a","old_text":"","new_text":""})"),
            "invalid_argument");
  EXPECT_EQ(error_of("glob_files", R"({"pattern":"[a"})"), "invalid_pattern");
  EXPECT_EQ(error_of("read_file", R"({"path":"a\u0000b"})"), "invalid_path");
  EXPECT_EQ(error_of("save_to_workspace", R"({"sandbox_path":"a"})"), "workspace_unavailable");
}

TEST(Paths, WhatIsInside) {
  EXPECT_TRUE(is_within_home("/home/user"));
  EXPECT_TRUE(is_within_home("/home/user/a"));
  EXPECT_FALSE(is_within_home("/home/user2"));
  EXPECT_FALSE(is_within_home("/home"));
  EXPECT_FALSE(is_within_home("/"));
  EXPECT_FALSE(is_within_home("/etc/passwd"));
}

TEST(Paths, Names) {
  EXPECT_EQ(*absolute_path("a/b"), "/home/user/a/b");
  EXPECT_EQ(*absolute_path("~/b"), "/home/user/b");
  EXPECT_EQ(*absolute_path("~"), "/home/user");
  EXPECT_EQ(*absolute_path("~x"), "/home/user/~x");
  EXPECT_EQ(*absolute_path("-rf"), "/home/user/-rf");
  EXPECT_EQ(*absolute_path("/etc"), "/etc");
  EXPECT_EQ(file_name("/home/user/a b/"), "a b");
  EXPECT_EQ(file_name("/home/user/x"), "x");
  EXPECT_EQ(shown("a\nb"), "\"a\\nb\"");
}

}  // namespace
}  // namespace atl::mcp
