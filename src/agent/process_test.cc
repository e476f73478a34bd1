// Real children of /bin/sh on an io_context of their own.
#include <signal.h>
#include <sys/stat.h>

#include <csignal>

#include "agent/process_test_support.h"
#include "agent/testing.h"

namespace atl::agent {
namespace {

std::uint32_t id(const ProcessManager::Started& started) {
  return std::uint32_t(started.process->pid());
}

TEST_F(ProcessTest, OutputThenEnd) {
  auto started = start(shell("echo hello; echo oops >&2; exit 3"));
  const Transcript seen = run(follow(*started.subscription));
  EXPECT_EQ(seen.out, "hello\n");
  EXPECT_EQ(seen.err, "oops\n");
  ASSERT_TRUE(seen.end);
  EXPECT_EQ(seen.end->exit_code(), 3);
  EXPECT_TRUE(seen.end->exited());
  EXPECT_EQ(seen.end->status(), "exit status 3");
  EXPECT_EQ(seen.end->error(), "exit status 3");
}

TEST_F(ProcessTest, SuccessHasNoError) {
  auto started = start(shell("true"));
  const Transcript seen = run(follow(*started.subscription));
  ASSERT_TRUE(seen.end);
  EXPECT_EQ(seen.end->exit_code(), 0);
  EXPECT_FALSE(seen.end->has_error());
}

TEST_F(ProcessTest, DeathBySignal) {
  auto started = start(shell("kill -SEGV $$"));
  const Transcript seen = run(follow(*started.subscription));
  ASSERT_TRUE(seen.end);
  EXPECT_EQ(seen.end->exit_code(), -1);
  EXPECT_FALSE(seen.end->exited());
  EXPECT_TRUE(seen.end->status().starts_with("signal: segmentation fault")) << seen.end->status();
}

TEST_F(ProcessTest, EnvironmentIsExactlyTheGivenOne) {
  ::setenv("ATOLL_TEST_LEAK", "1", 1);
  ProcessSpec spec = shell("");
  spec.config.set_cmd("env");
  spec.config.clear_args();
  spec.env.push_back("A=b c");
  auto started = start(std::move(spec));
  const Transcript seen = run(follow(*started.subscription));
  EXPECT_EQ(seen.out, "PATH=/usr/bin:/bin\nA=b c\n");
}

TEST_F(ProcessTest, NoDescriptorLeaks) {
  const int leak = ::dup(2);  // without CLOEXEC
  auto started = start(shell("ls /proc/self/fd | sort -n | tr '\\n' ' '"));
  const Transcript seen = run(follow(*started.subscription));
  ::close(leak);
  // `ls` adds the descriptor of the directory it reads.
  EXPECT_EQ(seen.out, "0 1 2 3 ");
}

TEST_F(ProcessTest, SignalsAreAtTheirDefaults) {
  ::signal(SIGPIPE, SIG_IGN);
  auto started = start(shell("grep -E '^Sig(Blk|Ign)' /proc/self/status"));
  const Transcript seen = run(follow(*started.subscription));
  EXPECT_EQ(seen.out, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
}

TEST_F(ProcessTest, MissingProgramIsLikeAShell) {
  ProcessSpec spec = shell("");
  spec.config.set_cmd("no-such-program");
  auto started = start(std::move(spec));
  const Transcript seen = run(follow(*started.subscription));
  EXPECT_NE(seen.err.find("no-such-program: not found"), std::string::npos) << seen.err;
  ASSERT_TRUE(seen.end);
  EXPECT_EQ(seen.end->exit_code(), 127);
}

TEST_F(ProcessTest, NotExecutableIs126) {
  const testing::TempDir scratch;
  testing::write_text(scratch / "file", "echo never\n");
  ProcessSpec spec = shell("");
  spec.config.set_cmd(scratch / "file");
  auto started = start(std::move(spec));
  const Transcript seen = run(follow(*started.subscription));
  ASSERT_TRUE(seen.end);
  EXPECT_EQ(seen.end->exit_code(), 126);
}

TEST_F(ProcessTest, ScriptWithoutInterpreterLine) {
  const testing::TempDir scratch;
  const std::string path = scratch / "script";
  FILE* file = std::fopen(path.c_str(), "w");
  ASSERT_NE(file, nullptr);
  std::fputs("echo script $1\n", file);
  std::fclose(file);
  ::chmod(path.c_str(), 0755);
  ProcessSpec spec = shell("");
  spec.config.set_cmd(path);
  spec.config.clear_args();
  spec.config.add_args("x");
  auto started = start(std::move(spec));
  EXPECT_EQ(run(follow(*started.subscription)).out, "script x\n");
}

TEST_F(ProcessTest, BadCwd) {
  ProcessSpec spec = shell("true");
  spec.cwd = "/no/such/dir";
  const auto missing = processes_.start(std::move(spec));
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, Errc::invalid_argument);
  EXPECT_EQ(missing.error().message, "cwd '/no/such/dir' does not exist");
  spec = shell("true");
  spec.cwd = "/etc/passwd";
  const auto file = processes_.start(std::move(spec));
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().code, Errc::invalid_argument);
  EXPECT_TRUE(file.error().message.starts_with(
      "error starting process '/bin/sh -c true': chdir /etc/passwd: "))
      << file.error().message;
  EXPECT_TRUE(processes_.list().empty());
}

TEST_F(ProcessTest, BadInputIsRefused) {
  ProcessSpec spec = shell(std::string("a\0b", 3));
  EXPECT_EQ(processes_.start(std::move(spec)).error().code, Errc::invalid_argument);
  spec = shell("true");
  (*spec.config.mutable_envs())["A=B"] = "x";
  EXPECT_EQ(processes_.start(std::move(spec)).error().code, Errc::invalid_argument);
  spec = shell(std::string(8 << 20, 'x'));  // longer than the kernel takes
  EXPECT_EQ(processes_.start(std::move(spec)).error().code, Errc::invalid_argument);
}

TEST_F(ProcessTest, CredentialsOfTheUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become somebody else";
  ProcessSpec spec =
      shell("id -u; id -g; id -G; cat /proc/self/oom_score_adj; cat /proc/self/status | grep ^Cap");
  spec.user.uid = 12345;
  spec.user.gid = 12346;
  spec.user.groups = {12346, 12347};
  auto started = start(std::move(spec));
  const Transcript seen = run(follow(*started.subscription));
  EXPECT_TRUE(seen.out.starts_with("12345\n12346\n12346 12347\n" + child_oom_score() + "\n"))
      << seen.out;
  EXPECT_NE(seen.out.find("CapEff:\t0000000000000000"), std::string::npos) << seen.out;
}

TEST_F(ProcessTest, CwdIsEnteredAsTheUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become somebody else";
  const testing::TempDir scratch;
  ASSERT_EQ(::chmod(scratch.path().c_str(), 0755), 0);
  const std::string path = scratch / "closed";
  ::mkdir(path.c_str(), 0700);
  ProcessSpec spec = shell("true");
  spec.cwd = path;
  spec.user.uid = 12345;
  const auto refused = processes_.start(std::move(spec));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::invalid_argument);
  EXPECT_TRUE(refused.error().message.ends_with("permission denied")) << refused.error().message;
}

