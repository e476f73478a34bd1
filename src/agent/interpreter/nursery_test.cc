// Kernels from a nursery: forked before the sandbox knows who it is, warmed, replaced; and without
// one.
#include <gmock/gmock.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include <filesystem>

#include "agent/interpreter/interpreter_test_support.h"

namespace atl::agent::interpreter {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class NurseryTest : public InterpreterTest {
 protected:
  void SetUp() override {
    // The agent is process 1, which adopts; the test does as much.
    ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    std::filesystem::create_directories(packages_);
    InterpreterTest::SetUp();
  }
  void TearDown() override {
    if (nursery_ > 0) ::kill(nursery_, SIGKILL);
    ::prctl(PR_SET_CHILD_SUBREAPER, 0);
  }

  void start_nursery(std::string mode = "") {
    std::vector<std::string> words = {"/usr/bin/python3", kTests + "/nursery.py", nursery_name_,
                                      kTests + "/kernels/python/main.py", std::move(mode)};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    ASSERT_EQ(::posix_spawn(&nursery_, argv[0], nullptr, nullptr, argv.data(), environ), 0);
  }
  Context& python() { return *interpreter_->contexts().front(); }
  void wait_for_kernel() {
    run_void(eventually([this] { return python().has_kernel(); }));
  }
  std::string logged() const { return json::serialize(logs_.after(0)); }
  bool forked(std::string context = {}) {
    json::object body{{"code", "show start"}};
    if (!context.empty()) body["context_id"] = context;
    const auto stream = execute(std::move(body));
    EXPECT_TRUE(stream->complete);
    const json::array entries = logs_.after(0).at("entries").as_array();
    for (auto it = entries.rbegin(); it != entries.rend(); ++it) {
      const std::string message(it->at("message").as_string());
      if (message.starts_with("kernel forked")) return true;
      if (message.starts_with("kernel started")) return false;
    }
    ADD_FAILURE() << "no kernel";
    return false;
  }

  std::string packages_ = scratch_ / "usr/lib/python3/dist-packages";
  pid_t nursery_ = 0;
};

TEST_F(NurseryTest, KernelIsThereBeforeItIsNeeded) {
  start_nursery();
  wait_for_kernel();
  EXPECT_FALSE(python().kernel()->start_sent());
  const auto warming = [&]() -> net::Task<bool> { co_return (co_await interpreter_->warm()).ok(); };
  EXPECT_TRUE(run(warming()));
  EXPECT_FALSE(python().kernel()->start_sent());
  const pid_t pid = python().kernel()->pid();
  InitRequest init;
  init.env_vars = std::map<std::string, std::string>{{"LATE", "yes"}};
  state_.apply(std::move(init));
  interpreter_->initialised();
  run_void(eventually([this] { return python().kernel()->ready(); }));
  EXPECT_EQ(execute({{"code", "show start"}})->result().at("env").at("LATE"), "yes");
  EXPECT_EQ(execute({{"code", "show pid"}})->result(), pid);
  EXPECT_EQ(execute({{"code", "show warm"}})->result(), true);
  EXPECT_THAT(told(""), ElementsAre("number_of_executions 4", "end_of_execution"));
}

TEST_F(NurseryTest, FirstRunStartsAPreparedKernel) {
  start_nursery();
  wait_for_kernel();
  EXPECT_TRUE(forked());
  EXPECT_TRUE(forked(new_context()));
  EXPECT_EQ(execute({{"code", "die"}})->told().at(1), "error ContextRestarting");
  EXPECT_TRUE(forked());
}

TEST_F(NurseryTest, ChangedPackagesMeanColdStarts) {
  start_nursery();
  wait_for_kernel();
  EXPECT_TRUE(forked());
  std::filesystem::create_directory(packages_ + "/new_package");
  EXPECT_FALSE(forked(new_context()));
}

TEST_F(NurseryTest, NurseryThatIsGone) {
  start_nursery();
  wait_for_kernel();
  ::kill(std::exchange(nursery_, 0), SIGKILL);
  EXPECT_EQ(execute({{"code", "print x"}})->told().at(1), "stdout x\n");
  EXPECT_FALSE(forked(new_context()));
}

TEST_F(NurseryTest, NurseryThatNamesAnotherProcess) {
  start_nursery("lies");
  wait_for_kernel();
  EXPECT_FALSE(forked());
}

TEST_F(NurseryTest, NurseryThatRefuses) {
  start_nursery("refuses");
  wait_for_kernel();
  EXPECT_FALSE(forked());
}

TEST_F(NurseryTest, WarmWithoutNurseryStartsCold) {
  const auto warming = [&]() -> net::Task<bool> { co_return (co_await interpreter_->warm()).ok(); };
  EXPECT_TRUE(run(warming()));
  EXPECT_FALSE(forked());
  EXPECT_EQ(execute({{"code", "show warm"}})->result(), true);
}

}  // namespace
}  // namespace atl::agent::interpreter
