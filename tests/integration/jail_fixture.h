// Helpers of the jail's integration tests: a warden of our own below a temporary home, and commands
// run inside its sandboxes.
//
// Needs root and a template: ATOLL_TEST_HOME/templates/base/rootfs, or ATOLL_TEST_TEMPLATES. Skips
// with the reason otherwise.
#pragma once

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/jail/jail_runtime.h"

namespace atl::testing {

struct Ran {
  std::string output;
  int code = -1;
};

class JailTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // Starts a warden for this test's home; extra arguments go to it.
  Result<void> start(std::vector<std::string> extra_args = {});
  // Closes the connection, after which the warden ends.
  void stop();

  runtime::SandboxSpec spec() const;
  // Creates one and fails the test if that does not work.
  SandboxId create();
  SandboxId create(runtime::SandboxSpec spec);
  Ran inside(const SandboxId& id, const std::string& command, unsigned uid = 0);
  void destroy(const SandboxId& id);
  // The pid of the sandbox's first process as the host sees it, by its cgroup.
  int init_pid(const SandboxId& id);
  std::string cgroup_dir(const std::string& controller, const SandboxId& id);

  void pause_for(std::chrono::milliseconds time);
  // SIGKILL to the warden; returns when it is gone and this side has noticed.
  void kill_warden();
  // Names of the steps of a launch, of a reboot if `option` is --kept.
  std::vector<std::string> step_names(const std::string& option = "");
  // Names of the steps of another operation: "kill", "destroy", ...
  std::vector<std::string> operation_steps(const std::string& operation);
  // nullopt: not listed.
  std::optional<runtime::Condition> condition(const SandboxId& id);

  // What `tests/testing/leakcheck` finds for this home; empty = nothing.
  std::string leaks();

  template <class T>
  Result<T> await(net::Task<Result<T>> task) {
    std::optional<Result<T>> out;
    auto work = store<T>(std::move(task), out);
    net::asio::co_spawn(io_, std::move(work), net::asio::detached);
    io_.restart();
    while (!out) {
      if (io_.run_one_for(std::chrono::seconds(60)) == 0)
        return make_error(Errc::deadline_exceeded, "test timed out");
    }
    return std::move(*out);
  }

  net::asio::io_context io_;
  std::unique_ptr<runtime::JailRuntime> runtime_;
  gid_t server_gid_ = 0;
  std::string home_;
  std::string templates_;
  std::string tools_;  // ATOLL_TOOLS, or ATOLL_TEST_HOME/tools
  std::string agent_path_ = ATOLL_PROBE_AGENT;
  std::string kernels_path_ = ATOLL_KERNELS;

 private:
  template <class T>
  static net::Task<void> store(net::Task<Result<T>> task, std::optional<Result<T>>& out) {
    out.emplace(co_await std::move(task));
  }
};

// As JailTest::inside, for coroutines.
net::Task<Result<Ran>> run_inside(runtime::JailRuntime& runtime, SandboxId id, std::string request);

std::string read_text(const std::string& path);
// The output of a command on the host.
std::string host(const std::string& command);

}  // namespace atl::testing
