// The life of sandboxes: freezing, many at once, the end of either side, failure of every step.
#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <set>
#include <sstream>

#include "jail_fixture.h"

namespace atl::testing {
namespace {

using std::chrono::milliseconds;

class JailLife : public JailTest {
 protected:
  void begin(std::vector<std::string> extra = {}) {
    auto started = start(std::move(extra));
    ASSERT_TRUE(started.ok()) << started.error().message;
  }
  std::size_t warden_fds() {
    std::size_t count = 0;
    DIR* dir = ::opendir(("/proc/" + std::to_string(runtime_->warden_pid()) + "/fd").c_str());
    if (dir == nullptr) return 0;
    while (::readdir(dir) != nullptr) ++count;
    ::closedir(dir);
    return count;
  }
  // The number once it no longer changes: spare disks are made when the warden is idle.
  std::size_t settled_fds() {
    std::size_t last = 0;
    for (int same = 0, i = 0; same < 10 && i < 500; ++i) {
      pause_for(milliseconds(20));
      const std::size_t now = warden_fds();
      same = now == last ? same + 1 : 0;
      last = now;
    }
    return last;
  }
};

TEST_F(JailLife, FreezeStopsAndThawContinues) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const SandboxId id = create();
  // Counts for as long as it runs.
  EXPECT_EQ(
      inside(
          id,
          "sh -c 'i=0; while :; do i=$((i+1)); echo $i > /tmp/count; done' > /dev/null 2>&1 & true")
          .code,
      0);
  const std::string pid = std::to_string(init_pid(id));
  const std::string count = "/proc/" + pid + "/root/tmp/count";
  // It may take a while on a busy machine until it runs, and a read may meet the moment between
  // truncation and write.
  const auto changes = [&] {
    std::set<std::string> seen;
    for (int i = 0; i < 500 && seen.size() < 3; ++i) {
      pause_for(milliseconds(10));
      const std::string now = read_text(count);
      if (!now.empty()) seen.insert(now);
    }
    return seen.size() >= 3;
  };
  EXPECT_TRUE(changes());

  ASSERT_TRUE(await(runtime_->freeze(id)).ok());
  const std::string frozen = read_text(count);
  pause_for(milliseconds(200));
  EXPECT_EQ(read_text(count), frozen);
  ASSERT_TRUE(await(runtime_->freeze(id)).ok()) << "freezing twice is fine";

  ASSERT_TRUE(await(runtime_->thaw(id)).ok());
  EXPECT_TRUE(changes());
  EXPECT_EQ(inside(id, "echo alive").output, "alive\n");
  ASSERT_TRUE(await(runtime_->freeze(id)).ok());
  destroy(id);  // frozen ones can be destroyed
}

TEST_F(JailLife, ErrorsAreTyped) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const SandboxId id = create();
  runtime::SandboxSpec again = spec();
  again.id = id;
  auto twice = await(runtime_->create(again));
  ASSERT_FALSE(twice.ok());
  EXPECT_EQ(twice.error().code, Errc::already_exists);

  runtime::SandboxSpec unknown = spec();
  unknown.template_id = "no-such";
  auto missing = await(runtime_->create(unknown));
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, Errc::not_found);

  for (const char* bad : {"../base", "base/rootfs", "", "Base", "a\nb"}) {
    runtime::SandboxSpec evil = spec();
    evil.template_id = bad;
    auto refused = await(runtime_->create(evil));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Errc::invalid_argument) << bad;
  }
  runtime::SandboxSpec tiny = spec();
  tiny.limits.memory_bytes = 1;
  auto refused = await(runtime_->create(tiny));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::invalid_argument);

  const SandboxId nobody = SandboxId::generate();
  EXPECT_EQ(await(runtime_->destroy(nobody)).error().code, Errc::not_found);
  EXPECT_EQ(await(runtime_->freeze(nobody)).error().code, Errc::not_found);
  EXPECT_EQ(await(runtime_->connect_agent(nobody)).error().code, Errc::not_found);
  destroy(id);
  EXPECT_EQ(await(runtime_->destroy(id)).error().code, Errc::not_found);
}

