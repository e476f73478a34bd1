// Runs: order, output, interrupts, kernels that die or misbehave, limits.
#include <gmock/gmock.h>
#include <signal.h>

#include "agent/interpreter/interpreter_test_support.h"

namespace atl::agent::interpreter {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ExecuteTest : public InterpreterTest {
 protected:
  // Two runs of one context at once.
  net::Task<std::vector<std::string>> queued_runs() {
    auto first = co_await open_code("sleep 0.3\nprint first");
    auto second = co_await open_code("print second");
    auto third = co_await open_code("print third");
    third->close();
    co_await sleep_for(std::chrono::milliseconds(50));
    auto fourth = co_await open_code("print fourth");
    Lines out;
    for (const auto& stream : {first, second, fourth}) {
      EXPECT_EQ(stream->status, 200);
      EXPECT_TRUE(co_await stream->read_all());
      for (const std::string& line : stream->told()) out.push_back(line);
    }
    co_return out;
  }

  // Leaves in the middle of a run, when it has said "here"; what the next run says.
  net::Task<std::vector<std::string>> after_leaving(std::string code) {
    auto stream = co_await open_code(std::move(code));
    EXPECT_TRUE(co_await stream->read_until("here"));
    stream->close();
    auto next = co_await open_code("print next");
    EXPECT_TRUE(co_await next->read_all());
    co_return next->told();
  }

  // Calls the API in the middle of a run; what that run says.
  net::Task<std::vector<std::string>> during_run(std::string method, std::string below) {
    auto stream = co_await open_code("sleep 1000");
    auto queued = co_await open_code("print queued");
    EXPECT_TRUE(co_await stream->read_until("number_of_executions"));
    const std::string id = interpreter_->contexts().front()->spec().id;
    const Answer answer = co_await send(std::move(method), "/contexts/" + id + below, "", {});
    EXPECT_EQ(answer.head.status, 200);
    EXPECT_EQ(answer.body, "null");
    EXPECT_TRUE(co_await stream->read_all());
    EXPECT_TRUE(co_await queued->read_all());
    Lines out = stream->told();
    for (const std::string& line : queued->told()) out.push_back(line);
    co_return out;
  }
};

TEST_F(ExecuteTest, StateAndCount) {
  EXPECT_THAT(told("print a\nprint b"), ElementsAre("number_of_executions 1", "stdout a\n",
                                                    "stdout b\n", "end_of_execution"));
  EXPECT_THAT(told("error Bad"),
              ElementsAre("number_of_executions 2", "error Bad", "end_of_execution"));
  EXPECT_THAT(told("", new_context()), ElementsAre("number_of_executions 1", "end_of_execution"));
}

TEST_F(ExecuteTest, QueueIsInOrderAndForgetsWhoLeft) {
  EXPECT_THAT(run(queued_runs()),
              ElementsAre("number_of_executions 1", "stdout first\n", "end_of_execution",
                          "number_of_executions 2", "stdout second\n", "end_of_execution",
                          "number_of_executions 3", "stdout fourth\n", "end_of_execution"));
}

TEST_F(ExecuteTest, QueueIsBounded) {
  const auto fill = [&]() -> net::Task<int> {
    auto running = co_await open_code("print here\nsleep 1000");
    EXPECT_TRUE(co_await running->read_until("here"));
    Context& context = *interpreter_->contexts().front();
    while (context.waiting() < kMaxWaiting)
      context.enqueue(std::make_shared<interpreter::Run>("{\"op\":\"execute\",\"code\":\"\"}\n"));
    auto refused = co_await open_code("");
    running->close();
    co_return refused->status;
  };
  EXPECT_EQ(run(fill()), 429);
  run_void(eventually([this] { return interpreter_->contexts().front()->waiting() == 0; }));
  EXPECT_EQ(told("").back(), "end_of_execution");
}

TEST_F(ExecuteTest, ContextsRunAtTheSameTime) {
  const std::string other = new_context();
  const auto both = [&]() -> net::Task<bool> {
    auto slow = co_await open_code("sleep 1000");
    auto quick = co_await open_code("print x", other);
    EXPECT_TRUE(co_await quick->read_all());
    slow->close();
    co_return quick->complete;
  };
  EXPECT_TRUE(run(both()));
}

TEST_F(ExecuteTest, LeavingInterrupts) {
  EXPECT_THAT(run(after_leaving("print here\nsleep 1000")),
              ElementsAre("number_of_executions 2", "stdout next\n", "end_of_execution"));
}

TEST_F(ExecuteTest, KernelThatIgnoresInterruptsIsReplaced) {
  const Lines lines = run(after_leaving("deaf\nprint here\nsleep 1000"));
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[0], "number_of_executions 1");
  EXPECT_THAT(lines[1], HasSubstr("stderr The previous run did not stop"));
  EXPECT_EQ(lines[2], "stdout next\n");
  EXPECT_THAT(told(""), ElementsAre("number_of_executions 2", "end_of_execution"));
}

