// Settings over the API, secrets that never show, and runs by an executor manager that the test
// plays.
#include "providers/service.h"

#include <gtest/gtest.h>

#include <fstream>
#include <mutex>

#include "api_server/api_server.h"
#include "api_server/errors.h"
#include "base/encoding.h"
#include "engine/testing/http.h"
#include "net/http_server.h"
#include "net/tls_testing.h"
#include "providers/program.h"
#include "providers/registry.h"

namespace atl::providers {
namespace {

using engine::testing::Got;

constexpr const char* kAdmin = "0123456789abcdef0123456789abcdef";
constexpr const char* kSecret = "e2b_5ecre7ffffffffffffffffffffffffffffffffff";

// What RAGFlow's executor manager does, as far as the wire goes: answers are those of the test.
class FakeExecutor {
 public:
  explicit FakeExecutor(engine::testing::Fixture& f)
      : f_(f), server_(f.threads.io, {}, [this](net::Exchange& e) { return handle(e); }) {
    port = *server_.listen_tcp("127.0.0.1:0", "executor");
  }
  ~FakeExecutor() { f_.run(server_.shutdown(std::chrono::milliseconds(0))); }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port); }
  void answer_with(std::vector<std::pair<int, std::string>> answers) {
    std::lock_guard lock(mutex_);
    answers_ = std::move(answers);
    requests_.clear();
  }
  std::vector<json::object> requests() {
    std::lock_guard lock(mutex_);
    return requests_;
  }

  std::uint16_t port = 0;
  std::atomic<int> health = 200;
  std::atomic<bool> hang = false;  // runs are not answered

 private:
  net::Task<void> handle(net::Exchange& exchange) {
    if (exchange.request.path() == "/healthz") {
      (void)co_await exchange.response.send(health, {}, R"({"status":"ok"})");
      co_return;
    }
    const auto body = co_await exchange.body.read_all(1 << 20);
    if (hang) {
      co_await exchange.stream.wait_peer_closed();
      co_return;
    }
    std::pair<int, std::string> answer{500, "no answer left"};
    {
      std::lock_guard lock(mutex_);
      json::object request = parse_json(*body)->get_object();
      request["key"] = std::string(exchange.request.headers.get("X-API-Key"));
      requests_.push_back(std::move(request));
      if (!answers_.empty()) {
        answer = answers_.front();
        if (answers_.size() > 1) answers_.erase(answers_.begin());
      }
    }
    (void)co_await exchange.response.send(answer.first, {}, answer.second);
  }

  engine::testing::Fixture& f_;
  std::mutex mutex_;
  std::vector<std::pair<int, std::string>> answers_;
  std::vector<json::object> requests_;
  net::HttpServer server_;
};

class ServiceTest : public ::testing::Test {
 protected:
  ServiceTest()
      : service(*f.engine, *f.store, store::SecretBox(std::string(32, 'k')),
                [this](const std::string& name) { return environment[name]; }),
        api(*f.engine, *f.store, api::ApiOptions{.admin_token = kAdmin}, {&service}),
        server(f.threads.io, {.error_body = api::error_body},
               [this](net::Exchange& exchange) { return api.handle(exchange); }),
        executor(f) {
    port = *server.listen_tcp("127.0.0.1:0", "api");
  }
  ~ServiceTest() override { f.run(server.shutdown(std::chrono::milliseconds(0))); }

