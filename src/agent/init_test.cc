// What /init sets up beside the state: certificates and the start command; and the log of it.
#include <boost/asio/steady_timer.hpp>

#include "agent/agent_test_support.h"
#include "base/json.h"

namespace atl::agent {
namespace {

constexpr const char* kPem =
    "-----BEGIN CERTIFICATE-----\nMIIBATCBqQ==\n-----END CERTIFICATE-----\n";
constexpr const char* kOther =
    "-----BEGIN CERTIFICATE-----\nMIIBBBBBBB==\n-----END CERTIFICATE-----\n";

class InitTest : public AgentTest {
 protected:
  static std::string body(json::object object) { return json::serialize(object); }
  json::array logs(std::uint64_t after = 0) {
    const Answer answer = request(Via::host, "GET", "/logs?after=" + std::to_string(after));
    EXPECT_EQ(answer.head.status, 200);
    return parse_json(answer.body)->at("entries").as_array();
  }
  // The loop runs until an entry with that message is there.
  bool logged(const std::string& message) {
    for (int i = 0; i < 200; ++i) {
      for (const json::value& entry : logs()) {
        if (entry.at("message").as_string() == message) return true;
      }
      run(pause(std::chrono::milliseconds(20)));
    }
    return false;
  }
  static net::Task<int> pause(std::chrono::milliseconds time) {
    asio::steady_timer timer(co_await asio::this_coro::executor, time);
    co_await timer.async_wait(asio::use_awaitable);
    co_return 0;
  }
};

TEST_F(InitTest, CertificatesAreInstalledOnceAndReplaced) {
  std::filesystem::create_directories(scratch_ / "ssl");
  testing::write_text(scratch_ / "ssl/ca-certificates.crt", "distribution's");
  EXPECT_FALSE(agent_->state().env_vars().contains("SSL_CERT_FILE"));
  for (int i = 0; i < 2; ++i) {
    init(body({{"caBundle", kPem}}));
    EXPECT_EQ(testing::read_text(scratch_ / "own/atoll.crt"), kPem);
    EXPECT_EQ(testing::read_text(scratch_ / "ssl/ca-certificates.crt"),
              std::string("distribution's\n# atoll: begin\n") + kPem + "# atoll: end\n");
  }
  // By another agent, after a reboot over the same disk: only its own section changes.
  testing::write_text(scratch_ / "ssl/ca-certificates.crt",
                      testing::read_text(scratch_ / "ssl/ca-certificates.crt") + "more\n");
  init(body({{"caBundle", kOther}}));
  EXPECT_EQ(testing::read_text(scratch_ / "ssl/ca-certificates.crt"),
            std::string("distribution's\n# atoll: begin\n") + kOther + "# atoll: end\nmore\n");
  const auto& vars = agent_->state().env_vars();
  EXPECT_EQ(vars.at("SSL_CERT_FILE"), scratch_ / "ssl/ca-certificates.crt");
  EXPECT_EQ(vars.at("REQUESTS_CA_BUNDLE"), scratch_ / "ssl/ca-certificates.crt");
  EXPECT_EQ(vars.at("NODE_EXTRA_CA_CERTS"), scratch_ / "own/atoll.crt");
  // The user's own choice wins.
  init(R"({"envVars":{"SSL_CERT_FILE":"/mine"}})");
  EXPECT_EQ(agent_->state().env_vars().at("SSL_CERT_FILE"), "/mine");
  EXPECT_TRUE(agent_->state().env_vars().contains("NODE_EXTRA_CA_CERTS"));
}

TEST_F(InitTest, RubbishIsNoCertificate) {
  for (const std::string& pem :
       {std::string("hello"), std::string(kPem) + std::string(300 << 10, 'x'),
        std::string(kPem) + "# atoll: end\n"}) {
    EXPECT_EQ(request(Via::host, "POST", "/init", {}, body({{"caBundle", pem}})).head.status, 400);
  }
  EXPECT_EQ(request(Via::host, "POST", "/init", {}, R"({"caBundle":7})").head.status, 400);
  EXPECT_EQ(request(Via::host, "POST", "/init", {}, R"({"startCommand":7})").head.status, 400);
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "own/atoll.crt"));
}

TEST_F(InitTest, TheStartCommandRunsOnceAndItsOutputIsLogged) {
  const std::string out = scratch_ / "runs";
  const std::string command =
      "echo run >> " + out + "; echo \"hello from $FOO $E2B_SANDBOX_ID\"; echo oops >&2";
  const json::object request{
      {"startCommand", command}, {"envVars", json::object{{"FOO", "bar"}}}, {"sandboxId", "i1"}};
  init(body(request));
  EXPECT_TRUE(logged("hello from bar i1"));
  EXPECT_TRUE(logged("oops"));
  EXPECT_TRUE(logged("process ended"));
  init(body(request));  // a new server takes over
  run(pause(std::chrono::milliseconds(300)));
  EXPECT_EQ(testing::read_text(out), "run\n");
  EXPECT_EQ(agent_->state().env_vars().at("FOO"), "bar");
}

TEST_F(InitTest, AStartCommandThatCannotRunIsLogged) {
  init(R"({"startCommand":"true","defaultUser":"no-such-user"})");
  const json::array entries = logs();
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].at("level").as_string(), "error");
}

TEST_F(InitTest, LogsAreTheControlPlanesOnly) {
  EXPECT_EQ(request(Via::tcp, "GET", "/logs").head.status, 404);
  EXPECT_EQ(request(Via::host, "POST", "/logs", {}, "{}").head.status, 405);
  EXPECT_EQ(request(Via::host, "GET", "/logs?after=x").head.status, 400);
  EXPECT_EQ(request(Via::host, "GET", "/logs?after=-1").head.status, 400);
  EXPECT_EQ(request(Via::host, "GET", "/logs").body, R"({"entries":[],"next":1})");
}

TEST_F(InitTest, FailedFileRequestsAreLogged) {
  EXPECT_EQ(request(Via::tcp, "GET", "/files?path=/no/such&signature=secret").head.status, 404);
  const json::array entries = logs();
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].at("message").as_string(), "file request failed");
  EXPECT_EQ(entries[0].at("fields").at("path").as_string(), "/no/such");
  EXPECT_EQ(entries[0].at("fields").at("status").as_string(), "404");
  EXPECT_EQ(json::serialize(entries[0]).find("secret"), std::string::npos);
}

TEST_F(InitTest, ProcessesAreLogged) {
  init(R"({"startCommand":"exit 3"})");
  ASSERT_TRUE(logged("process ended"));
  const json::array entries = logs();
  ASSERT_EQ(entries.size(), 2u);
  const json::value& begun = entries[0];
  EXPECT_EQ(begun.at("message").as_string(), "process started");
  EXPECT_EQ(begun.at("fields").at("cmd").as_string(), "/bin/bash -l -c exit 3");
  EXPECT_EQ(begun.at("fields").at("user").as_string(), testing::current_user("/").name);
  EXPECT_EQ(entries[1].at("fields").at("exit_code").as_string(), "3");
  EXPECT_EQ(entries[1].at("fields").at("pid"), begun.at("fields").at("pid"));
}

}  // namespace
}  // namespace atl::agent
