// The API of a server and the executor on top of it, against a played server.
#include <cstdlib>

#include "base/json.h"
#include "client/executor.h"
#include "client/interpreter.h"
#include "client/remote_sandbox.h"
#include "client/testing.h"

namespace atl::client {
namespace {

struct Seen {
  std::vector<std::string> calls;  // "POST /sandboxes {...}"
  std::string key;
  std::string routed_to;  // "id:port"
};

net::Task<void> say(net::Exchange& exchange, int status, std::string text,
                    net::Headers headers = {}) {
  auto sending = exchange.response.send(status, std::move(headers), std::move(text));
  (void)co_await std::move(sending);
}

net::Task<void> serve_code(net::Exchange& exchange, const std::string& body) {
  if (exchange.request.path() == "/contexts" && exchange.request.method == "GET")
    co_return co_await say(exchange, 200,
                           R"([{"id":"c1","language":"python","cwd":"/home/user"}])");
  if (exchange.request.path() == "/contexts")
    co_return co_await say(exchange, 200, R"({"id":"c2","language":"r","cwd":"/tmp"})");
  if (exchange.request.path() == "/contexts/none")
    co_return co_await say(exchange, 404, "Context none not found");
  (void)co_await exchange.response.start(200, {}, std::nullopt);
  (void)co_await exchange.response.write("{\"type\":\"stdout\",\"text\":\"before\\n\"}\n");
  if (body.find("hang") != std::string::npos) {
    auto waiting = exchange.stream.wait_peer_closed();
    co_await std::move(waiting);
    co_return;
  }
  if (body.find("boom") != std::string::npos) {
    (void)co_await exchange.response.write(
        "{\"type\":\"error\",\"name\":\"ValueError\",\"value\":\"boom\",\"traceback\":\"t\"}\n");
  } else {
    (void)co_await exchange.response.write(
        "{\"type\":\"result\",\"text\":\"42\",\"is_main_result\":true}\n");
  }
  (void)co_await exchange.response.write(
      "{\"type\":\"number_of_executions\",\"execution_count\":1}\n"
      "{\"type\":\"end_of_execution\"}\n");
  (void)co_await exchange.response.finish();
}

constexpr const char* kSandbox =
    R"({"sandboxID":"iabc","templateID":"base","envdAccessToken":"tok","trafficAccessToken":"tr",
        "domain":null,"state":"running","cpuCount":2,"metadata":{"k":"v","n":3}})";

net::Task<void> serve(net::Exchange& exchange, Seen& seen) {
  auto reading = exchange.body.read_all(1 << 20);
  auto body = co_await std::move(reading);
  if (!body.ok()) co_return;
  const auto& headers = exchange.request.headers;
  if (headers.has("E2b-Sandbox-Id")) {
    seen.routed_to = std::string(headers.get("E2b-Sandbox-Id")) + ":" +
                     std::string(headers.get("E2b-Sandbox-Port")) + ":" +
                     std::string(headers.get("X-Access-Token")) + ":" +
                     std::string(headers.get("E2B-Traffic-Access-Token"));
    co_return co_await serve_code(exchange, *body);
  }
  seen.calls.push_back(exchange.request.method + " " + exchange.request.target + " " + *body);
  seen.key = headers.get("X-API-Key");
  const std::string target(exchange.request.path());
  if (seen.key == "wrong")
    co_return co_await say(exchange, 401, R"({"code":401,"message":"no such key"})");
  if (target == "/v2/sandboxes") {
    const bool second = exchange.request.query_param("nextToken").has_value();
    net::Headers more;
    if (!second) more.add("X-Next-Token", "next");
    co_return co_await say(exchange, 200, "[" + std::string(kSandbox) + "]", std::move(more));
  }
  if (target.ends_with("/fork")) {
    co_return co_await say(exchange, 201,
                           "[{\"sandbox\":" + std::string(kSandbox) +
                               "},{\"error\":{\"code\":503,\"message\":\"no space\"}}]");
  }
  if (target.ends_with("/snapshots"))
    co_return co_await say(exchange, 201, R"({"snapshotID":"snap:1"})");
  if (target == "/sandboxes/odd") co_return co_await say(exchange, 200, R"({"sandboxID":"../x"})");
  if (target == "/sandboxes/none")
    co_return co_await say(exchange, 404, R"({"code":404,"message":"not there"})");
  if (exchange.request.method == "DELETE" || target.ends_with("/pause"))
    co_return co_await say(exchange, 204, "");
  co_await say(exchange, 201, kSandbox);
}