TEST_F(JailLife, ExitOfTheAgentIsNoticedAndDeadOnesAreDestroyed) {
  ASSERT_NO_FATAL_FAILURE(begin());
  std::vector<runtime::ExitNotice> notices;
  runtime_->on_exit([&](runtime::ExitNotice notice) { notices.push_back(notice); });
  const SandboxId id = create();
  const SandboxId killed = create();
  ASSERT_EQ(::kill(init_pid(id), SIGKILL), 0);
  for (int i = 0; i < 100 && notices.empty(); ++i) pause_for(milliseconds(20));
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_EQ(notices[0].id, id);
  EXPECT_TRUE(notices[0].signaled);
  EXPECT_EQ(notices[0].status, SIGKILL);
  EXPECT_EQ(await(runtime_->freeze(id)).error().code, Errc::failed_precondition);
  destroy(id);

  ASSERT_TRUE(await(runtime_->kill(killed)).ok());
  EXPECT_EQ(init_pid(killed), 0);
  pause_for(milliseconds(50));
  EXPECT_EQ(notices.size(), 1u) << "a kill that was asked for is no news";
  destroy(killed);
}

// What the workers of a test share; all run on one thread.
struct Churn {
  runtime::JailRuntime& runtime;
  std::function<runtime::SandboxSpec()> spec;
  int left;
  int running = 0;
  std::vector<std::string> failures;
  std::vector<double> create_ms;
};

net::Task<void> churn(Churn& shared) {
  while (shared.left > 0) {
    --shared.left;
    runtime::SandboxSpec wanted = shared.spec();
    const SandboxId id = wanted.id;
    const auto begin = std::chrono::steady_clock::now();
    auto created = co_await shared.runtime.create(std::move(wanted));
    shared.create_ms.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
            .count());
    if (!created.ok()) {
      shared.failures.push_back(created.error().message);
      continue;
    }
    auto destroyed = co_await shared.runtime.destroy(id);
    if (!destroyed.ok()) shared.failures.push_back(destroyed.error().message);
  }
  --shared.running;
}

TEST_F(JailLife, TwoHundredTwentyAtATimeLeaveNothing) {
  ASSERT_NO_FATAL_FAILURE(begin());
  for (int i = 0; i < 3; ++i) destroy(create());  // what is made once
  const std::size_t before = settled_fds();
  Churn shared{*runtime_, [this] { return spec(); }, 200};
  const auto begin_all = std::chrono::steady_clock::now();
  for (int i = 0; i < 20; ++i) {
    ++shared.running;
    net::asio::co_spawn(io_, churn(shared), net::asio::detached);
  }
  io_.restart();
  while (shared.running > 0 && io_.run_one_for(std::chrono::seconds(60)) > 0) {
  }
  const double total =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_all).count();
  EXPECT_EQ(shared.running, 0);
  EXPECT_EQ(shared.failures, std::vector<std::string>());
  std::vector<double>& times = shared.create_ms;
  ASSERT_EQ(times.size(), 200u);
  std::sort(times.begin(), times.end());
  std::printf("200 creates and destroys, 20 at a time: %.1f s, create p50 %.1f ms, p99 %.1f ms\n",
              total, times[100], times[198]);
  EXPECT_EQ(settled_fds(), before);
  EXPECT_EQ(leaks(), "");
}

