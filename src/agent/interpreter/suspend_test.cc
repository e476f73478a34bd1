// Suspending and waking: runs outlive their clients, the nursery is ended and comes again, kernels
// are told that they are copies.
#include <gmock/gmock.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>

#include <filesystem>

#include "agent/interpreter/interpreter_test_support.h"
#include "agent/wake.h"

namespace atl::agent::interpreter {
namespace {

using ::testing::ElementsAre;

class InterpreterSuspendTest : public InterpreterTest {
 protected:
  void SetUp() override {
    ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    std::filesystem::create_directories(scratch_ / "usr/lib/python3/dist-packages");
    InterpreterTest::SetUp();
  }
  void TearDown() override {
    for (const pid_t pid : nurseries_) ::kill(pid, SIGKILL);
    ::prctl(PR_SET_CHILD_SUBREAPER, 0);
  }
  pid_t start_nursery() {
    std::vector<std::string> words = {"/usr/bin/python3", kTests + "/nursery.py", nursery_name_,
                                      kTests + "/kernels/python/main.py"};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_t pid = 0;
    EXPECT_EQ(::posix_spawn(&pid, argv[0], nullptr, nullptr, argv.data(), environ), 0);
    nurseries_.push_back(pid);
    return pid;
  }
  void suspend() { run_void(interpreter_->suspend()); }
  Context& python() { return *interpreter_->contexts().front(); }
  bool is_gone(pid_t pid) {
    if (::kill(pid, 0) == 0) return false;
    std::erase(nurseries_, pid);
    return true;
  }
  std::size_t logged(const std::string& message) const {
    std::size_t count = 0;
    const json::object logs = logs_.after(0);
    for (const auto& entry : logs.at("entries").as_array())
      count += entry.at("message").as_string() == message;
    return count;
  }