class Remote : public ::testing::Test {
 protected:
  Account account(std::string key = "k") {
    auto made = account_at("http://127.0.0.1:" + std::to_string(server_.port()), std::move(key));
    ATOLL_CHECK(made.ok());
    return *made;
  }
  SandboxSource source() {
    SandboxSource out;
    out.create = [this] { return create(account(), inside_); };
    out.dispose = [this] { return dispose(account(), disposed_); };
    return out;
  }
  static net::Task<Result<Inside>> create(Account account, std::optional<Inside>& inside) {
    auto creating = create_sandbox(account, {});
    ATOLL_CO_TRY_ASSIGN(const RemoteSandbox sandbox, co_await std::move(creating));
    ATOLL_CO_TRY_ASSIGN(inside, inside_of(account, sandbox));
    co_return *inside;
  }
  static net::Task<void> dispose(Account account, int& disposed) {
    ++disposed;
    auto killing = kill_sandbox(std::move(account), "iabc");
    (void)co_await std::move(killing);
  }

  Seen seen_;
  std::optional<Inside> inside_;
  int disposed_ = 0;
  testing::FakeAgent server_{[this](net::Exchange& exchange) { return serve(exchange, seen_); }};
};

TEST_F(Remote, CreatesWithWhatWasAsked) {
  NewSandbox options;
  options.template_id = "t";
  options.timeout = std::chrono::seconds(7);
  options.envs = {{"A", "1"}};
  options.allow_internet = false;
  options.pause_on_timeout = true;
  auto made = server_.run(create_sandbox(account(), options));
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(made->id, "iabc");
  EXPECT_EQ(made->access_token, "tok");
  EXPECT_EQ(made->cpu_count, 2);
  EXPECT_EQ(made->metadata, (std::map<std::string, std::string>{{"k", "v"}}));
  EXPECT_EQ(seen_.key, "k");
  const std::string& call = seen_.calls.at(0);
  EXPECT_TRUE(call.starts_with("POST /sandboxes "));
  const auto body = parse_json(call.substr(16));
  ASSERT_TRUE(body.ok());
  EXPECT_EQ(text_of(*body, "templateID"), "t");
  EXPECT_EQ(number_of(*body, "timeout"), 7);
  EXPECT_EQ(body->at("allow_internet_access"), json::value(false));
  EXPECT_EQ(body->at("autoPause"), json::value(true));
  EXPECT_EQ(body->at("envVars").at("A"), json::value("1"));
}

TEST_F(Remote, ErrorsAreTheServersOwn) {
  EXPECT_EQ(server_.run(create_sandbox(account("wrong"), {})).error().code, Errc::unauthenticated);
  auto none = server_.run(sandbox_info(account(), "none"));
  EXPECT_EQ(none.error().code, Errc::not_found);
  EXPECT_EQ(none.error().message, "not there");
  EXPECT_EQ(server_.run(sandbox_info(account(), "odd")).error().code, Errc::data_loss);
  auto nobody = account_at("http://127.0.0.1:1", "k");
  EXPECT_EQ(server_.run(sandbox_info(*nobody, "x")).error().code, Errc::unavailable);
  EXPECT_FALSE(account_at("ftp://x", "k").ok());
}

