// The real agent in a jail: what a pause means for processes, and what /init sets up.
#include <unistd.h>

#include "agent/process.pb.h"
#include "base/json.h"
#include "jail_fixture.h"
#include "rpc/client.h"

namespace atl::testing {
namespace {

using std::chrono::milliseconds;
namespace pb = ::process;

net::Task<Result<net::HttpClient::Answer>> call(runtime::JailRuntime& runtime, SandboxId id,
                                                std::string method, std::string target,
                                                std::string body) {
  ATOLL_CO_TRY_ASSIGN(auto stream, co_await runtime.connect_agent(id));
  net::HttpClient client(std::move(stream));
  net::RequestHead head;
  head.method = std::move(method);
  head.target = std::move(target);
  co_return co_await client.request(std::move(head), std::move(body));
}

// Starts a command, waits for its pid and leaves.
net::Task<Result<std::uint32_t>> start_and_leave(runtime::JailRuntime& runtime, SandboxId id,
                                                 std::string command,
                                                 std::optional<milliseconds> timeout) {
  ATOLL_CO_TRY_ASSIGN(auto stream, co_await runtime.connect_agent(id));
  net::HttpClient client(std::move(stream));
  pb::StartRequest request;
  request.mutable_process()->set_cmd("/bin/bash");
  for (const char* argument : {"-l", "-c"}) request.mutable_process()->add_args(argument);
  request.mutable_process()->add_args(command);
  rpc::CallOptions options;
  options.timeout = timeout;
  auto opening = rpc::ServerStream::open(client, "/process.Process/Start", request, options);
  ATOLL_CO_TRY_ASSIGN(rpc::ServerStream events, co_await std::move(opening));
  pb::StartResponse event;
  ATOLL_CO_TRY(co_await events.next(event));
  co_return event.event().start().pid();
}

class JailAgent : public JailTest {
 protected:
  void SetUp() override {
    agent_path_ = ATOLL_AGENT;
    JailTest::SetUp();
    if (IsSkipped()) return;
    auto started = start();
    ASSERT_TRUE(started.ok()) << started.error().message;
    id_.emplace(create());
    root_ = "/proc/" + std::to_string(init_pid(*id_)) + "/root";
  }
  void init(const std::string& body) {
    auto answer = await(call(*runtime_, *id_, "POST", "/init", body));
    ASSERT_TRUE(answer.ok()) << answer.error().message;
    EXPECT_EQ(answer->head.status, 204) << answer->body;
  }
  std::uint32_t run(const std::string& command, std::optional<milliseconds> timeout = {}) {
    auto pid = await(start_and_leave(*runtime_, *id_, command, timeout));
    EXPECT_TRUE(pid.ok()) << pid.error().message;
    return pid.ok() ? *pid : 0;
  }
  // The file's text once it has one, for as long as ten seconds.
  std::string wait_for(const std::string& path) {
    for (int i = 0; i < 500; ++i) {
      const std::string text = read_text(root_ + path);
      if (!text.empty()) return text;
      pause_for(milliseconds(20));
    }
    return "";
  }
  void frozen_for(milliseconds time) {
    ASSERT_TRUE(await(runtime_->freeze(*id_)).ok());
    pause_for(time);
    ASSERT_TRUE(await(runtime_->thaw(*id_)).ok());
  }

  std::optional<SandboxId> id_;
  std::string root_;
};

TEST_F(JailAgent, ACommandGoesOnAfterAPauseLongerThanItsTimeout) {
  init(R"({"defaultUser":"user"})");
  run("sleep 2 && echo done > /tmp/done", milliseconds(4000));
  pause_for(milliseconds(300));
  ASSERT_NO_FATAL_FAILURE(frozen_for(milliseconds(5000)));
  EXPECT_EQ(wait_for("/tmp/done"), "done\n");
}

TEST_F(JailAgent, TheTimeoutStillEndsACommandThatRuns) {
  init(R"({"defaultUser":"user"})");
  run("trap '' TERM; sleep 5; echo late > /tmp/late", milliseconds(500));
  pause_for(milliseconds(1500));
  auto list = await(call(*runtime_, *id_, "GET", "/logs", ""));
  ASSERT_TRUE(list.ok());
  EXPECT_NE(list->body.find("signal: killed"), std::string::npos) << list->body;
  EXPECT_EQ(read_text(root_ + "/tmp/late"), "");
}

TEST_F(JailAgent, ManyPausesWithNobodyListening) {
  init(R"({"defaultUser":"user"})");
  // More than any pipe holds between two steps.
  run("i=0; while :; do i=$((i+1)); head -c 200000 /dev/zero; echo $i > /tmp/step; sleep 0.01; "
      "done");
  ASSERT_NE(wait_for("/tmp/step"), "");
  for (int cycle = 0; cycle < 20; ++cycle) {
    ASSERT_NO_FATAL_FAILURE(frozen_for(milliseconds(cycle % 5 == 0 ? 700 : 20)));
    const int before = std::atoi(wait_for("/tmp/step").c_str());
    int after = before;
    for (int i = 0; i < 250 && after < before + 2; ++i) {
      pause_for(milliseconds(20));
      after = std::max(after, std::atoi(read_text(root_ + "/tmp/step").c_str()));
    }
    ASSERT_GE(after, before + 2) << "cycle " << cycle;
  }
}

TEST_F(JailAgent, InitSetsUpCertificatesAndTheStartCommandOncePerBoot) {
  const std::string body = json::serialize(
      json::object{{"defaultUser", "user"},
                   {"caBundle", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"},
                   {"startCommand", "id -un >> /tmp/started; echo $SSL_CERT_FILE"}});
  init(body);
  EXPECT_EQ(wait_for("/tmp/started"), "user\n");
  const std::string list = read_text(root_ + "/etc/ssl/certs/ca-certificates.crt");
  EXPECT_NE(list.find("MIIB\n"), std::string::npos);
  EXPECT_EQ(host("stat -c %a " + root_ + "/usr/local/share/ca-certificates/atoll.crt"), "644\n");
  init(body);
  pause_for(milliseconds(500));
  EXPECT_EQ(read_text(root_ + "/tmp/started"), "user\n");

  ASSERT_TRUE(await(runtime_->kill(*id_)).ok());
  runtime::SandboxSpec again = spec();
  again.id = *id_;
  again.disk = runtime::Disk::kept;
  create(again);
  root_ = "/proc/" + std::to_string(init_pid(*id_)) + "/root";
  init(body);
  for (int i = 0; i < 250 && read_text(root_ + "/tmp/started") != "user\nuser\n"; ++i)
    pause_for(milliseconds(20));
  EXPECT_EQ(read_text(root_ + "/tmp/started"), "user\nuser\n") << "once more with every boot";
  EXPECT_EQ(read_text(root_ + "/etc/ssl/certs/ca-certificates.crt"), list) << "not twice";
}

}  // namespace
}  // namespace atl::testing