  Got call(const std::string& method, const std::string& target, const std::string& body = {}) {
    return engine::testing::fetch(f, port, method, target, {{"X-API-KEY", f.key.secret}}, body);
  }
  Got admin(const std::string& method, const std::string& target, const std::string& body = {},
            std::string team = {}) {
    if (team.empty()) team = f.store->default_team().id;
    return engine::testing::fetch(f, port, method, target,
                                  {{"X-Admin-Token", kAdmin}, {"X-Team-ID", team}}, body);
  }
  static json::value parsed(const Got& got) {
    auto value = parse_json(got.body);
    EXPECT_TRUE(value.ok()) << got.body;
    return value.ok() ? *value : json::value(json::object());
  }
  static std::string message(const Got& got, int status) {
    EXPECT_EQ(got.status, status) << got.body;
    return std::string(parsed(got).at("message").as_string());
  }
  void configure(const std::string& extra = "") {
    const Got got = admin("PUT", "/providers/executor-manager",
                          R"({"config":{"endpoint":")" + executor.url() + "\"" + extra + "}}");
    ASSERT_EQ(got.status, 200) << got.body;
  }
  Got execute(const std::string& body) {
    return call("POST", "/providers/executor-manager/execute", body);
  }
  // Step and code of the failure of a connection's test.
  std::string failing(const std::string& id, const std::string& config) {
    const json::value got = parsed(admin("POST", "/providers/" + id + "/test", config));
    return got.at("ok").as_bool() ? std::string("none")
                                  : std::string(got.at("error").at("step").as_string()) + " " +
                                        std::string(got.at("error").at("code").as_string());
  }

  std::map<std::string, std::string> environment;
  engine::testing::Fixture f;
  ProviderService service;
  api::ApiServer api;
  net::HttpServer server;
  FakeExecutor executor;
  std::uint16_t port = 0;
};

TEST_F(ServiceTest, ListAndSchema) {
  const json::value list = parsed(call("GET", "/providers"));
  EXPECT_TRUE(list.at("active").is_null());
  ASSERT_EQ(list.at("providers").as_array().size(), 5u);
  const json::value& local = list.at("providers").at(0);
  EXPECT_EQ(local.at("id"), "local");
  EXPECT_EQ(local.at("configured"), true);
  const json::value e2b = parsed(call("GET", "/providers/e2b"));
  EXPECT_EQ(e2b.at("configured"), false);
  EXPECT_EQ(e2b.at("schema").at("api_key").at("secret"), true);
  EXPECT_EQ(e2b.at("schema").at("region").at("options").as_array().size(), 2u);
  EXPECT_NE(message(call("GET", "/providers/nope"), 404).find("there are local"),
            std::string::npos);
}

TEST_F(ServiceTest, OnlyTheAdministratorChanges) {
  for (const auto& [method, target] :
       {std::pair("PUT", "/providers"), std::pair("PUT", "/providers/e2b"),
        std::pair("DELETE", "/providers/e2b"), std::pair("POST", "/providers/e2b/test")}) {
    EXPECT_EQ(call(method, target, "{}").status, 403) << method << target;
    EXPECT_EQ(engine::testing::fetch(f, port, method, target, {}, "{}").status, 401);
  }
}