TEST_F(JailLife, StepTimes) {
  ASSERT_NO_FATAL_FAILURE(begin());
  std::map<std::string, std::vector<long>> steps;
  std::vector<std::string> order;
  std::vector<double> totals;
  std::vector<double> destroys;
  for (int i = 0; i < 40; ++i) {
    runtime::SandboxSpec wanted = spec();
    wanted.limits.disk_bytes = 5ull << 30;
    const SandboxId id = wanted.id;
    const auto begin = std::chrono::steady_clock::now();
    auto created = await(runtime_->create(wanted));
    ASSERT_TRUE(created.ok()) << created.error().message;
    totals.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
            .count());
    for (const runtime::StepTime& step : created->steps) {
      if (!steps.contains(step.step)) order.push_back(step.step);
      steps[step.step].push_back(step.took.count());
    }
    const auto end = std::chrono::steady_clock::now();
    destroy(id);
    destroys.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - end).count());
  }
  EXPECT_GE(order.size(), 35u);
  for (auto* list : {&totals, &destroys}) std::sort(list->begin(), list->end());
  std::printf("create p50 %.2f ms p90 %.2f ms; destroy p50 %.2f ms p90 %.2f ms\n", totals[20],
              totals[36], destroys[20], destroys[36]);
  for (const std::string& name : order) {
    std::vector<long>& values = steps[name];
    std::sort(values.begin(), values.end());
    std::printf("  %-18s p50 %5ld us  p90 %5ld us\n", name.c_str(), values[values.size() / 2],
                values[values.size() * 9 / 10]);
  }
}

TEST_F(JailLife, KilledWardenLeavesSandboxesAndTheNextOneFindsThem) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const SandboxId id = create();
  const SandboxId dead = create();
  EXPECT_EQ(inside(id, "echo kept > /tmp/f").code, 0);
  const int pid = init_pid(id);
  ASSERT_EQ(::kill(runtime_->warden_pid(), SIGKILL), 0);
  bool lost = false;
  runtime_->on_lost([&] { lost = true; });
  for (int i = 0; i < 100 && !lost; ++i) pause_for(milliseconds(20));
  auto gone = await(runtime_->freeze(id));
  ASSERT_FALSE(gone.ok());
  EXPECT_EQ(gone.error().code, Errc::unavailable);
  EXPECT_EQ(init_pid(id), pid) << "the sandbox must go on";
  stop();
  ASSERT_EQ(::kill(init_pid(dead), SIGKILL), 0);
  pause_for(milliseconds(50));

  ASSERT_NO_FATAL_FAILURE(begin());
  auto list = await(runtime_->list());
  ASSERT_TRUE(list.ok());
  EXPECT_EQ(list->size(), 2u);
  EXPECT_EQ(inside(id, "cat /tmp/f").output, "kept\n");
  ASSERT_TRUE(await(runtime_->freeze(id)).ok());
  ASSERT_TRUE(await(runtime_->thaw(id)).ok());
  const SandboxId fresh = create();  // does not get the range of an adopted one
  EXPECT_NE(inside(id, "cat /proc/self/uid_map").output,
            inside(fresh, "cat /proc/self/uid_map").output);
  destroy(id);
  destroy(dead);
  destroy(fresh);
  EXPECT_EQ(leaks(), "");
}

net::Task<void> create_and_forget(runtime::JailRuntime& runtime, runtime::SandboxSpec spec,
                                  int& open) {
  (void)co_await runtime.create(std::move(spec));
  --open;
}

TEST_F(JailLife, KilledInTheMiddleOfLaunches) {
  for (int round = 0; round < 12; ++round) {
    ASSERT_NO_FATAL_FAILURE(begin());
    int open = 4;
    for (int i = 0; i < 4; ++i) {
      net::asio::co_spawn(io_, create_and_forget(*runtime_, spec(), open), net::asio::detached);
    }
    pause_for(milliseconds(1 + round * 3));
    ASSERT_EQ(::kill(runtime_->warden_pid(), SIGKILL), 0);
    for (int i = 0; i < 500 && open > 0; ++i) pause_for(milliseconds(10));
    EXPECT_EQ(open, 0) << "every call must end";
    stop();
    ASSERT_NO_FATAL_FAILURE(begin());
    auto list = await(runtime_->list());
    ASSERT_TRUE(list.ok());
    for (const auto& found : *list) destroy(found.id);
    stop();
    ASSERT_EQ(leaks(), "") << "round " << round;
  }
}

