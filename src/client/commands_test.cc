#include "client/commands.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>

#include "agent/process.pb.h"
#include "client/output.h"
#include "client/process_stream.h"
#include "client/testing.h"
#include "rpc/connect.h"

namespace atl::client {
namespace {

namespace asio = net::asio;
namespace pb = ::process;
using std::chrono::milliseconds;

// What the played agent saw.
struct Seen {
  std::vector<pb::StartRequest> starts;
  std::vector<std::string> users;
  std::vector<std::optional<milliseconds>> timeouts;
  std::string input;
  bool input_closed = false;
  int killer_refusals = 0;  // how often the killer shall be refused first
  int killer_exit = 0;
  std::string denied;   // what the first killer shall say that it may not kill
  bool killed = false;  // a killer did its work
};

net::Task<void> rest(milliseconds time) {
  asio::steady_timer timer(co_await asio::this_coro::executor, time);
  co_await timer.async_wait(asio::use_awaitable);
}

pb::StartResponse started(std::uint32_t pid) {
  pb::StartResponse event;
  event.mutable_event()->mutable_start()->set_pid(pid);
  return event;
}
pb::StartResponse said(std::string out) {
  pb::StartResponse event;
  event.mutable_event()->mutable_data()->set_stdout(std::move(out));
  return event;
}
pb::StartResponse complained(std::string err) {
  pb::StartResponse event;
  event.mutable_event()->mutable_data()->set_stderr(std::move(err));
  return event;
}
pb::StartResponse ended(int code, bool exited, std::string status) {
  pb::StartResponse event;
  auto* end = event.mutable_event()->mutable_end();
  end->set_exit_code(code);
  end->set_exited(exited);
  end->set_status(std::move(status));
  return event;
}

// Does what the command's name says.
net::Task<Result<void>> start(rpc::CallContext& call, const pb::StartRequest& in,
                              rpc::MessageSink& sink, Seen& seen) {
  seen.starts.push_back(in);
  seen.users.emplace_back(call.exchange.request.headers.get("Authorization"));
  seen.timeouts.push_back(call.timeout);
  const std::string& what = in.process().cmd();
  if (what == "nobody") co_return make_error(Errc::unauthenticated, "invalid username: 'x'");
  if (what == "nowhere") co_return make_error(Errc::invalid_argument, "cwd '/x' does not exist");
  if (what == "/bin/bash" && seen.killer_refusals-- > 0)
    co_return make_error(Errc::resource_exhausted, "fork: Resource temporarily unavailable");
  if (what != "no-start") {
    ATOLL_CO_TRY(co_await sink.send(started(77)));
  }
  if (what == "/bin/bash") {
    const bool denies = !seen.denied.empty();
    if (denies) {
      ATOLL_CO_TRY(co_await sink.send(said(std::exchange(seen.denied, ""))));
    } else {
      seen.killed = seen.killer_exit == 0;
    }
    ATOLL_CO_TRY(co_await sink.send(ended(denies ? 3 : seen.killer_exit, true, "exit status")));
    co_return Result<void>();
  }
  if (what == "hang") {
    while (!seen.killed) co_await rest(milliseconds(1));
    ATOLL_CO_TRY(co_await sink.send(said("last words")));
    ATOLL_CO_TRY(co_await sink.send(ended(-1, false, "signal: killed")));
    co_return Result<void>();
  }
  if (what == "orphan") {
    // The command is dead, but somebody who is not found holds its stdout.
    ATOLL_CO_TRY(co_await sink.send(said("first words")));
    auto waiting = call.exchange.stream.wait_peer_closed();
    co_await std::move(waiting);
    co_return Result<void>();
  }
  if (what == "echo") {
    ATOLL_CO_TRY(co_await sink.send(said("hello ")));
    ATOLL_CO_TRY(co_await sink.send(complained("oh")));
    ATOLL_CO_TRY(co_await sink.send(said("world")));
  }
  if (what == "cat") {
    while (!seen.input_closed) co_await rest(milliseconds(1));
    ATOLL_CO_TRY(co_await sink.send(said(seen.input)));
  }
  if (what == "break") {
    call.exchange.response.abort();
    co_return Result<void>();
  }
  if (what == "signal") {
    ATOLL_CO_TRY(co_await sink.send(ended(-1, false, "signal: terminated")));
    co_return Result<void>();
  }
  if (what != "endless") {
    ATOLL_CO_TRY(co_await sink.send(ended(3, true, "exit status 3")));
  }
  co_return Result<void>();
}

net::Task<Result<pb::SendInputResponse>> take_input(rpc::CallContext&,
                                                    const pb::SendInputRequest& in, Seen& seen) {
  seen.input += in.input().stdin();
  co_return pb::SendInputResponse();
}
net::Task<Result<pb::CloseStdinResponse>> take_close(rpc::CallContext&,
                                                     const pb::CloseStdinRequest&, Seen& seen) {
  seen.input_closed = true;
  co_return pb::CloseStdinResponse();
}
net::Task<Result<pb::SendSignalResponse>> take_signal(rpc::CallContext&,
                                                      const pb::SendSignalRequest& in) {
  if (in.process().pid() == 1)
    co_return make_error(Errc::not_found, "process with pid 1 not found");
  if (in.process().pid() == 2) {
    co_return make_error(Errc::internal, "error sending signal: os: process already finished");
  }
  co_return pb::SendSignalResponse();
}

net::Task<void> serve(rpc::Router& router, net::Exchange& exchange) {
  if (exchange.request.path() == "/process.Process/List") {
    // A proxy in front of a sandbox that is gone.
    (void)co_await exchange.response.send(
        502, {}, R"({"sandboxId":"iabc","message":"The sandbox was not found","code":502})");
    co_return;
  }
  co_await router.handle(exchange);
}

class Commands : public ::testing::Test {
 protected:
  Commands() {
    router_.server_stream<pb::StartRequest>(
        "/process.Process/Start",
        [this](rpc::CallContext& call, const pb::StartRequest& in, rpc::MessageSink& sink) {
          return start(call, in, sink, seen_);
        });
    router_.unary<pb::SendInputRequest, pb::SendInputResponse>(
        "/process.Process/SendInput",
        [this](rpc::CallContext& call, const pb::SendInputRequest& in) {
          return take_input(call, in, seen_);
        });
    router_.unary<pb::CloseStdinRequest, pb::CloseStdinResponse>(
        "/process.Process/CloseStdin",
        [this](rpc::CallContext& call, const pb::CloseStdinRequest& in) {
          return take_close(call, in, seen_);
        });
    router_.unary<pb::SendSignalRequest, pb::SendSignalResponse>(
        "/process.Process/SendSignal", [](rpc::CallContext& call, const pb::SendSignalRequest& in) {
          return take_signal(call, in);
        });
  }