TEST_F(ExecuteTest, KeepaliveWhileRunningAndWaiting) {
  const auto two = [&]() -> net::Task<bool> {
    auto running = co_await open_code("sleep 1000");
    auto waiting = co_await open_code("");
    EXPECT_TRUE(co_await waiting->read_until("{\"type\": \"keepalive\"}\n"));
    EXPECT_TRUE(co_await running->read_until("{\"type\": \"keepalive\"}\n"));
    running->close();
    EXPECT_TRUE(co_await waiting->read_all());
    co_return waiting->complete;
  };
  EXPECT_TRUE(run(two()));
}

TEST_F(ExecuteTest, ErrorAndEndArriveInOnePiece) {
  const auto raw = [&]() -> net::Task<std::string> {
    auto stream = *co_await net::connect_tcp("127.0.0.1", port_);
    const std::string body = R"({"code":"print x\nslow_error Bad"})";
    auto written = co_await stream->write_all(
        "POST /execute HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) +
        "\r\n\r\n" + body);
    EXPECT_TRUE(written.ok());
    char buffer[64 << 10];
    for (;;) {
      auto n = co_await stream->read_some(buffer);
      if (!n.ok() || *n == 0) co_return "";
      const std::string piece(buffer, *n);
      if (piece.find("\"error\"") != std::string::npos) co_return piece;
    }
  };
  const std::string piece = run(raw());
  EXPECT_THAT(piece, HasSubstr("end_of_execution"));
  EXPECT_TRUE(piece.ends_with("\r\n0\r\n\r\n"));
}

TEST_F(ExecuteTest, PipesBecomeOutput) {
  EXPECT_THAT(told("fd aé😀z"), Contains("end_of_execution"));
  std::string text;
  for (const auto& line : execute({{"code", "fd aé😀z"}})->lines()) {
    if (line.at("type") == "stdout") text += line.at("text").as_string();
  }
  EXPECT_EQ(text, "aé😀z");
}

TEST_F(ExecuteTest, Deaths) {
  const std::string id = new_context();
  for (const char* code :
       {"die 0", "segfault", "hang_up", "raw {\"type\":\"stdout\"", "raw nonsense",
        "raw {\"type\":\"other\"}", "raw {\"type\":\"result\",\"text\":\"é\"}",
        "raw {\"type\":\"result\",\"n\":NaN}"}) {
    EXPECT_THAT(told(std::string("print x\n") + code, id),
                ElementsAre("number_of_executions 1", "stdout x\n", "error ContextRestarting",
                            "end_of_execution"))
        << code;
  }
  EXPECT_THAT(told("", id), ElementsAre("number_of_executions 1", "end_of_execution"));
  const json::object logged = logs_.after(0);
  EXPECT_THAT(json::serialize(logged),
              HasSubstr("kernel ended: python: signal: segmentation fault"));
}