TEST_F(ServiceTest, SecretsNeverShow) {
  const std::string config = std::string(R"({"config":{"api_key":")") + kSecret + "\"}}";
  std::string said = admin("PUT", "/providers/e2b", config).body;
  EXPECT_EQ(parsed(call("GET", "/providers/e2b")).at("config").at("api_key"), "********");
  said += call("GET", "/providers/e2b").body + call("GET", "/providers").body +
          admin("GET", "/providers/e2b").body;
  EXPECT_EQ(said.find("5ecre7"), std::string::npos) << said;
  ASSERT_TRUE(f.store->sync().ok());
  for (const char* suffix : {"", "-wal"}) {
    std::ifstream file(f.home.path() / ("state.db" + std::string(suffix)), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    EXPECT_EQ(bytes.find("5ecre7"), std::string::npos) << suffix;
  }
  // The mask, or nothing, keeps it.
  EXPECT_EQ(
      admin("PUT", "/providers/e2b", R"({"config":{"api_key":"********","timeout":60}})").status,
      200);
  EXPECT_EQ(admin("PUT", "/providers/e2b", R"({"config":{"timeout":61}})").status, 200);
  const json::value kept = parsed(call("GET", "/providers/e2b"));
  EXPECT_EQ(kept.at("config").at("api_key"), "********");
  EXPECT_EQ(kept.at("config").at("timeout"), 61);
  // Null removes it, and it is required.
  EXPECT_NE(message(admin("PUT", "/providers/e2b", R"({"config":{"api_key":null}})"), 400)
                .find("'api_key' is required"),
            std::string::npos);
  // It is not sent anywhere else without being known.
  EXPECT_NE(message(admin("PUT", "/providers/e2b",
                          R"({"config":{"api_url":"http://elsewhere.example"}})"),
                    400)
                .find("'api_key' must be given again"),
            std::string::npos);
  EXPECT_EQ(admin("PUT", "/providers/e2b", R"({"config":{"domain":"elsewhere.example"}})").status,
            400);
}

TEST_F(ServiceTest, AnotherKeyCannotReadThem) {
  const std::string config = std::string(R"({"config":{"api_key":")") + kSecret + "\"}}";
  ASSERT_EQ(admin("PUT", "/providers/e2b", config).status, 200);
  Settings other(*f.store, store::SecretBox(std::string(32, 'x')),
                 [](const std::string&) { return std::string(); });
  const auto kind = find_kind("e2b");
  const auto loaded = other.load(f.store->default_team().id, **kind);
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, Errc::failed_precondition);
  EXPECT_NE(loaded.error().message.find("Set it again"), std::string::npos);
  // Nor does it open in another team's row.
  auto team = f.store->create_team("other");
  auto row = *f.store->find_provider(f.store->default_team().id, "e2b");
  row->team_id = team->id;
  ASSERT_TRUE(f.store->put_provider(*row).ok());
  const Got got = admin("POST", "/providers/e2b/test", "{}", team->id);
  EXPECT_EQ(parsed(got).at("error").at("step"), "validate");
}

TEST_F(ServiceTest, EnvironmentStandsIn) {
  EXPECT_NE(message(admin("PUT", "/providers/aliyun-codeinterpreter", R"({"config":{}})"), 400)
                .find("'access_key_id' is required"),
            std::string::npos);
  environment = {{"AGENTRUN_ACCESS_KEY_ID", "LTAIenv"},
                 {"AGENTRUN_ACCESS_KEY_SECRET", "from-the-environment"},
                 {"AGENTRUN_ACCOUNT_ID", "42"},
                 {"AGENTRUN_REGION", "cn-shanghai"}};
  const Got got = admin("PUT", "/providers/aliyun-codeinterpreter", R"({"config":{}})");
  EXPECT_EQ(got.status, 200) << got.body;
  EXPECT_EQ(got.body.find("from-the-environment"), std::string::npos);
  EXPECT_EQ(parsed(got).at("fromEnvironment").as_array().size(), 4u);
  environment["AGENTRUN_REGION"] = "mars";
  EXPECT_EQ(admin("PUT", "/providers/aliyun-codeinterpreter", R"({"config":{}})").status, 400);
  environment["AGENTRUN_REGION"] = "cn-shanghai";
  environment["AGENTRUN_ACCOUNT_ID"] = "42.elsewhere.example/";
  EXPECT_NE(message(admin("PUT", "/providers/aliyun-codeinterpreter", R"({"config":{}})"), 400)
                .find("'account_id' may have digits only"),
            std::string::npos);
}

TEST_F(ServiceTest, ActiveProvider) {
  const std::string run = R"({"code":"f"})";
  EXPECT_NE(
      message(call("POST", "/providers/execute", run), 409).find("provider type not configured"),
      std::string::npos);
  EXPECT_NE(message(admin("PUT", "/providers", R"({"active":"e2b"})"), 409)
                .find("provider type not configured"),
            std::string::npos);
  EXPECT_EQ(admin("PUT", "/providers", R"({"active":"nope"})").status, 404);
  EXPECT_EQ(admin("PUT", "/providers", R"({"active":7})").status, 400);
  EXPECT_NE(message(execute(run), 409).find("provider type not configured"), std::string::npos);
  configure();
  EXPECT_EQ(admin("PUT", "/providers", R"({"active":"executor-manager"})").status, 200);
  executor.answer_with({{200, R"({"status":"success","stdout":"1\n","exit_code":0})"}});
  EXPECT_EQ(parsed(call("POST", "/providers/execute", run)).at("stdout"), "1\n");
  EXPECT_EQ(admin("DELETE", "/providers/executor-manager").status, 204);
  EXPECT_EQ(admin("DELETE", "/providers/executor-manager").status, 404);
  EXPECT_TRUE(parsed(call("GET", "/providers")).at("active").is_null());
  EXPECT_EQ(call("POST", "/providers/execute", run).status, 409) << "no silent fallback";
}

TEST_F(ServiceTest, BadRuns) {
  configure(R"(,"timeout":20)");
  const std::pair<const char*, const char*> cases[] = {
      {"", "a JSON body is required"},
      {"{}", "'code' is missing"},
      {R"({"code":""})", "'code' is empty"},
      {R"({"code":1})", "'code' must be a string"},
      {R"({"code":"1","language":"ruby"})", "'language' is none"},
      {R"({"code":"1","language":"bash"})", "does not run bash"},
      {R"({"code":"1","timeout":0})", "'timeout' must be between 1 and 20"},
      {R"({"code":"1","timeout":21})", "'timeout' must be between 1 and 20"},
      {R"({"code":"1","arguments":[]})", "'arguments' must be an object"},
      {R"({"code":"1","arguments":{"a":1}})", "defines no main()"},
  };
  for (const auto& [body, expected] : cases)
    EXPECT_NE(message(execute(body), 400).find(expected), std::string::npos) << body;
}

TEST_F(ServiceTest, TheExecutorsWire) {
  configure(R"(,"api_key":"for-the-executor")");
  executor.answer_with(
      {{200,
        R"({"status":"success","stdout":"out\n","stderr":"err","exit_code":0,"detail":null,)"
        R"("time_used_ms":12.5,"memory_used_kb":2048.0,"resource_limit_type":null,)"
        R"("artifacts":[{"name":"a.png"}],"result":{"present":true,"value":[1],"type":"json"}})"}});
  const std::string code = "def main(a):\\n  return [a]";
  const json::value got =
      parsed(execute(R"({"code":")" + code + R"(","language":"python3","arguments":{"a":1}})"));
  EXPECT_EQ(got.at("stdout"), "out\n");
  EXPECT_EQ(got.at("stderr"), "err");
  const json::value& metadata = got.at("metadata");
  EXPECT_EQ(metadata.at("status"), "success");
  EXPECT_EQ(metadata.at("time_used_ms"), 12);
  EXPECT_EQ(metadata.at("memory_used_kb"), 2048);
  EXPECT_EQ(metadata.at("result_present"), true);
  EXPECT_EQ(json::serialize(metadata.at("result_value")), "[1]");
  EXPECT_EQ(metadata.at("artifacts").as_array().size(), 1u);
  EXPECT_EQ(metadata.at("provider"), "executor-manager");
  const auto requests = executor.requests();
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(*base64_decode(requests[0].at("code_b64").as_string()), "def main(a):\n  return [a]");
  EXPECT_EQ(requests[0].at("language"), "python");
  EXPECT_EQ(json::serialize(requests[0].at("arguments")), R"({"a":1})");
  EXPECT_EQ(requests[0].at("key"), "for-the-executor");
}

TEST_F(ServiceTest, CodeWithoutMainGetsOne) {
  configure();
  executor.answer_with({{200, R"({"status":"success","stdout":"1\n","exit_code":0,)"
                              R"("result":{"present":true,"value":null,"type":"json"}})"}});
  const json::value got = parsed(execute(R"({"code":"f","language":"javascript"})"));
  EXPECT_EQ(got.at("metadata").at("result_present"), false);
  const auto requests = executor.requests();
  EXPECT_EQ(requests.at(0).at("language"), "nodejs");
  EXPECT_TRUE(
      defines_main(Language::javascript, *base64_decode(requests[0].at("code_b64").as_string())));
}

TEST_F(ServiceTest, RunsThatNeverBeganAreTriedAgain) {
  configure(R"(,"max_retries":2)");
  const std::string busy =
      R"({"status":"program_runner_error","stderr":"Container pool is busy","exit_code":-10,)"
      R"("detail":"no_available_container"})";
  executor.answer_with({{200, busy}, {200, busy}, {200, R"({"status":"success","exit_code":0})"}});
  EXPECT_EQ(execute(R"({"code":"1"})").status, 200);
  EXPECT_EQ(executor.requests().size(), 3u);
  executor.answer_with({{200, busy}});
  EXPECT_NE(message(execute(R"({"code":"1"})"), 429).find("Container pool is busy"),
            std::string::npos);
  EXPECT_EQ(executor.requests().size(), 3u);
  // With more tries than time the last refusal is told, not a timeout of what never ran.
  configure(R"(,"max_retries":10)");
  executor.answer_with({{200, busy}});
  EXPECT_EQ(execute(R"({"code":"1","timeout":3})").status, 429);
  EXPECT_LT(executor.requests().size(), 11u);
  executor.answer_with({{500, "broken"}});
  EXPECT_NE(message(execute(R"({"code":"1"})"), 503).find("answered 500"), std::string::npos);
  EXPECT_EQ(executor.requests().size(), 1u) << "it may have run";
}

TEST_F(ServiceTest, TimeLimitsAndFailures) {
  configure();
  executor.answer_with({{200, R"({"status":"resource_limit_exceeded","stderr":"Execution timeout",)"
                              R"("exit_code":-124,"resource_limit_type":"time"})"}});
  EXPECT_NE(message(execute(R"({"code":"1"})"), 504).find("time limit"), std::string::npos);
  executor.answer_with({{200, R"({"status":"program_error","stdout":"","stderr":"Traceback",)"
                              R"("exit_code":1,"runtime_error_type":"nonzero_exit"})"}});
  const json::value failed = parsed(execute(R"({"code":"1"})"));
  EXPECT_EQ(failed.at("exit_code"), 1);
  EXPECT_EQ(failed.at("metadata").at("status"), "program_error");
  executor.answer_with({{200, "not json"}});
  EXPECT_NE(message(execute(R"({"code":"1"})"), 503).find("not that of an executor manager"),
            std::string::npos);
  executor.health = 401;
  EXPECT_NE(message(execute(R"({"code":"1"})"), 409).find("answered 401"), std::string::npos)
      << "the other side's 401 is not the client's";
}

TEST_F(ServiceTest, OthersWhoDoNotAnswer) {
  executor.hang = true;
  configure();
  EXPECT_NE(message(execute(R"({"code":"f","timeout":1})"), 504).find("did not end within 1 s"),
            std::string::npos);
}

TEST_F(ServiceTest, TestsOfConnections) {
  EXPECT_EQ(failing("executor-manager", ""), "validate failed_precondition");
  EXPECT_EQ(failing("executor-manager", R"({"config":{"timeout":0}})"),
            "validate invalid_argument");
  EXPECT_EQ(failing("executor-manager", R"({"config":{"endpoint":"http://127.0.0.1:1"}})"),
            "health_check unavailable");
  const std::string good = R"({"config":{"endpoint":")" + executor.url() + "\"}}";
  executor.answer_with(
      {{200, R"({"status":"success","stdout":"something else\n","exit_code":0})"}});
  EXPECT_EQ(failing("executor-manager", good), "execute unavailable") << "the print must come back";
  executor.health = 500;
  EXPECT_EQ(failing("executor-manager", good), "health_check unavailable");
  const std::string remote =
      std::string(R"({"config":{"url":"http://127.0.0.1:1","api_key":")") + kSecret + "\"}}";
  EXPECT_EQ(failing("atoll", remote), "health_check unavailable");
  const std::string wrong = R"({"config":{"url":"http://127.0.0.1:)" + std::to_string(port) +
                            R"(","api_key":")" + kSecret + "\"}}";
  EXPECT_EQ(failing("atoll", wrong), "health_check unauthenticated");
  EXPECT_FALSE(parsed(call("GET", "/providers/atoll")).at("configured").as_bool())
      << "a test stores nothing";
}

TEST_F(ServiceTest, AServerWithACaOfItsOwn) {
  const net::testing::CertDir certs;
  const auto context = net::TlsServerContext::from_files(certs.path("leaf.pem"),
                                                         certs.path("leaf.key"), {"http/1.1"});
  ASSERT_TRUE(context.ok()) << context.error().message;
  const auto secured = server.listen_tls("127.0.0.1:0", "tls", *context);
  ASSERT_TRUE(secured.ok()) << secured.error().message;
  const std::string config = R"({"config":{"url":"https://localhost:)" + std::to_string(*secured) +
                             R"(","template":"no-such-template","api_key":")" + f.key.secret + "\"";
  EXPECT_EQ(failing("atoll", config + "}}"), "health_check unauthenticated") << "it is not trusted";
  EXPECT_EQ(failing("atoll", config + R"(,"ca_file":")" + certs.path("ca.pem") + "\"}}"),
            "create not_found");
}

TEST(Scrubbed, WhoeverWroteIt) {
  EXPECT_EQ(scrubbed("key abcd-efgh and abcd-efgh", {"abcd-efgh"}), "key *** and ***");
  EXPECT_EQ(scrubbed("abc", {""}), "abc");
}

}  // namespace
}  // namespace atl::providers