TEST_F(JailLife, TwoWardensDoNotShareAHome) {
  ASSERT_NO_FATAL_FAILURE(begin());
  net::asio::io_context other_io;
  runtime::WardenOptions options;
  options.home = home_;
  options.instance = "test";
  options.templates = templates_;
  options.warden_path = ATOLL_WARDEN;
  options.agent_path = ATOLL_PROBE_AGENT;
  auto second = runtime::JailRuntime::start(other_io, options);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, Errc::failed_precondition) << second.error().message;
}

// The warden works on a process that is gone by then: what is told is why it went.
TEST_F(JailLife, AnEarlyFailureInsideIsTheReasonWhateverElseFailsOfIt) {
  for (const char* late : {"ids", "oom_score", "network.link", "template", "root", "handover"}) {
    ASSERT_NO_FATAL_FAILURE(begin({"--fail-at", "cgroup.enter", "--late-at", late}));
    auto created = await(runtime_->create(spec()));
    ASSERT_FALSE(created.ok()) << late;
    EXPECT_EQ(created.error().sys_errno, EIO) << late << ": " << created.error().message;
    EXPECT_TRUE(created.error().message.starts_with("cgroup.enter:"))
        << late << ": " << created.error().message;
    EXPECT_EQ(leaks(), "") << late;
    stop();
  }
}

TEST_F(JailLife, FailureOfAnyStepLeavesNothing) {
  const std::vector<std::string> names = step_names();
  ASSERT_GE(names.size(), 35u);
  for (const std::string& name : names) {
    ASSERT_NO_FATAL_FAILURE(begin({"--fail-at", name}));
    for (int i = 0; i < 2; ++i) EXPECT_FALSE(await(runtime_->create(spec())).ok());
    const std::size_t before = settled_fds();
    auto created = await(runtime_->create(spec()));
    ASSERT_FALSE(created.ok()) << name;
    EXPECT_EQ(created.error().sys_errno, EIO) << name << ": " << created.error().message;
    EXPECT_TRUE(created.error().message.starts_with(name + ":")) << created.error().message;
    EXPECT_EQ(settled_fds(), before) << name;
    auto list = await(runtime_->list());
    ASSERT_TRUE(list.ok());
    EXPECT_TRUE(list->empty()) << name;
    EXPECT_EQ(leaks(), "") << name;
    stop();
  }
}

TEST_F(JailLife, LayersByStageWorkAsOnOlderKernels) {
  ASSERT_NO_FATAL_FAILURE(begin({"--layers-by-stage"}));
  const SandboxId id = create();
  EXPECT_EQ(inside(id, "cat /etc/hostname").output, "e2b\n");
  EXPECT_EQ(inside(id, "echo x >> /etc/passwd && tail -1 /etc/passwd").output, "x\n");
  const std::string mounts = inside(id, "cat /proc/self/mountinfo").output;
  EXPECT_EQ(mounts.find(home_), std::string::npos) << mounts;
  EXPECT_EQ(mounts.find(templates_), std::string::npos) << mounts;
  EXPECT_EQ(host("grep -c . /proc/" + std::to_string(runtime_->warden_pid()) + "/mountinfo"),
            host("grep -c . /proc/" + std::to_string(runtime_->warden_pid()) + "/mountinfo"));
  EXPECT_EQ(host("grep -E 'stage/(lower|disk)' /proc/" + std::to_string(runtime_->warden_pid()) +
                 "/mountinfo"),
            "");
}

TEST_F(JailLife, CgroupV2) {
  const std::string mount =
      host("awk '$0 ~ / - cgroup2 / {printf \"%s\", $5; exit}' /proc/self/mountinfo");
  if (mount.empty()) GTEST_SKIP() << "no cgroup2 mount";
  ASSERT_NO_FATAL_FAILURE(begin({"--unsafe-cgroup2-without-limits", mount}));
  const SandboxId id = create();
  EXPECT_EQ(inside(id, "grep '^0::' /proc/self/cgroup").output, "0::/\n");
  EXPECT_EQ(inside(id, "(while :; do date +%N > /tmp/count; done) > /dev/null 2>&1 & true").code,
            0);
  const std::string dir =
      host("find " + mount + "/atoll -mindepth 2 -maxdepth 2 -name " + id.str() + " | tr -d '\\n'");
  ASSERT_FALSE(dir.empty());
  ASSERT_TRUE(await(runtime_->freeze(id)).ok());
  EXPECT_NE(read_text(dir + "/cgroup.events").find("frozen 1"), std::string::npos);
  ASSERT_TRUE(await(runtime_->thaw(id)).ok());
  EXPECT_EQ(inside(id, "echo alive").output, "alive\n");
  ASSERT_TRUE(await(runtime_->freeze(id)).ok());
  destroy(id);
  EXPECT_NE(::access(dir.c_str(), F_OK), 0);
}

