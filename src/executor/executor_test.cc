#include "executor/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "base/json.h"
#include "engine/testing/http.h"

namespace atl::executor {
namespace {

using engine::testing::fetch;
using engine::testing::Fixture;
using engine::testing::Got;

constexpr const char* kGood = R"({"code_b64":"ZGVmIG1haW4oKTogcmV0dXJuIDE="})";

// An executor on a port, over an engine with fake sandboxes that nobody gets into.
class ExecutorTest : public ::testing::Test {
 protected:
  void serve(Settings settings, engine::EngineOptions options = {}) {
    f.emplace(std::move(options));
    if (settings.template_name == Settings().template_name) settings.template_name = "base";
    executor = std::make_unique<Executor>(
        f->threads.io, *f->engine, f->caller(),
        [](const engine::SandboxInfo& sandbox) {
          client::Inside inside;
          inside.id = sandbox.record.id.str();
          inside.connect = [](std::uint16_t) -> net::Task<Result<net::HttpClient>> {
            co_return make_error(Errc::unavailable, "nobody is in");
          };
          inside.headers = [](std::uint16_t) { return net::Headers(); };
          return inside;
        },
        std::move(settings));
    server = std::make_unique<net::HttpServer>(
        f->threads.io, net::ServerOptions{},
        [this](net::Exchange& exchange) { return executor->handle(exchange); });
    port = *server->listen_tcp("127.0.0.1:0", "executor");
  }
  void TearDown() override {
    using std::chrono::milliseconds;
    f->run(executor->shutdown(milliseconds(5'000)));
    f->run(f->engine->shutdown(milliseconds(2'000), engine::AtShutdown::kill_sandboxes));
    f->run(server->shutdown(milliseconds(0)));
  }
  Got post(std::string body, net::Headers headers = {}) {
    return fetch(*f, port, "POST", "/run", std::move(headers), std::move(body));
  }
  int status(const char* method, const char* target) {
    return fetch(*f, port, method, target).status;
  }
  bool creating() const { return f->engine->statistics().creating == 1; }
  json::object run() {
    const Got got = post(kGood);
    EXPECT_EQ(got.status, 200) << got.body;
    auto parsed = parse_json(got.body);
    EXPECT_TRUE(parsed.ok());
    return parsed.ok() ? parsed->as_object() : json::object();
  }

  std::optional<Fixture> f;
  std::unique_ptr<Executor> executor;
  std::unique_ptr<net::HttpServer> server;
  std::uint16_t port = 0;
};

TEST_F(ExecutorTest, Routes) {
  serve({});
  EXPECT_EQ(fetch(*f, port, "GET", "/healthz").body, R"({"status":"ok"})");
  EXPECT_EQ(fetch(*f, port, "GET", "/").body, R"({"status":"ok"})");
  EXPECT_EQ(status("GET", "/run"), 405);
  EXPECT_EQ(status("POST", "/healthz"), 405);
  EXPECT_EQ(status("GET", "/sandboxes"), 404);
  EXPECT_EQ(status("GET", "/run/"), 404);
  const Got refused = post(R"({"code_b64":"!"})");
  EXPECT_EQ(refused.status, 422);
  EXPECT_EQ(refused.headers.get("Content-Type"), "application/json");
}

TEST_F(ExecutorTest, IsHealthyOnlyIfItCouldServe) {
  serve({.template_name = "nothing-of-that-name"});
  const Got got = fetch(*f, port, "GET", "/healthz");
  EXPECT_EQ(got.status, 503);
  EXPECT_THAT(got.body, ::testing::HasSubstr("nothing-of-that-name"));
}

TEST_F(ExecutorTest, AsksForItsKey) {
  serve({.key = "k3y"});
  EXPECT_EQ(post(kGood).status, 401);
  for (const char* wrong : {"", "k3", "k3yy", "K3Y", "k3x"}) {
    EXPECT_EQ(post(kGood, {{"X-API-Key", wrong}}).status, 401) << wrong;
    EXPECT_EQ(post(kGood, {{"Authorization", std::string("Bearer ") + wrong}}).status, 401);
  }
  EXPECT_EQ(post(kGood, {{"Authorization", "k3y"}}).status, 401);
  EXPECT_EQ(post(kGood, {{"X-API-Key", "k3y"}}).status, 200);
  EXPECT_EQ(post(kGood, {{"Authorization", "Bearer k3y"}}).status, 200);
  EXPECT_EQ(post(kGood, {{"Authorization", "bearer k3y"}}).status, 200);
  EXPECT_EQ(status("GET", "/healthz"), 200);
}

TEST_F(ExecutorTest, PagesOfOtherSitesAreRefusedWhereNobodyIsAskedForAKey) {
  serve({});
  for (const char* elsewhere : {"http://evil.example", "http://localhost.evil.example", "null"})
    EXPECT_EQ(post(kGood, {{"Origin", elsewhere}}).status, 403) << elsewhere;
  EXPECT_TRUE(f->runtime.specs().empty());
  EXPECT_EQ(post(kGood, {{"Origin", "http://localhost:8080"}}).status, 200);
  EXPECT_EQ(post(kGood).status, 200);
}

TEST_F(ExecutorTest, AKeySaysEnoughOfAPage) {
  serve({.key = "k3y"});
  EXPECT_EQ(post(kGood, {{"Origin", "http://tools.example"}, {"X-API-Key", "k3y"}}).status, 200);
}

TEST_F(ExecutorTest, ARunHasItsLimitsAndLeavesNothing) {
  serve({.memory_bytes = 100 << 20});
  const json::object answer = run();
  EXPECT_EQ(answer.at("status"), "program_runner_error");
  EXPECT_EQ(answer.at("exit_code"), -3);
  EXPECT_EQ(answer.at("detail"), "internal_error");
  ASSERT_EQ(f->runtime.specs().size(), 1u);
  EXPECT_EQ(f->runtime.specs()[0].limits.memory_bytes, 100ull << 20);
  EXPECT_TRUE(f->eventually([&] { return f->runtime.alive().empty(); }));
}

TEST_F(ExecutorTest, ASandboxThatCannotBeMade) {
  serve({});
  f->runtime.failing["create"] = 1;
  EXPECT_EQ(run().at("exit_code"), -3);
  EXPECT_TRUE(f->eventually([&] { return f->runtime.alive().empty(); }));
}

TEST_F(ExecutorTest, AServerThatIsFullIsBusy) {
  engine::EngineOptions options;
  options.max_sandboxes = 1;
  serve({}, std::move(options));
  auto other = f->run(f->engine->create(f->command()));
  ASSERT_TRUE(other.ok());
  const json::object answer = run();
  EXPECT_EQ(answer.at("exit_code"), -10);
  EXPECT_EQ(answer.at("stderr"), "Container pool is busy");
  EXPECT_EQ(answer.at("detail"), "no_available_container");
}

TEST_F(ExecutorTest, ALineThatIsTooLongIsBusyAtOnce) {
  serve({.pool = 1, .line = 0});
  f->runtime.hold("create");
  auto first = std::async(std::launch::async, [&] { return post(kGood); });
  EXPECT_TRUE(f->eventually([&] { return creating(); }));
  EXPECT_EQ(run().at("exit_code"), -10);
  f->runtime.release();
  EXPECT_EQ(first.get().status, 200);
}

TEST_F(ExecutorTest, LargeBodiesWaitUnread) {
  serve({.pool = 1, .line = 1, .wait = std::chrono::milliseconds(100)});
  f->runtime.hold("create");
  const auto large = [](std::string language) {
    return R"({"code_b64":"eA==","language":")" + language + R"(","arguments":{"x":")" +
           std::string(2 << 20, 'x') + R"("}})";
  };
  auto python = std::async(std::launch::async, [&] { return post(large("python")); });
  auto nodejs = std::async(std::launch::async, [&] { return post(large("nodejs")); });
  EXPECT_TRUE(f->eventually([&] { return f->engine->statistics().creating == 2; }));
  {
    engine::testing::RawClient third(port);
    third.send("POST /run HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n");
    EXPECT_THAT(third.read_until("no_available_container"), ::testing::HasSubstr("-10"));
  }
  f->runtime.release();
  EXPECT_EQ(python.get().status, 200);
  EXPECT_EQ(nodejs.get().status, 200);
}

TEST_F(ExecutorTest, TooManyOfOneClient) {
  serve({.rate = Rate{2, std::chrono::seconds(60)}});
  EXPECT_EQ(run().at("exit_code"), -3);
  EXPECT_EQ(post("{}").status, 422) << "what is no run does not count";
  EXPECT_EQ(run().at("exit_code"), -3);
  EXPECT_EQ(run().at("exit_code"), -429);
}

TEST_F(ExecutorTest, RunsUnderWayEndWithIt) {
  serve({.pool = 1});
  f->runtime.hold("create");
  auto under_way = std::async(std::launch::async, [&] { return post(kGood); });
  EXPECT_TRUE(f->eventually([&] { return creating(); }));
  auto in_line = std::async(std::launch::async, [&] { return post(kGood); });
  auto ending = std::async(std::launch::async,
                           [&] { f->run(executor->shutdown(std::chrono::milliseconds(5'000))); });
  // The end sends away who is in line: it has begun, and the first is still being made.
  EXPECT_EQ(in_line.get().status, 200);
  f->runtime.release();
  ending.get();
  EXPECT_EQ(under_way.get().status, 200);
  EXPECT_TRUE(f->runtime.alive().empty());
  EXPECT_EQ(run().at("exit_code"), -3) << "it refuses new ones";
}

}  // namespace
}  // namespace atl::executor