net::Task<Transcript> feed(Process& process, Subscription& subscription) {
  EXPECT_TRUE((co_await process.write_stdin("")).ok());
  EXPECT_TRUE((co_await process.write_stdin("one ")).ok());
  Transcript seen;
  while (seen.out != "one ") {  // comes back without an end of input
    const Event event = co_await subscription.next(std::chrono::seconds(10));
    if (!event) break;
    seen.add(event->event());
  }
  EXPECT_EQ(seen.out, "one ");
  EXPECT_TRUE(
      (co_await process.write_stdin(std::string(300'000, 'x'))).ok());  // more than the pipe holds
  EXPECT_TRUE((co_await process.close_stdin()).ok());
  EXPECT_TRUE((co_await process.close_stdin()).ok());
  const auto late = co_await process.write_stdin("late");
  EXPECT_EQ(late.error().code, Errc::internal);
  EXPECT_EQ(late.error().message, "error writing to stdin: stdin not enabled or closed");
  const Transcript rest = co_await follow(subscription);
  seen.out += rest.out;
  seen.end = rest.end;
  co_return seen;
}

TEST_F(ProcessTest, Stdin) {
  auto started = start(shell("cat"));
  const Transcript seen = run(feed(*started.process, *started.subscription));
  EXPECT_EQ(seen.out.size(), 300'004u);
  ASSERT_TRUE(seen.end);
  EXPECT_EQ(seen.end->exit_code(), 0);
}

TEST_F(ProcessTest, StdinDisabledIsDevNull) {
  ProcessSpec spec = shell("cat; readlink /proc/self/fd/0");
  spec.stdin_pipe = false;
  auto started = start(std::move(spec));
  const auto refused = run(started.process->write_stdin("x"));
  EXPECT_EQ(refused.error().code, Errc::internal);
  EXPECT_TRUE(run(started.process->close_stdin()).ok());
  EXPECT_EQ(run(started.process->write_pty("x")).error().code, Errc::internal);
  EXPECT_EQ(started.process->resize({1, 1}).error().code, Errc::internal);
  EXPECT_EQ(run(follow(*started.subscription)).out, "/dev/null\n");
}

net::Task<bool> blocked_writer(Process& process) {
  const auto written = co_await process.write_stdin(std::string(1 << 20, 'x'));
  EXPECT_EQ(written.error().code, Errc::internal);
  co_return true;
}

TEST_F(ProcessTest, AWriterEndsWithItsProcess) {
  auto started = start(shell("sleep 0.05"));  // never reads
  EXPECT_TRUE(run(blocked_writer(*started.process)));
}

net::Task<bool> kill_and_see(ProcessManager& processes, ProcessManager::Started started) {
  EXPECT_TRUE(started.process->send_signal(SIGKILL).ok());
  const pid_t pid = started.process->pid();
  const Transcript seen = co_await follow(*started.subscription);
  EXPECT_TRUE(seen.end);
  EXPECT_EQ(seen.end->status(), "signal: killed");
  EXPECT_EQ(seen.end->exit_code(), -1);
  EXPECT_EQ(seen.out, "ready\n");
  EXPECT_NE(::kill(pid, 0), 0);  // reaped
  EXPECT_EQ(started.process->send_signal(SIGKILL).error().code, Errc::internal);
  EXPECT_EQ(processes.find(std::uint32_t(pid)).error().code, Errc::not_found);
  co_return true;
}

net::Task<bool> wait_for_output(Subscription& subscription, std::string text) {
  Transcript seen;
  while (seen.out.find(text) == std::string::npos) {
    const Event event = co_await subscription.next(std::chrono::seconds(10));
    if (!event) co_return false;
    seen.add(event->event());
  }
  co_return true;
}

TEST_F(ProcessTest, KillDoesNotWaitForAGrandchildWithTheOutput) {
  auto started = start(shell("sleep 5 & echo ready; exec sleep 60"));
  auto other = started.process->subscribe();
  ASSERT_TRUE(run(wait_for_output(*other, "ready")));
  const auto before = std::chrono::steady_clock::now();
  EXPECT_TRUE(run(kill_and_see(processes_, std::move(started))));
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(4));
}

net::Task<bool> reaped_while_output_is_open(ProcessManager& processes,
                                            ProcessManager::Started started) {
  const pid_t pid = started.process->pid();
  for (int i = 0; i < 500 && started.process->running(); ++i)
    co_await sleep_for(std::chrono::milliseconds(5));
  EXPECT_NE(::kill(pid, 0), 0);  // no zombie is left to be seen
  EXPECT_TRUE(processes.list().empty());
  EXPECT_FALSE(processes.find(std::uint32_t(pid)).ok());
  auto attached = processes.attach(std::uint32_t(pid));  // but it can be followed
  EXPECT_TRUE(attached.ok());
  if (!attached.ok()) co_return false;
  EXPECT_TRUE(std::holds_alternative<std::unique_ptr<Subscription>>(attached->followed));
  const Transcript seen = co_await follow(*started.subscription);
  EXPECT_EQ(seen.out, "now\nlater\n");
  EXPECT_TRUE(seen.end);
  const Transcript second =
      co_await follow(*std::get<std::unique_ptr<Subscription>>(attached->followed));
  EXPECT_EQ(second.out, "later\n");
  EXPECT_TRUE(second.end);
  co_return true;
}

TEST_F(ProcessTest, EndWaitsForOutputOfGrandchildren) {
  auto started = start(shell("echo now; (sleep 0.2; echo later) &"));
  EXPECT_TRUE(run(reaped_while_output_is_open(processes_, std::move(started))));
}

TEST_F(ProcessTest, EndIsRetained) {
  ProcessSpec spec = shell("exit 7");
  spec.tag = "seven";
  auto started = start(std::move(spec));
  const std::uint32_t pid = id(started);
  ASSERT_TRUE(run(follow(*started.subscription)).end);
  for (const Selector& selector : {Selector(pid), Selector(std::string("seven"))}) {
    const auto attached = processes_.attach(selector);
    ASSERT_TRUE(attached.ok());
    ASSERT_TRUE(std::holds_alternative<Retained>(attached->followed));
    EXPECT_EQ(std::get<Retained>(attached->followed).end.exit_code, 7);
    EXPECT_EQ(attached->pid, pid_t(pid));
  }
  // A new process with the tag takes its place.
  spec = shell("true");
  spec.tag = "seven";
  auto next = start(std::move(spec));
  ASSERT_TRUE(run(follow(*next.subscription)).end);
  const auto attached = processes_.attach(std::string("seven"));
  ASSERT_TRUE(attached.ok());
  EXPECT_EQ(attached->pid, next.process->pid());
  EXPECT_FALSE(processes_.attach(pid).ok());
}

TEST_F(ProcessTest, SelectionByTagLooksAtAll) {
  ProcessSpec a = shell("sleep 60"), b = shell("sleep 60");
  a.tag = "a";
  b.tag = "b";
  auto first = start(std::move(a));
  auto second = start(std::move(b));
  EXPECT_EQ((*processes_.find(std::string("a")))->pid(), first.process->pid());
  EXPECT_EQ((*processes_.find(std::string("b")))->pid(), second.process->pid());
  EXPECT_EQ(processes_.find(std::string("c")).error().message, "process with tag c not found");
  EXPECT_EQ(processes_.find(999999u).error().message, "process with pid 999999 not found");
  EXPECT_EQ(processes_.list().size(), 2u);
  EXPECT_TRUE(first.process->send_signal(SIGKILL).ok());
  EXPECT_TRUE(second.process->send_signal(SIGTERM).ok());
  EXPECT_EQ(run(follow(*first.subscription)).end->status(), "signal: killed");
  EXPECT_EQ(run(follow(*second.subscription)).end->status(), "signal: terminated");
}

TEST_F(ProcessTest, DeadlineKillsWithoutListeners) {
  ProcessSpec spec = shell("exec sleep 60");
  spec.kill_at = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
  auto started = start(std::move(spec));
  started.subscription.reset();  // the client left
  const std::uint32_t pid = id(started);
  const auto wait = [](std::shared_ptr<Process> process) -> net::Task<bool> {
    for (int i = 0; i < 1000 && !process->finished(); ++i)
      co_await sleep_for(std::chrono::milliseconds(5));
    co_return process->finished();
  };
  ASSERT_TRUE(run(wait(started.process)));
  EXPECT_EQ(std::get<Retained>(processes_.attach(pid)->followed).end.status, "signal: killed");
}

// The loop stands still as it does when the sandbox is frozen: that time is not the process's.
TEST_F(ProcessTest, TimeInWhichTheAgentWasFrozenDoesNotCount) {
  ProcessSpec spec = shell("sleep 30");
  spec.kill_at = std::chrono::steady_clock::now() + std::chrono::milliseconds(1300);
  auto started = start(std::move(spec));
  io_.restart();
  io_.run_for(std::chrono::milliseconds(200));
  for (int i = 0; i < 2; ++i) {
    ::usleep(2'000'000);
    io_.restart();
    io_.run_for(std::chrono::milliseconds(300));
    EXPECT_TRUE(started.process->running()) << "after freeze " << i;
  }
  const auto begin = std::chrono::steady_clock::now();
  const Transcript seen = run(follow(*started.subscription));
  ASSERT_TRUE(seen.end);
  EXPECT_EQ(seen.end->status(), "signal: killed");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
}

TEST_F(ProcessTest, OutputWithoutListenersIsDrained) {
  auto started = start(shell("head -c 1000000 /dev/zero; echo done >&2"));
  started.subscription.reset();
  const auto wait = [](std::shared_ptr<Process> process) -> net::Task<bool> {
    for (int i = 0; i < 1000 && !process->finished(); ++i)
      co_await sleep_for(std::chrono::milliseconds(5));
    co_return process->finished();
  };
  ASSERT_TRUE(run(wait(started.process)));
  EXPECT_EQ(started.process->end().exit_code, 0);
}

net::Task<bool> slow_and_fast(ProcessManager::Started started) {
  // Nobody reads `slow`: its queue fills, and the writer must stop.
  auto slow = started.process->subscribe();
  std::size_t got = 0;
  for (;;) {
    const Event event = co_await started.subscription->next(std::chrono::milliseconds(300));
    if (!event) break;  // stalled by the slow one
    got += event->event().data().stdout().size();
  }
  EXPECT_LE(got, (kQueueLimit + 1) * kPipeRead);
  EXPECT_LT(got, std::size_t(20'000'000));
  EXPECT_TRUE(started.process->running());
  slow.reset();  // it goes away, and the rest flows
  for (;;) {
    const Event event = co_await started.subscription->next(std::chrono::seconds(10));
    EXPECT_TRUE(event);
    if (!event || event->event().has_end()) break;
    got += event->event().data().stdout().size();
  }
  EXPECT_EQ(got, std::size_t(20'000'000));
  co_return true;
}

TEST_F(ProcessTest, ASlowSubscriberHoldsTheWriterAndLeavesWithoutATrace) {
  EXPECT_TRUE(run(slow_and_fast(start(shell("head -c 20000000 /dev/zero")))));
}

net::Task<bool> use_terminal(ProcessManager::Started started) {
  Process& process = *started.process;
  EXPECT_TRUE((co_await process.write_pty("stty size; echo x$A; tty\n"))
                  .ok());  // before the shell is ready
  EXPECT_EQ((co_await process.write_stdin("x")).error().code, Errc::internal);
  EXPECT_EQ((co_await process.close_stdin()).error().code, Errc::unknown);
  Transcript seen;
  while (seen.pty.find("24 80") == std::string::npos) {
    const Event event = co_await started.subscription->next(std::chrono::seconds(10));
    if (!event) break;
    seen.add(event->event());
  }
  EXPECT_TRUE(process.resize({100, 30}).ok());
  EXPECT_TRUE((co_await process.write_pty("stty size; ps -o pid= -o sid= -p $$; exit 4\n")).ok());
  const Transcript rest = co_await follow(*started.subscription);
  seen.pty += rest.pty;
  EXPECT_NE(seen.pty.find("24 80"), std::string::npos) << seen.pty;
  EXPECT_NE(seen.pty.find("30 100"), std::string::npos) << seen.pty;
  EXPECT_NE(seen.pty.find("xyes"), std::string::npos) << seen.pty;
  EXPECT_NE(seen.pty.find("/dev/pts/"), std::string::npos) << seen.pty;
  EXPECT_TRUE(rest.end);
  EXPECT_EQ(rest.end->exit_code(), 4);
  EXPECT_TRUE(seen.out.empty());
  co_return true;
}

TEST_F(ProcessTest, Terminal) {
  ProcessSpec spec = shell("");
  spec.config.clear_args();
  spec.env.push_back("A=yes");
  spec.env.push_back("PS1=");
  spec.pty = WindowSize{80, 24};
  auto started = start(std::move(spec));
  EXPECT_TRUE(started.process->is_pty());
  EXPECT_TRUE(run(use_terminal(std::move(started))));
}

TEST_F(ProcessTest, TerminalHangsUpItsChildren) {
  ProcessSpec spec = shell("sleep 60 & echo ready; exit 0");
  spec.pty = WindowSize{80, 24};
  auto started = start(std::move(spec));
  const auto before = std::chrono::steady_clock::now();
  const Transcript seen = run(follow(*started.subscription));
  ASSERT_TRUE(seen.end);
  EXPECT_NE(seen.pty.find("ready"), std::string::npos);
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(5));
}

}  // namespace
}  // namespace atl::agent