TEST_F(JailLife, AnUnprivilegedServerConnectsAndNobodyElse) {
  server_gid_ = 54321;
  ASSERT_NO_FATAL_FAILURE(begin());
  const SandboxId id = create();
  const auto as = [&](gid_t gid) {
    EXPECT_EQ(::setegid(gid), 0);
    EXPECT_EQ(::seteuid(65534), 0);
    auto stream = await(runtime_->connect_agent(id));
    EXPECT_EQ(::seteuid(0), 0);
    EXPECT_EQ(::setegid(0), 0);
    return stream.ok() ? Errc{} : stream.error().code;
  };
  EXPECT_EQ(as(54321), Errc{});
  EXPECT_EQ(as(54322), Errc::permission_denied);
  EXPECT_EQ(as(65534), Errc::permission_denied);
}

TEST_F(JailLife, BusySandboxesAreDestroyedToo) {
  ASSERT_NO_FATAL_FAILURE(begin());
  runtime::SandboxSpec wanted = spec();
  wanted.limits.pids = 200;
  const SandboxId id = create(wanted);
  EXPECT_EQ(inside(id, "trap '' TERM INT HUP; sleep 1000 > /dev/null 2>&1 &").code, 0);
  EXPECT_EQ(
      inside(id, "sh -c 'dd if=/dev/zero of=/home/user/big bs=1M count=600' > /dev/null 2>&1 &", 0)
          .code,
      0);
  // Last: it leaves no room for another process.
  EXPECT_EQ(inside(id, "sh -c 'f() { f | f & }; f' > /dev/null 2>&1 &", 1000).code, 0);
  pause_for(milliseconds(300));
  const SandboxId other = create();
  destroy(id);
  EXPECT_EQ(inside(other, "echo fine").output, "fine\n");
}

TEST_F(JailLife, ListsOfManyPages) {
  ASSERT_NO_FATAL_FAILURE(begin());
  std::set<std::string> made;
  for (int i = 0; i < 40; ++i) made.insert(create().str());
  auto list = await(runtime_->list());
  ASSERT_TRUE(list.ok());
  std::set<std::string> listed;
  for (const auto& found : *list) listed.insert(found.id.str());
  EXPECT_EQ(listed, made);
}

TEST_F(JailLife, TheWardenListensNowhere) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const std::string pid = std::to_string(runtime_->warden_pid());
  // Sockets it holds: the control pair, and to the kernel's routing and firewall for the host's
  // namespace and the router's. No internet sockets.
  const std::string sockets =
      host("ls -l /proc/" + pid + "/fd | grep -o 'socket:\\[[0-9]*\\]' | sort -u | wc -l");
  EXPECT_EQ(sockets, "5\n");
  EXPECT_EQ(host("ss -Hantu"), "");
  EXPECT_EQ(host("tr -d '\\0' < /proc/" + pid + "/environ"), "");
  EXPECT_EQ(host("ls /proc/" + pid + "/task | wc -l"), "1\n");
  EXPECT_NE(host("readlink /proc/" + pid + "/ns/mnt"), host("readlink /proc/self/ns/mnt"));
  // Of its mounts the host sees the one that keeps the router.
  EXPECT_EQ(host("grep atoll /proc/self/mountinfo | grep -vc ' - nsfs '"), "0\n");
  EXPECT_EQ(host("grep -c nsfs /proc/" + pid + "/mountinfo"), "0\n");
}

}  // namespace
}  // namespace atl::testing