TEST_F(Remote, ListsPageByPage) {
  SandboxFilter filter;
  filter.metadata = {{"a b", "c&d"}};
  filter.states = {"paused"};
  auto all = server_.run(list_sandboxes(account(), filter));
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->size(), 2u);
  ASSERT_EQ(seen_.calls.size(), 2u);
  EXPECT_EQ(seen_.calls[0], "GET /v2/sandboxes?limit=100&metadata=a%2520b%3Dc%2526d&state=paused ");
  filter.limit = 1;
  EXPECT_EQ(server_.run(list_sandboxes(account(), filter))->size(), 1u);
}

TEST_F(Remote, ForksAndSnapshots) {
  auto copies = server_.run(fork_sandbox(account(), "iabc", 2, std::chrono::seconds(60)));
  ASSERT_TRUE(copies.ok());
  ASSERT_EQ(copies->size(), 2u);
  EXPECT_TRUE((*copies)[0].ok());
  EXPECT_EQ((*copies)[1].error().message, "no space");
  EXPECT_EQ(*server_.run(snapshot_sandbox(account(), "iabc", "n")), "snap:1");
  EXPECT_TRUE(server_.run(pause_sandbox(account(), "iabc")).ok());
  EXPECT_TRUE(server_.run(kill_sandbox(account(), "iabc")).ok());
  EXPECT_EQ(seen_.calls.back(), "DELETE /sandboxes/iabc ");
}

TEST_F(Remote, TheWayInIsByHeaderOrByName) {
  RemoteSandbox sandbox;
  sandbox.id = "iabc";
  sandbox.access_token = "tok";
  auto inside = inside_of(account(), sandbox);
  ASSERT_TRUE(inside.ok());
  EXPECT_EQ(inside->headers(49983).get("Host"), "127.0.0.1");
  EXPECT_EQ(inside->headers(49983).get("E2b-Sandbox-Port"), "49983");
  EXPECT_EQ(inside->headers(49983).get("X-Access-Token"), "tok");
  EXPECT_EQ(inside->headers(49999).get("X-Access-Token"), "tok");
  EXPECT_FALSE(inside->headers(8000).has("X-Access-Token"));
  Account named = account();
  named.domain = "sandboxes.test:3443";
  auto by_name = inside_of(named, sandbox);
  ASSERT_TRUE(by_name.ok());
  EXPECT_EQ(by_name->headers(49999).get("Host"), "49999-iabc.sandboxes.test");
  EXPECT_EQ(*port_url(named, sandbox, 80), "https://80-iabc.sandboxes.test:3443");
  EXPECT_EQ(*port_url(account(), sandbox, 80), account().api.url());
  sandbox.domain = "other.test";
  EXPECT_EQ(inside_of(named, sandbox)->headers(80).get("Host"), "80-iabc.other.test");
  named.sandboxes = *parse_server("http://127.0.0.1:4000", "");
  EXPECT_EQ(inside_of(named, sandbox)->headers(80).get("Host"), "127.0.0.1");
}

TEST_F(Remote, Contexts) {
  auto inside = inside_of(account(), RemoteSandbox{.id = "iabc"});
  auto made = server_.run(create_context(*inside, "r", "/tmp"));
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(made->id, "c2");
  EXPECT_EQ(made->directory, "/tmp");
  EXPECT_EQ(server_.run(list_contexts(*inside))->at(0).id, "c1");
  EXPECT_EQ(server_.run(remove_context(*inside, "none")).error().code, Errc::not_found);
}

TEST_F(Remote, ExecutesInAFreshSandbox) {
  auto done = server_.run(execute_structured(source(), "6*7", {}));
  EXPECT_TRUE(done.success);
  EXPECT_EQ(done.output, "42");
  EXPECT_EQ(done.out, std::vector<std::string>{"before\n"});
  EXPECT_FALSE(done.error);
  EXPECT_EQ(seen_.routed_to, "iabc:49999:tok:tr");
  EXPECT_EQ(disposed_, 1);
  const json::object all = done.to_json();
  EXPECT_EQ(all.at("error_name"), json::value(nullptr));
  EXPECT_EQ(all.at("logs").at("stdout").at(0), json::value("before\n"));
}

