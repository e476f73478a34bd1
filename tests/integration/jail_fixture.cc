#include "jail_fixture.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/steady_timer.hpp>
#include <fstream>
#include <sstream>

namespace atl::testing {
net::Task<Result<Ran>> run_inside(runtime::JailRuntime& runtime, SandboxId id,
                                  std::string request) {
  ATOLL_CO_TRY_ASSIGN(std::unique_ptr<net::Stream> stream, co_await runtime.connect_agent(id));
  stream->set_read_timeout(std::chrono::seconds(60));
  ATOLL_CO_TRY(co_await stream->write_all(request));
  stream->shutdown_write();
  Ran ran;
  char buffer[4096];
  for (;;) {
    ATOLL_CO_TRY_ASSIGN(std::size_t n, co_await stream->read_some(buffer));
    if (n == 0) break;
    ran.output.append(buffer, n);
  }
  const std::size_t at = ran.output.rfind("\nexit=");
  if (at == std::string::npos) co_return make_error(Errc::internal, "no exit line: " + ran.output);
  ran.code = std::atoi(ran.output.c_str() + at + 6);
  ran.output.resize(at);
  co_return ran;
}

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}

std::string host(const std::string& command) {
  std::string out;
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return "popen failed";
  char buffer[4096];
  std::size_t n = 0;
  while ((n = ::fread(buffer, 1, sizeof(buffer), pipe)) > 0) out.append(buffer, n);
  ::pclose(pipe);
  return out;
}

namespace {

// All of this process, wardens and commands on the "host" included, is in a network namespace of
// its own: no test touches the machine's network.
bool leave_the_network() {
  static const bool left = ::unshare(CLONE_NEWNET) == 0 && host("ip link set lo up").empty();
  return left;
}

}  // namespace

void JailTest::SetUp() {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  ASSERT_TRUE(leave_the_network());
  const char* templates = ::getenv("ATOLL_TEST_TEMPLATES");
  const char* home = ::getenv("ATOLL_TEST_HOME");
  if (templates != nullptr) {
    templates_ = templates;
  } else if (home != nullptr) {
    templates_ = std::string(home) + "/templates";
  }
  if (templates_.empty() || ::access((templates_ + "/base/rootfs/bin/sh").c_str(), X_OK) != 0) {
    GTEST_SKIP() << "no template: set ATOLL_TEST_HOME to a home with templates/base/rootfs";
  }
  const char* tools = ::getenv("ATOLL_TOOLS");
  if (tools != nullptr) {
    tools_ = tools;
  } else if (home != nullptr) {
    tools_ = std::string(home) + "/tools";
  }
  char name[] = "/var/tmp/atoll-jail-test-XXXXXX";
  ASSERT_NE(::mkdtemp(name), nullptr);
  home_ = name;
}

void JailTest::TearDown() {
  if (home_.empty()) return;
  if (runtime_ && !IsSkipped()) {
    auto left = await(runtime_->list());
    if (left.ok()) {
      for (const auto& found : *left) EXPECT_TRUE(await(runtime_->destroy(found.id)).ok());
    }
  }
  stop();
  EXPECT_EQ(leaks(), "");
  EXPECT_EQ(host("rm -rf --one-file-system " + home_), "");
}

Result<void> JailTest::start(std::vector<std::string> extra_args) {
  runtime::WardenOptions options;
  options.home = home_;
  options.instance = "test";
  options.templates = templates_;
  options.warden_path = ATOLL_WARDEN;
  options.agent_path = agent_path_;
  options.kernels_path = kernels_path_;
  options.server_gid = server_gid_;
  options.tools = tools_;
  options.extra_args = std::move(extra_args);
  ATOLL_TRY_ASSIGN(runtime_, runtime::JailRuntime::start(io_, std::move(options)));
  return {};
}