  std::vector<pid_t> nurseries_;
};

TEST_F(InterpreterSuspendTest, RunsGoOnWithoutTheirClients) {
  const std::string file = scratch_ / "flood";
  const auto scenario = [&]() -> net::Task<Lines> {
    auto running = co_await open_code("print here\nsleep 0.3\nflood 3 " + file + "\nprint after");
    auto queued = co_await open_code("print queued");
    EXPECT_TRUE(co_await running->read_until("here"));
    co_await interpreter_->suspend();
    running->close();
    queued->close();
    auto next = co_await open_code("print next");
    EXPECT_TRUE(co_await next->read_all());
    co_return next->told();
  };
  // Both were run, without an interrupt and without waiting for anybody to read.
  EXPECT_THAT(run(scenario()),
              ElementsAre("number_of_executions 3", "stdout next\n", "end_of_execution"));
  EXPECT_EQ(testing::read_text(file), "48");
}

TEST_F(InterpreterSuspendTest, RunsGoOnWhenTheirClientsLeaveAfterTheAnnouncement) {
  interpreter_->expect_suspend();
  const auto scenario = [&]() -> net::Task<Lines> {
    auto running = co_await open_code("print here\nsleep 0.3");
    auto queued = co_await open_code("print queued");
    EXPECT_TRUE(co_await running->read_until("here"));
    running->close();
    queued->close();
    co_await sleep_for(std::chrono::milliseconds(50));
    co_await interpreter_->suspend();
    auto next = co_await open_code("print next");
    EXPECT_TRUE(co_await next->read_all());
    co_return next->told();
  };
  EXPECT_THAT(run(scenario()),
              ElementsAre("number_of_executions 3", "stdout next\n", "end_of_execution"));
}

TEST_F(InterpreterSuspendTest, RunWhoseClientStaysIsHeardToItsEnd) {
  const auto scenario = [&]() -> net::Task<Lines> {
    auto running = co_await open_code("print here\nsleep 0.2\nprint there");
    EXPECT_TRUE(co_await running->read_until("here"));
    co_await interpreter_->suspend();
    EXPECT_TRUE(co_await running->read_all());
    co_return running->told();
  };
  EXPECT_THAT(run(scenario()), ElementsAre("number_of_executions 1", "stdout here\n",
                                           "stdout there\n", "end_of_execution"));
}

TEST_F(InterpreterSuspendTest, LaterRunsDependOnTheirClientsAgain) {
  suspend();
  const auto scenario = [&]() -> net::Task<Lines> {
    auto running = co_await open_code("print here\nsleep 1000");
    EXPECT_TRUE(co_await running->read_until("here"));
    running->close();
    auto next = co_await open_code("print next");
    EXPECT_TRUE(co_await next->read_all());
    co_return next->told();
  };
  EXPECT_THAT(run(scenario()),
              ElementsAre("number_of_executions 2", "stdout next\n", "end_of_execution"));
}

TEST_F(InterpreterSuspendTest, NurseryEndsAndKernelsStay) {
  const pid_t first = start_nursery();
  run_void(eventually([this] { return python().has_kernel(); }));
  EXPECT_THAT(told("print x"),
              ElementsAre("number_of_executions 1", "stdout x\n", "end_of_execution"));
  const pid_t kernel = python().kernel()->pid();
  suspend();
  EXPECT_TRUE(is_gone(first));
  EXPECT_EQ(python().kernel()->pid(), kernel);
  EXPECT_THAT(told("print x"),
              ElementsAre("number_of_executions 2", "stdout x\n", "end_of_execution"));
  // The next one may come at any time.
  const pid_t second = start_nursery();
  run_void(eventually([&] { return logged("kernel forked: python") == 1; }));
  while (logged("kernel forked: python") < 2) {
    const std::string context = new_context();
    interpreter_->remove(interpreter_->find(context));
  }
  EXPECT_EQ(execute({{"code", "show pid"}})->result(), kernel);
  // An end of a kernel is noticed as ever.
  EXPECT_EQ(execute({{"code", "die"}})->told().at(1), "error ContextRestarting");
  EXPECT_NE(execute({{"code", "show pid"}})->result(), kernel);
  suspend();
  EXPECT_TRUE(is_gone(second));
}

TEST_F(InterpreterSuspendTest, NurseryThatWasStopped) {
  const pid_t nursery = start_nursery();
  run_void(eventually([this] { return python().has_kernel(); }));
  ASSERT_EQ(::kill(nursery, SIGSTOP), 0);
  suspend();
  EXPECT_TRUE(is_gone(nursery));
}

TEST_F(InterpreterSuspendTest, CopiesAreToldAndGetSeedsOfTheirOwn) {
  InitRequest init;
  init.sandbox_id = "i2";
  state_.apply(std::move(init));
  const std::string other = new_context();
  EXPECT_THAT(told(""), ElementsAre("number_of_executions 1", "end_of_execution"));
  const std::string seed(64, 'c');
  interpreter_->forked(seed);
  const auto first = execute({{"code", "show forked"}})->result();
  const auto second = execute({{"code", "show forked"}, {"context_id", other}})->result();
  EXPECT_EQ(first.at("seed").as_string(), derive_seed(seed, python().spec().id));
  EXPECT_EQ(second.at("seed").as_string(), derive_seed(seed, other));
  EXPECT_NE(first.at("seed"), second.at("seed"));
  EXPECT_EQ(first.at("env").at("E2B_SANDBOX_ID"), "i2");
}

TEST_F(InterpreterSuspendTest, BusyKernelIsToldBeforeItsNextRun) {
  const auto scenario = [&]() -> net::Task<json::value> {
    auto running = co_await open_code("print here\nsleep 0.3");
    auto next = co_await open_code("show forked");
    EXPECT_TRUE(co_await running->read_until("here"));
    interpreter_->forked(std::string(64, 'd'));
    EXPECT_TRUE(co_await running->read_all());
    EXPECT_TRUE(co_await next->read_all());
    co_return next->result();
  };
  EXPECT_EQ(run(scenario()).at("op"), "forked");
}

}  // namespace
}  // namespace atl::agent::interpreter