TEST_F(Remote, AFailureOfTheCodeIsAnAnswer) {
  auto done = server_.run(execute_structured(source(), "boom", {}));
  EXPECT_FALSE(done.success);
  EXPECT_EQ(done.error->name, "ValueError");
  EXPECT_EQ(disposed_, 1);
}

TEST_F(Remote, TheTimeoutIsHard) {
  ExecuteOptions options;
  options.timeout = std::chrono::milliseconds(2000);
  auto done = server_.run(execute_structured(source(), "hang", options));
  EXPECT_FALSE(done.success);
  EXPECT_EQ(done.error->name, "TimeoutError");
  EXPECT_EQ(done.error->value, "the execution was ended after 2 s");
  EXPECT_EQ(done.out, std::vector<std::string>{"before\n"});
  EXPECT_GE(done.time_ms, 2000);
  EXPECT_EQ(disposed_, 1);
  EXPECT_EQ(seen_.calls.back(), "DELETE /sandboxes/iabc ");
}

TEST_F(Remote, NoSandboxIsAnAnswer) {
  SandboxSource none = source();
  none.create = [this] { return create(account("wrong"), inside_); };
  auto done = server_.run(execute_structured(none, "1", {}));
  EXPECT_FALSE(done.success);
  EXPECT_EQ(done.error->name, "SandboxError");
  EXPECT_EQ(disposed_, 0);
  ExecuteOptions never;
  never.timeout = std::chrono::milliseconds(0);
  EXPECT_EQ(server_.run(execute_structured(source(), "1", never)).error->name, "SandboxError");
}

class Environment : public ::testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override { clear(); }
  static void clear() {
    for (const char* name : {"E2B_API_KEY", "E2B_API_URL", "E2B_DOMAIN", "E2B_SANDBOX_URL"})
      ::unsetenv(name);
  }
};

TEST_F(Environment, SaysWhereToGo) {
  EXPECT_EQ(account_from_environment().error().code, Errc::failed_precondition);
  ::setenv("E2B_API_KEY", "k", 1);
  auto theirs = account_from_environment();
  ASSERT_TRUE(theirs.ok());
  EXPECT_EQ(theirs->api.host, "api.e2b.app");
  EXPECT_EQ(theirs->domain, "e2b.app");
  ::setenv("E2B_DOMAIN", "my.test:3443", 1);
  auto own = account_from_environment();
  EXPECT_EQ(own->api.url(), "https://api.my.test:3443");
  ::setenv("E2B_API_URL", "http://127.0.0.1:3000", 1);
  ::setenv("E2B_SANDBOX_URL", "http://127.0.0.1:3001", 1);
  auto local = account_from_environment();
  EXPECT_EQ(local->api.url(), "http://127.0.0.1:3000");
  EXPECT_EQ(local->sandboxes->port, 3001);
}

TEST(Server, Parses) {
  auto plain = parse_server("http://127.0.0.1:3000", "k");
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->host, "127.0.0.1");
  EXPECT_EQ(plain->port, 3000);
  EXPECT_FALSE(plain->tls);
  auto secure = parse_server("https://api.example.test/", "k");
  ASSERT_TRUE(secure.ok());
  EXPECT_EQ(secure->port, 443);
  EXPECT_TRUE(secure->tls);
  auto v6 = parse_server("http://[::1]:80", "k");
  ASSERT_TRUE(v6.ok());
  EXPECT_EQ(v6->host, "::1");
  EXPECT_EQ(v6->url(), "http://[::1]:80");
  for (const char* bad : {"", "ftp://x", "http://", "http://x:y", "http://x:70000"})
    EXPECT_FALSE(parse_server(bad, "k").ok()) << bad;
}

}  // namespace
}  // namespace atl::client