TEST_F(ExecuteTest, RunnerThatWantsToBeReplaced) {
  EXPECT_THAT(told("print x\nexit"),
              ElementsAre("number_of_executions 1", "stdout x\n", "end_of_execution"));
  EXPECT_THAT(told(""), ElementsAre("number_of_executions 1", "end_of_execution"));
}

TEST_F(ExecuteTest, RestartDuringRun) {
  EXPECT_THAT(
      run(during_run("POST", "/restart")),
      ElementsAre("number_of_executions 1", "error UnexpectedEndOfExecution", "end_of_execution",
                  "number_of_executions 1", "stdout queued\n", "end_of_execution"));
}

TEST_F(ExecuteTest, DeleteDuringRun) {
  EXPECT_THAT(
      run(during_run("DELETE", "")),
      ElementsAre("number_of_executions 1", "error UnexpectedEndOfExecution", "end_of_execution",
                  "error UnexpectedEndOfExecution", "end_of_execution"));
}

TEST_F(ExecuteTest, RestartEndsWhatTheKernelStarted) {
  const std::string path = scratch_ / "pids";
  (void)told("children " + path);
  pid_t pids[2] = {};
  ASSERT_EQ(std::sscanf(testing::read_text(path).c_str(), "%d %d", &pids[0], &pids[1]), 2);
  for (const pid_t pid : pids) EXPECT_EQ(::kill(pid, 0), 0);
  const std::string id = interpreter_->contexts().front()->spec().id;
  EXPECT_EQ(request("POST", "/contexts/" + id + "/restart").body, "null");
  // Ended children of an ended parent are for whoever adopts them to wait for.
  const auto ended = [](pid_t pid) {
    std::string state = testing::read_text("/proc/" + std::to_string(pid) + "/stat");
    state = state.substr(std::min(state.size(), state.rfind(')') + 1));
    return state.empty() || state.starts_with(" Z") || state.starts_with(" X");
  };
  run_void(eventually([&] { return ended(pids[0]) && ended(pids[1]); }));
}

TEST_F(ExecuteTest, OutputLimits) {
  const auto last_two = [](const Lines& lines) {
    return lines.size() < 2 ? lines : Lines(lines.end() - 2, lines.end());
  };
  EXPECT_THAT(last_two(told("results 20000")),
              ElementsAre("error OutputLimitExceeded", "end_of_execution"));
  EXPECT_THAT(last_two(told("long 40")),
              ElementsAre("error OutputLimitExceeded", "end_of_execution"));
  const auto stream = execute({{"code", "flood 70"}});
  EXPECT_THAT(last_two(stream->told()),
              ElementsAre("error OutputLimitExceeded", "end_of_execution"));
  EXPECT_LT(stream->body.size(), std::size_t(65) << 20);
  EXPECT_THAT(told("print x"),
              ElementsAre("number_of_executions 4", "stdout x\n", "end_of_execution"));
  EXPECT_GT(execute({{"code", "long 20"}})->body.size(), std::size_t(20) << 20);
}

TEST_F(ExecuteTest, ClientThatDoesNotReadStopsTheKernel) {
  const std::string path = scratch_ / "progress";
  const auto slow = [&]() -> net::Task<std::size_t> {
    auto stream = co_await open_code("flood 48 " + path);
    // The kernel has stopped when a while goes by without progress.
    std::string before = "-";
    for (std::string now; now.empty() || now != before; now = testing::read_text(path)) {
      before = now;
      co_await sleep_for(std::chrono::milliseconds(300));
    }
    EXPECT_LT(std::stoul(before), 40U * 16);
    EXPECT_TRUE(co_await stream->read_all());
    EXPECT_EQ(testing::read_text(path), std::to_string(48 * 16));
    co_return stream->lines().size();
  };
  EXPECT_EQ(run(slow()), 48U * 16 + 2);
}

}  // namespace
}  // namespace atl::agent::interpreter
