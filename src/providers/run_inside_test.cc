// Runs in a sandbox whose agent the test plays.
#include "providers/run_inside.h"

#include "agent/filesystem.pb.h"
#include "agent/process.pb.h"
#include "client/testing.h"
#include "rpc/connect.h"

namespace atl::providers {
namespace {

// The program goes on for ever, and the shell that shall end it fails.
net::Task<Result<void>> start(rpc::CallContext& call, const ::process::StartRequest& in,
                              rpc::MessageSink& sink) {
  ::process::StartResponse begun;
  begun.mutable_event()->mutable_start()->set_pid(7);
  ATOLL_CO_TRY(co_await sink.send(begun));
  if (in.process().cmd() == "python3") {
    auto waiting = call.exchange.stream.wait_peer_closed();
    co_await std::move(waiting);
    co_return Result<void>();
  }
  ::process::StartResponse ended;
  ended.mutable_event()->mutable_end()->set_exited(true);
  ended.mutable_event()->mutable_end()->set_exit_code(1);
  ATOLL_CO_TRY(co_await sink.send(ended));
  co_return Result<void>();
}

net::Task<Result<::filesystem::MakeDirResponse>> make_dir(rpc::CallContext&,
                                                          const ::filesystem::MakeDirRequest&) {
  co_return ::filesystem::MakeDirResponse();
}

net::Task<void> serve(rpc::Router& router, net::Exchange& exchange) {
  if (exchange.request.path() != "/files") {
    co_await router.handle(exchange);
    co_return;
  }
  auto reading = exchange.body.read_all(1 << 20);
  (void)co_await std::move(reading);
  auto sending = exchange.response.send(200, {}, R"([{"path":"/home/user/f"}])");
  (void)co_await std::move(sending);
}

TEST(RunInside, PastItsTimeItIsATimeoutEvenIfNothingCanBeKilled) {
  rpc::Router router;
  router.server_stream<::process::StartRequest>("/process.Process/Start", start);
  router.unary<::filesystem::MakeDirRequest, ::filesystem::MakeDirResponse>(
      "/filesystem.Filesystem/MakeDir", make_dir);
  client::testing::FakeAgent agent(
      [&router](net::Exchange& exchange) { return serve(router, exchange); });
  providers::Run run;
  run.code = "while True: pass";
  run.timeout = std::chrono::seconds(1);
  const auto outcome = agent.run(run_inside(agent.inside(), run));
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().code, Errc::deadline_exceeded) << outcome.error().message;
  EXPECT_NE(outcome.error().message.find("did not end within 1 s"), std::string::npos);
}

}  // namespace
}  // namespace atl::providers