void JailTest::stop() {
  if (!runtime_) return;
  const pid_t warden = runtime_->warden_pid();
  runtime_.reset();
  io_.restart();
  io_.run_for(std::chrono::seconds(5));  // the client's last work
  for (int i = 0; i < 500 && ::access(("/proc/" + std::to_string(warden)).c_str(), F_OK) == 0; ++i)
    ::usleep(10000);
}

runtime::SandboxSpec JailTest::spec() const {
  runtime::SandboxSpec out{SandboxId::generate()};
  out.template_id = "base";
  out.hostname = "e2b";
  out.limits.disk_bytes = 1ull << 30;
  return out;
}

SandboxId JailTest::create() { return create(spec()); }

SandboxId JailTest::create(runtime::SandboxSpec spec) {
  SandboxId id = spec.id;
  auto created = await(runtime_->create(std::move(spec)));
  EXPECT_TRUE(created.ok()) << (created.ok() ? "" : created.error().message);
  return id;
}

Ran JailTest::inside(const SandboxId& id, const std::string& command, unsigned uid) {
  auto ran = await(run_inside(*runtime_, id, std::to_string(uid) + "\n" + command));
  EXPECT_TRUE(ran.ok()) << (ran.ok() ? "" : ran.error().message);
  return ran.ok() ? *ran : Ran{};
}

void JailTest::destroy(const SandboxId& id) {
  auto destroyed = await(runtime_->destroy(id));
  EXPECT_TRUE(destroyed.ok()) << (destroyed.ok() ? "" : destroyed.error().message);
}

std::string JailTest::cgroup_dir(const std::string& controller, const SandboxId& id) {
  std::string found = host("find /sys/fs/cgroup/" + controller +
                           "/atoll -mindepth 2 -maxdepth 2 -name " + id.str());
  while (!found.empty() && found.back() == '\n') found.pop_back();
  return found;
}

int JailTest::init_pid(const SandboxId& id) {
  const std::string v1 = "/sys/fs/cgroup/pids/atoll";
  const std::string dir =
      ::access(v1.c_str(), F_OK) == 0 ? cgroup_dir("pids", id) : cgroup_dir("", id);
  std::istringstream pids(read_text(dir + "/cgroup.procs"));
  int least = 0;
  for (int pid = 0; pids >> pid;) {
    if (least == 0 || pid < least) least = pid;
  }
  return least;
}

void JailTest::pause_for(std::chrono::milliseconds time) {
  net::asio::steady_timer timer(io_, time);
  bool done = false;
  timer.async_wait([&](boost::system::error_code) { done = true; });
  io_.restart();
  while (!done) io_.run_one();
}

void JailTest::kill_warden() {
  ASSERT_EQ(::kill(runtime_->warden_pid(), SIGKILL), 0);
  stop();
}

std::vector<std::string> JailTest::step_names(const std::string& option) {
  std::istringstream lines(host(std::string(ATOLL_WARDEN) + " --dry-run " + option));
  std::vector<std::string> names;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string number, actor, name;
    words >> number >> actor >> name;
    names.push_back(name);
  }
  return names;
}

std::vector<std::string> JailTest::operation_steps(const std::string& operation) {
  std::istringstream lines(host(std::string(ATOLL_WARDEN) + " --operation-steps"));
  std::vector<std::string> names;
  for (std::string line; std::getline(lines, line);) {
    if (line == operation || line.starts_with(operation + ".")) names.push_back(line);
  }
  EXPECT_FALSE(names.empty()) << operation;
  return names;
}

std::optional<runtime::Condition> JailTest::condition(const SandboxId& id) {
  auto list = await(runtime_->list());
  EXPECT_TRUE(list.ok());
  if (!list.ok()) return std::nullopt;
  for (const runtime::Listed& found : *list) {
    if (found.id == id) return found.condition;
  }
  return std::nullopt;
}

std::string JailTest::leaks() { return host(std::string(ATOLL_LEAKCHECK) + " --quiet " + home_); }

}  // namespace atl::testing
