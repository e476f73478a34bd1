// The interpreter as part of the agent: when it is there, and what the control plane can ask of it.
#include <gmock/gmock.h>

#include "agent/agent_test_support.h"
#include "base/json.h"

namespace atl::agent {
namespace {

using ::testing::HasSubstr;

class InterpreterAgentTest : public AgentTest {
 protected:
  InterpreterAgentTest() {
    testing::write_text(scratch_ / "interpreter.json", R"({"languages":["python"]})");
    AgentOptions options;
    options.port = 0;
    options.control_plane = ControlPlane::any_listener;
    options.default_user = testing::current_user("/").name;
    options.path = "/usr/bin:/bin";
    options.marker_directory = scratch_ / "markers";
    options.trust_store = {scratch_ / "own/atoll.crt", scratch_ / "ssl/ca-certificates.crt"};
    options.hooks_directory = scratch_ / "hooks";
    options.host_files = scratch_.path();
    options.interpreter.config = scratch_ / "interpreter.json";
    options.interpreter.port = 0;
    options.interpreter.kernels = ATOLL_INTERPRETER_TESTS "/kernels";
    options.interpreter.nursery = "";
    with_interpreter_ = std::make_unique<Agent>(io_, options);
    ATOLL_CHECK(with_interpreter_->start().ok());
  }

  net::Task<Answer> send_to(std::uint16_t port, std::string method, std::string target,
                            std::string body, Headers headers) {
    auto stream = co_await net::connect_tcp("127.0.0.1", port);
    ATOLL_CHECK(stream.ok());
    net::HttpClient client(*std::move(stream));
    net::RequestHead head;
    head.method = std::move(method);
    head.target = std::move(target);
    head.headers = std::move(headers);
    auto answer = co_await client.request(head, std::move(body));
    EXPECT_TRUE(answer.ok());
    co_return answer.ok() ? *answer : Answer{};
  }
  Answer ask(std::uint16_t port, std::string method, std::string target, std::string body = {}) {
    return run(send_to(port, std::move(method), std::move(target), std::move(body), {}));
  }

  std::unique_ptr<Agent> with_interpreter_;
};

TEST_F(InterpreterAgentTest, IsThereWhereTheTemplateHasIt) {
  EXPECT_EQ(agent_->interpreter_port(), 0);
  EXPECT_EQ(request(Via::host, "POST", "/warm").head.status, 404);
  const std::uint16_t port = with_interpreter_->interpreter_port();
  ASSERT_NE(port, 0);
  EXPECT_EQ(ask(port, "GET", "/health").body, "\"OK\"");
  EXPECT_EQ(parse_json(ask(port, "GET", "/contexts").body)->as_array().size(), 1U);
}

TEST_F(InterpreterAgentTest, WarmThenInitThenRun) {
  EXPECT_EQ(request(Via::tcp, "POST", "/warm").head.status, 404);  // not for clients
  EXPECT_EQ(ask(with_interpreter_->port(), "GET", "/warm").head.status, 405);
  EXPECT_EQ(ask(with_interpreter_->port(), "POST", "/warm").head.status, 204);
  EXPECT_EQ(ask(with_interpreter_->port(), "POST", "/init",
                R"({"accessToken":"t0k","envVars":{"LATE":"yes"}})")
                .head.status,
            204);
  // No token is asked for.
  const std::uint16_t port = with_interpreter_->interpreter_port();
  EXPECT_THAT(ask(port, "POST", "/execute", R"({"code":"show start"})").body,
              HasSubstr(R"("LATE": "yes")"));
  EXPECT_THAT(ask(port, "POST", "/execute", R"({"code":"show warm"})").body,
              HasSubstr(R"("json": true)"));
}

}  // namespace
}  // namespace atl::agent