  static Command named(std::string program) {
    Command command;
    command.program = std::move(program);
    return command;
  }
  Result<Finished> run(Command command, CommandEvents events = {}) {
    return agent_.run(run_command(agent_.inside(), std::move(command), std::move(events)));
  }

  Seen seen_;
  rpc::Router router_;
  testing::FakeAgent agent_{[this](net::Exchange& exchange) { return serve(router_, exchange); }};
};

TEST_F(Commands, RunsAndKeepsBothStreams) {
  Command command = named("echo");
  command.arguments = {"a", "b"};
  command.envs = {{"K", "v"}};
  command.directory = "/tmp";
  command.user = "root";
  std::uint32_t pid = 0;
  std::string heard;
  CommandEvents events;
  events.on_start = [&](std::uint32_t p) { pid = p; };
  events.on_stdout = [&](std::string_view text) { heard += text; };
  events.on_stderr = [&](std::string_view text) { heard += "!" + std::string(text); };
  auto finished = run(command, events);
  ASSERT_TRUE(finished.ok()) << finished.error().message;
  EXPECT_EQ(finished->exit_code, 3);
  EXPECT_EQ(finished->status, "exit status 3");
  EXPECT_EQ(finished->out.text(), "hello world");
  EXPECT_EQ(finished->err.text(), "oh");
  EXPECT_FALSE(finished->timed_out);
  EXPECT_EQ(pid, 77u);
  EXPECT_EQ(heard, "hello !ohworld");
  ASSERT_EQ(seen_.starts.size(), 1u);
  const auto& process = seen_.starts[0].process();
  EXPECT_EQ(process.args_size(), 2);
  EXPECT_EQ(process.envs().at("K"), "v");
  EXPECT_EQ(process.cwd(), "/tmp");
  EXPECT_FALSE(seen_.starts[0].stdin());
  EXPECT_EQ(seen_.users[0], "Basic cm9vdDo=");  // root:
  EXPECT_EQ(seen_.timeouts[0], milliseconds(90'000));
}

TEST_F(Commands, FeedsInputWhileItReads) {
  Command command = named("cat");
  command.input = std::string(700'000, 'x') + "end";
  auto finished = run(command);
  ASSERT_TRUE(finished.ok()) << finished.error().message;
  EXPECT_EQ(seen_.input.size(), 700'003u);
  EXPECT_EQ(finished->out.text(), seen_.input);
  EXPECT_TRUE(seen_.starts[0].stdin());
}

TEST_F(Commands, GivesInputUpWhenNobodyReadsIt) {
  Command command = named("echo");
  command.input = std::string(3 << 20, 'x');
  EXPECT_TRUE(run(command).ok());
}

TEST_F(Commands, TimeoutKillsAllAndSaysSo) {
  Command command = named("hang");
  command.user = "me";
  command.timeout = milliseconds(30);
  seen_.killer_refusals = 2;
  auto finished = run(command);
  ASSERT_TRUE(finished.ok()) << finished.error().message;
  EXPECT_TRUE(finished->timed_out);
  EXPECT_EQ(finished->exit_code, -1);
  EXPECT_EQ(finished->out.text(), "last words");
  ASSERT_EQ(seen_.starts.size(), 4u);
  const std::string mark = seen_.starts[0].process().envs().at("ATOLL_COMMAND");
  EXPECT_EQ(mark.size(), 32u);
  const auto& killer = seen_.starts[3].process();
  EXPECT_EQ(killer.args(killer.args_size() - 2), mark);
  EXPECT_EQ(killer.args(killer.args_size() - 1), "77");
  EXPECT_EQ(killer.envs().count("ATOLL_COMMAND"), 0u);  // or it would kill itself
  EXPECT_EQ(seen_.users[3], "Basic bWU6");              // me:
  EXPECT_GT(seen_.timeouts[0], milliseconds(1000));     // the agent's is the last resort
}

TEST_F(Commands, WhatTheUserMayNotKillRootDoes) {
  Command command = named("hang");
  command.timeout = milliseconds(30);
  seen_.denied = "12 ;13$(x)";
  auto finished = run(command);
  ASSERT_TRUE(finished.ok()) << finished.error().message;
  EXPECT_TRUE(finished->timed_out);
  ASSERT_EQ(seen_.starts.size(), 4u);
  const auto& root = seen_.starts[2].process();
  EXPECT_EQ(root.args(root.args_size() - 1), "12 13");  // numbers only
  EXPECT_EQ(seen_.users[2], "Basic cm9vdDo=");
}

TEST_F(Commands, TimeoutThatCannotKillIsAnError) {
  Command command = named("hang");
  command.timeout = milliseconds(30);
  seen_.killer_exit = 1;
  auto finished = run(command);
  ASSERT_FALSE(finished.ok());
  EXPECT_EQ(finished.error().code, Errc::unavailable);
  EXPECT_NE(finished.error().message.find("could not be ended"), std::string::npos);
}

TEST_F(Commands, TimeoutWaitsForNobodyWhoWasNotFound) {
  Command command = named("orphan");
  command.timeout = milliseconds(30);
  const auto began = std::chrono::steady_clock::now();
  auto finished = run(command);
  ASSERT_TRUE(finished.ok()) << finished.error().message;
  EXPECT_TRUE(finished->timed_out);
  EXPECT_EQ(finished->out.text(), "first words");
  // Not until the agent's own deadline, half a minute later.
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(20));
}

TEST_F(Commands, WithoutLimitThereIsNoMark) {
  Command command = named("echo");
  command.timeout = milliseconds(0);
  EXPECT_TRUE(run(command).ok());
  EXPECT_EQ(seen_.timeouts[0], std::nullopt);
  EXPECT_EQ(seen_.starts[0].process().envs().count("ATOLL_COMMAND"), 0u);
}

TEST_F(Commands, FailuresAreTyped) {
  EXPECT_EQ(run(named("nobody")).error().code, Errc::invalid_argument);
  EXPECT_EQ(run(named("nowhere")).error().code, Errc::invalid_argument);
  EXPECT_EQ(run(named("break")).error().code, Errc::unavailable);
  EXPECT_EQ(run(named("endless")).error().code, Errc::unavailable);
  EXPECT_EQ(run(named("no-start")).error().code, Errc::data_loss);
  EXPECT_EQ(run(named("signal"))->exit_code, 143);
  auto list = agent_.run(list_processes(agent_.inside()));
  EXPECT_EQ(list.error().code, Errc::not_found);
  EXPECT_TRUE(agent_.run(kill_process(agent_.inside(), 5)).ok());
  EXPECT_EQ(agent_.run(kill_process(agent_.inside(), 1)).error().code, Errc::not_found);
  EXPECT_EQ(agent_.run(kill_process(agent_.inside(), 2)).error().code, Errc::not_found);
}

TEST(OutputKeeper, KeepsTheBeginningAndTheEnd) {
  OutputKeeper keeper(10);
  std::string all;
  for (int i = 0; i < 100; ++i) {
    all += std::to_string(i) + ",";
    keeper.add(std::to_string(i) + ",");
  }
  const Output out = std::move(keeper).finish();
  EXPECT_EQ(out.head, all.substr(0, 5));
  EXPECT_EQ(out.tail, all.substr(all.size() - 5));
  EXPECT_EQ(out.omitted, all.size() - 10);
  EXPECT_EQ(out.text(), out.head + "\n[... " + std::to_string(out.omitted) +
                            " bytes left out ...]\n" + out.tail);
}

TEST(OutputKeeper, KeepsAllThatFits) {
  OutputKeeper keeper(10);
  keeper.add("01234");
  keeper.add("56789");
  const Output out = std::move(keeper).finish();
  EXPECT_EQ(out.head, "0123456789");
  EXPECT_EQ(out.tail, "");
  EXPECT_EQ(out.omitted, 0u);
}

TEST(OutputKeeper, OnePieceLongerThanAll) {
  OutputKeeper keeper(4);
  keeper.add("0123456789");
  const Output out = std::move(keeper).finish();
  EXPECT_EQ(out.head, "01");
  EXPECT_EQ(out.tail, "89");
  EXPECT_EQ(out.omitted, 6u);
}

TEST(OutputKeeper, CutsNoCharacterInTwo) {
  OutputKeeper keeper(6);
  keeper.add(
      "a\xC3\xBC\xC3\xBC\xC3\xBC\xC3\xBC"
      "b");  // aüüüüb: both cuts are inside an ü
  const Output out = std::move(keeper).finish();
  EXPECT_EQ(out.head, "a\xC3\xBC");
  EXPECT_EQ(out.tail,
            "\xC3\xBC"
            "b");
  EXPECT_EQ(out.omitted, 4u);
  OutputKeeper other(4);
  other.add(
      "a\xC3\xBC\xC3\xBC\xC3\xBC"
      "b");
  const Output odd = std::move(other).finish();
  EXPECT_EQ(odd.head, "a");
  EXPECT_EQ(odd.tail, "b");
  EXPECT_EQ(odd.omitted, 6u);
}

TEST(ExitCode, OfProcessesAndSignals) {
  EXPECT_EQ(exit_code_of(true, 3, "exit status 3"), 3);
  EXPECT_EQ(exit_code_of(false, -1, "signal: killed"), 137);
  EXPECT_EQ(exit_code_of(false, -1, "signal: segmentation fault (core dumped)"), 139);
  EXPECT_EQ(exit_code_of(false, -1, "signal: user defined signal 2"), 140);
  EXPECT_EQ(exit_code_of(false, -1, "signal: signal 34"), 162);
  EXPECT_EQ(exit_code_of(false, -1, "what?"), 1);
}

}  // namespace
}  // namespace atl::client
