// Zygotes and nurseries: what `prepare` and `warm` put into a sandbox, and what is left when
// something dies on the way.
//
// The template is code-interpreter-slim; the zygote's Python is zygote/zygote.py, whose kernels
// evaluate expressions, and zygote/asker.py plays the agent inside.
#include <dirent.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "jail_fixture.h"
#include "net/http.h"

namespace atl::testing {
namespace {

constexpr const char* kTemplate = "code-interpreter-slim";
constexpr const char* kListening = "/tmp/listening";

class JailZygote : public JailTest {
 protected:
  void SetUp() override {
    JailTest::SetUp();
    if (IsSkipped()) return;
    if (::access((templates_ + "/" + kTemplate + "/rootfs/usr/bin/python3").c_str(), X_OK) != 0)
      GTEST_SKIP() << "no template " << kTemplate;
    // Made of the built library and the test's own script.
    kernels_path_ = home_ + "-kernels";
    const std::string to = kernels_path_;
    ASSERT_EQ(host("mkdir -p " + to + "/python " + to + "/zygote && cp " + ATOLL_ZYGOTE_FILES +
                   "/zygote.py " + to + "/python/ && cp " + ATOLL_KERNELS + "/zygote/* " + to +
                   "/zygote/"),
              "");
  }
  void TearDown() override {
    JailTest::TearDown();
    if (!home_.empty()) EXPECT_EQ(host("rm -rf " + home_ + "-kernels"), "");
  }

  void prepared(std::vector<std::string> extra_args = {}) {
    auto started = start(std::move(extra_args));
    ASSERT_TRUE(started.ok()) << started.error().message;
    auto done = await(runtime_->prepare(kTemplate));
    ASSERT_TRUE(done.ok()) << done.error().message;
  }

  SandboxId create_slim() {
    runtime::SandboxSpec wanted = spec();
    wanted.template_id = kTemplate;
    wanted.limits.memory_bytes = 1ull << 30;
    return create(std::move(wanted));
  }

  static std::string quoted(const std::string& text) {
    std::string out = "'";
    for (char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return out + "'";
  }

  // Something that listens for the nursery and has `kernels` kernels evaluate each expression.
  void listen(const SandboxId& id, int kernels, const std::vector<std::string>& expressions) {
    std::string command = "rm -f " + std::string(kListening) + "; cat > /tmp/asker.py <<'END'\n" +
                          read_text(std::string(ATOLL_ZYGOTE_FILES) + "/asker.py") + "\nEND\n" +
                          "setsid python3 /tmp/asker.py " + kListening + " " +
                          std::to_string(kernels);
    for (const std::string& expression : expressions) command += " " + quoted(expression);
    command += " > /tmp/answers 2>&1 < /dev/null & while [ ! -e " + std::string(kListening) +
               " ]; do sleep 0.02; done";
    EXPECT_EQ(inside(id, command).code, 0);
  }
  // Lines that the kernels said; the first is about the nursery.
  std::vector<std::string> answers(const SandboxId& id) {
    const Ran ran = inside(id,
                           "for i in $(seq 500); do pgrep -f [a]sker.py > /dev/null || break; "
                           "sleep 0.02; done; cat /tmp/answers");
    std::vector<std::string> lines;
    std::istringstream in(ran.output);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }
  std::vector<std::string> warmed(const SandboxId& id, int kernels,
                                  const std::vector<std::string>& expressions) {
    listen(id, kernels, expressions);
    auto warm = await(runtime_->warm(id));
    EXPECT_TRUE(warm.ok()) << (warm.ok() ? "" : warm.error().message);
    if (!warm.ok()) return {};
    return answers(id);
  }

  // Children of the warden that run Python.
  std::vector<int> zygotes() {
    std::istringstream pids(read_text("/proc/" + std::to_string(runtime_->warden_pid()) + "/task/" +
                                      std::to_string(runtime_->warden_pid()) + "/children"));
    std::vector<int> out;
    for (int pid = 0; pids >> pid;) {
      if (read_text("/proc/" + std::to_string(pid) + "/comm") == "python3\n") out.push_back(pid);
    }
    return out;
  }

  // It tells how it failed before it ends.
  bool nobody_left(const SandboxId& id) {
    return inside(id,
                  "for i in $(seq 100); do pgrep -f [z]ygote.py > /dev/null || exit 0; "
                  "sleep 0.05; done; exit 1")
               .code == 0;
  }

  // Within two seconds: whoever adopts them has to reap them.
  static bool gone(const std::vector<int>& pids) {
    for (int i = 0; i < 200; ++i) {
      if (std::none_of(pids.begin(), pids.end(), [](int pid) {
            return ::access(("/proc/" + std::to_string(pid)).c_str(), F_OK) == 0;
          }))
        return true;
      ::usleep(10000);
    }
    return false;
  }
};

std::string status_field(const std::string& status, const std::string& name) {
  std::istringstream lines(status);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(name + ":"))
      return line.substr(line.find_first_not_of(" \t", name.size() + 1));
  return "";
}

TEST_F(JailZygote, ANurseryComesInAndForksKernels) {
  prepared();
  const SandboxId id = create_slim();
  const auto lines = warmed(id, 2,
                            {"6*7", "[os.getuid(), os.getgid(), os.getgroups()]",
                             "[os.getppid(), os.getpid() == KERNEL, os.getsid(0) == KERNEL]",
                             "sorted(os.listdir('/proc/self/fd'))[:4]"});
  ASSERT_EQ(lines.size(), 9u) << ::testing::PrintToString(lines);
  EXPECT_EQ(lines[0], "peer 0 0");
  for (std::size_t kernel : {1u, 5u}) {
    EXPECT_EQ(lines[kernel], "42");
    EXPECT_EQ(lines[kernel + 1], "[1000, 1000, [1000]]");
    EXPECT_EQ(lines[kernel + 2], "[1, true, true]");
    EXPECT_EQ(lines[kernel + 3], "[\"0\", \"1\", \"2\", \"3\"]");
  }
  EXPECT_EQ(await(runtime_->warm(id)).error().code, Errc::failed_precondition);
}

// A restored sandbox has a time namespace of its own. A kernel outside of it could be dumped, but
// not restored.
TEST_F(JailZygote, ARestoredSandboxGetsKernelsOfItsOwnTime) {
  prepared();
  if (tools_.empty()) GTEST_SKIP() << "no CRIU: set ATOLL_TOOLS to the directory above criu/";
  const SandboxId id = create_slim();
  ASSERT_TRUE(await(runtime_->freeze(id)).ok());
  auto written = await(runtime_->dump(id));
  ASSERT_TRUE(written.ok()) << written.error().message;
  runtime::SandboxSpec wanted = spec();
  wanted.id = id;
  wanted.template_id = kTemplate;
  wanted.limits.memory_bytes = 1ull << 30;
  wanted.disk = runtime::Disk::kept;
  wanted.memory = runtime::Memory::kept;
  auto revived = await(runtime_->create(std::move(wanted)));
  ASSERT_TRUE(revived.ok()) << revived.error().message;
  const auto lines = warmed(id, 1, {"os.readlink('/proc/self/ns/time')"});
  ASSERT_EQ(lines.size(), 2u);
  const std::string first = inside(id, "readlink /proc/1/ns/time").output;
  EXPECT_NE(first, host("readlink /proc/self/ns/time"));
  EXPECT_NE(lines[1].find(first.substr(0, first.find('\n'))), std::string::npos)
      << lines[1] << first;
}

TEST_F(JailZygote, WithoutAnAgentThatListensNothingStays) {
  prepared();
  const SandboxId id = create_slim();
  auto warm = await(runtime_->warm(id));
  ASSERT_FALSE(warm.ok());
  EXPECT_EQ(warm.error().code, Errc::unavailable) << warm.error().message;
  EXPECT_TRUE(nobody_left(id));
  EXPECT_EQ(condition(id), runtime::Condition::running);
  EXPECT_EQ(warmed(id, 1, {"1"}).size(), 2u);  // and it can be tried again
}

TEST_F(JailZygote, OnlyMarkedTemplatesOfRootArePrepared) {
  ASSERT_TRUE(start().ok());
  EXPECT_EQ(await(runtime_->prepare("base")).error().code, Errc::permission_denied);
  EXPECT_EQ(await(runtime_->prepare("none-such")).error().code, Errc::not_found);
  EXPECT_EQ(await(runtime_->prepare("../x")).error().code, Errc::invalid_argument);
  const SandboxId id = create_slim();
  EXPECT_EQ(await(runtime_->warm(id)).error().code, Errc::failed_precondition);
  EXPECT_TRUE(zygotes().empty());
}

TEST_F(JailZygote, AManifestThatOthersCanWriteIsNotBelieved) {
  const std::string own = home_ + "/mine";
  ASSERT_EQ(host("mkdir -p " + own + "/t/rootfs && echo '{\"zygote\":true}' > " + own +
                 "/t/manifest.json && chmod 755 " + own + " " + own + "/t " + own + "/t/rootfs"),
            "");
  templates_ = own;
  ASSERT_TRUE(start().ok());
  for (const char* path : {"/t/manifest.json", "/t/rootfs", "/t", ""}) {
    for (const char* change : {"chmod o+w ", "chown 1000 "}) {
      ASSERT_EQ(host(change + own + path), "");
      EXPECT_EQ(await(runtime_->prepare("t")).error().code, Errc::permission_denied)
          << change << path;
      ASSERT_EQ(host("chown 0 " + own + path + " && chmod o-w " + own + path), "");
    }
  }
  // Believed, but there is no Python in it.
  EXPECT_EQ(await(runtime_->prepare("t")).error().code, Errc::unavailable);
  ASSERT_EQ(host("echo '{\"zygote\":\"true\"}' > " + own + "/t/manifest.json"), "");
  EXPECT_EQ(await(runtime_->prepare("t")).error().code, Errc::permission_denied);
}

TEST_F(JailZygote, AZygoteHasWhatItNeedsAndNoMore) {
  prepared();
  ASSERT_FALSE(zygotes().empty());
  for (int pid : zygotes()) {
    const std::string proc = "/proc/" + std::to_string(pid);
    const std::string status = read_text(proc + "/status");
    // SYS_CHROOT, SYS_PTRACE, SYS_ADMIN
    for (const char* set : {"CapPrm", "CapEff", "CapBnd"})
      EXPECT_EQ(status_field(status, set), "00000000002c0000") << set;
    EXPECT_EQ(status_field(status, "Threads"), "1");
    EXPECT_EQ(host("tr '\\0' '\\n' < " + proc + "/environ"),
              "LANG=C.UTF-8\nPATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n");
    for (const char* ns : {"mnt", "net", "ipc", "uts"})
      EXPECT_NE(host("readlink " + proc + "/ns/" + ns),
                host("readlink /proc/self/ns/" + std::string(ns)));
    EXPECT_EQ(host("readlink " + proc + "/ns/pid"), host("readlink /proc/self/ns/pid"));
    EXPECT_EQ(host("ip -n /dev/null link 2>/dev/null; nsenter --net=" + proc +
                   "/ns/net ip -br addr | grep -vc '^lo'"),
              "0\n");
    std::istringstream mounts(read_text(proc + "/mountinfo"));
    for (std::string line; std::getline(mounts, line);) {
      std::istringstream parts(line);
      std::string skip, root, target, options;
      parts >> skip >> skip >> skip >> root >> target >> options;
      EXPECT_EQ(options.starts_with("ro"), target != "/tmp" && target != "/proc") << line;
      EXPECT_NE(options.find("nosuid"), std::string::npos) << line;
    }
    // Nobody but the warden: sockets and the log.
    const std::string fds = host("ls -l " + proc + "/fd");
    EXPECT_EQ(fds.find(home_), std::string::npos) << fds;
    EXPECT_EQ(std::count(fds.begin(), fds.end(), '>'), 5) << fds;  // 0-3 and its own pid namespace
  }
}

TEST_F(JailZygote, AKernelIsLikeACommand) {
  prepared();
  const SandboxId id = create_slim();
  const std::vector<std::string> files = {"/proc/self/uid_map", "/proc/self/gid_map",
                                          "/proc/self/cgroup",  "/proc/self/mountinfo",
                                          "/proc/self/limits",  "/proc/self/loginuid"};
  std::vector<std::string> expressions = {
      "open('/proc/self/status').read()",
      "sorted((n, os.readlink('/proc/self/ns/' + n)) for n in os.listdir('/proc/self/ns'))"};
  for (const std::string& file : files) expressions.push_back("open('" + file + "').read()");
  const auto lines = warmed(id, 1, expressions);
  ASSERT_EQ(lines.size(), 1 + expressions.size()) << ::testing::PrintToString(lines);
  // The same by a command: the same Python, started by the stand-in for the agent.
  for (std::size_t i = 1; i < expressions.size(); ++i) {
    const Ran ran = inside(id,
                           "python3 -c " + quoted("import os, json; print(json.dumps(" +
                                                  expressions[i] + ", default=str))"),
                           1000);
    EXPECT_EQ(lines[i + 1] + "\n", ran.output) << expressions[i];
  }
  std::string status = lines[1];
  for (std::size_t at; (at = status.find("\\n")) != std::string::npos;) status.replace(at, 2, "\n");
  for (std::size_t at; (at = status.find("\\t")) != std::string::npos;) status.replace(at, 2, "\t");
  const std::string command = inside(id, "cat /proc/self/status", 1000).output;
  for (const char* name :
       {"Uid", "Gid", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp",
        "Seccomp_filters", "Umask", "TracerPid", "SigBlk", "Cpus_allowed", "NSpid"}) {
    if (std::string_view(name) == "NSpid") continue;
    EXPECT_FALSE(status_field(command, name).empty()) << name;
    EXPECT_EQ(status_field(status, name), status_field(command, name)) << name;
  }
}

TEST_F(JailZygote, ADeadSandboxIsNotWarmedAndNothingIsMadeOutside) {
  prepared();
  const SandboxId id = create_slim();
  const int init = init_pid(id);
  // It dies while the zygote is stopped, so that the request is read when its first process is
  // gone.
  const auto all = zygotes();
  for (int pid : all) ASSERT_EQ(::kill(pid, SIGSTOP), 0);
  std::optional<Result<void>> warm;
  net::asio::co_spawn(
      io_,
      [&]() -> net::Task<void> {
        auto warming = runtime_->warm(id);
        warm.emplace(co_await std::move(warming));
      },
      net::asio::detached);
  pause_for(std::chrono::milliseconds(100));
  ASSERT_FALSE(warm);
  ASSERT_EQ(::kill(init, SIGKILL), 0);
  pause_for(std::chrono::milliseconds(200));
  for (int pid : all) ASSERT_EQ(::kill(pid, SIGCONT), 0);
  for (int i = 0; i < 100 && !warm; ++i) pause_for(std::chrono::milliseconds(50));
  ASSERT_TRUE(warm);
  EXPECT_FALSE(warm->ok());
  for (int pid : all)
    EXPECT_EQ(
        read_text("/proc/" + std::to_string(pid) + "/task/" + std::to_string(pid) + "/children"),
        "");
  EXPECT_EQ(zygotes(), all);
  const SandboxId other = create_slim();
  EXPECT_EQ(warmed(other, 1, {"1"}).size(), 2u);
}

TEST_F(JailZygote, ZygotesThatDieAreReplaced) {
  prepared();
  const auto before = zygotes();
  ASSERT_FALSE(before.empty());
  for (int pid : before) ASSERT_EQ(::kill(pid, SIGKILL), 0);
  const SandboxId id = create_slim();
  auto again = await(runtime_->prepare(kTemplate));
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(warmed(id, 1, {"1"}).size(), 2u);
  const auto after = zygotes();
  EXPECT_EQ(after.size(), before.size());
  for (int pid : before) EXPECT_EQ(std::count(after.begin(), after.end(), pid), 0);
}

TEST_F(JailZygote, NurseriesOutliveTheWardenZygotesDoNot) {
  prepared();
  const SandboxId id = create_slim();
  listen(id, 0, {});
  ASSERT_TRUE(await(runtime_->warm(id)).ok());
  const auto before = zygotes();
  kill_warden();
  EXPECT_TRUE(gone(before));
  prepared();
  EXPECT_EQ(condition(id), runtime::Condition::running);
  // It has a nursery, for all that is known.
  EXPECT_EQ(await(runtime_->warm(id)).error().code, Errc::failed_precondition);
  const SandboxId other = create_slim();
  EXPECT_EQ(warmed(other, 1, {"1"}).size(), 2u);
}

TEST_F(JailZygote, AFailedStepLeavesNoProcessAndAFailureInsideEndsTheSandbox) {
  const std::vector<std::pair<std::string, bool>> steps = {
      {"warm.pid_namespace", false}, {"warm.fork", false},        {"warm.between", false},
      {"warm.descriptors", false},   {"warm.cgroup", false},      {"warm.oom_score", false},
      {"warm.namespaces", false},    {"warm.connect", false},     {"warm.session", true},
      {"warm.root", true},           {"warm.bounding_set", true}, {"warm.groups", true},
      {"warm.filter", true},         {"warm.user", true},         {"warm.capabilities", true},
      {"warm.check", true},          {"warm.null", true}};
  for (const auto& [step, ends] : steps) {
    prepared({"--fail-at", step});
    if (HasFatalFailure()) return;
    const SandboxId id = create_slim();
    listen(id, 0, {});
    auto warm = await(runtime_->warm(id));
    ASSERT_FALSE(warm.ok()) << step;
    EXPECT_NE(warm.error().message.find(step), std::string::npos) << warm.error().message;
    for (int i = 0; ends && i < 100 && condition(id) == runtime::Condition::running; ++i)
      pause_for(std::chrono::milliseconds(20));
    EXPECT_EQ(condition(id), ends ? runtime::Condition::dead : runtime::Condition::running) << step;
    if (!ends) {
      EXPECT_TRUE(nobody_left(id)) << step;
    }
    destroy(id);
    stop();
    EXPECT_EQ(leaks(), "") << step;
  }
}

TEST_F(JailZygote, SiblingsShareNoRandomness) {
  prepared();
  std::vector<std::string> seen[5];
  const std::vector<std::string> sources = {"random.random()", "float(numpy.random.random())",
                                            "str(uuid.uuid4())", "secrets.token_hex(16)",
                                            "ssl.RAND_bytes(16).hex()"};
  for (int sandbox = 0; sandbox < 2; ++sandbox) {
    const SandboxId id = create_slim();
    const auto lines = warmed(id, 3, sources);
    ASSERT_EQ(lines.size(), 1 + 3 * sources.size()) << ::testing::PrintToString(lines);
    for (std::size_t i = 0; i < 3 * sources.size(); ++i)
      seen[i % sources.size()].push_back(lines[1 + i]);
  }
  for (std::size_t i = 0; i < sources.size(); ++i)
    EXPECT_EQ(std::set<std::string>(seen[i].begin(), seen[i].end()).size(), 6u) << sources[i];
}

// The zygote that templates really have.
TEST_F(JailZygote, TheRunnersOwnZygote) {
  kernels_path_ = ATOLL_KERNELS;
  prepared();
  const SandboxId id = create_slim();
  const auto lines = warmed(
      id, 2,
      {R"({"op":"warm"})",
       R"({"op":"start","env":{"HOME":"/home/user","A":"b"},"cwd":"/home/user"})",
       R"({"op":"execute","code":"import os, sys, numpy, pandas\n[sorted(os.environ), os.getcwd(), os.getuid(), 'matplotlib' in sys.modules]"})",
       R"({"op":"execute","code":"os.environ['A'] + open('/proc/self/environ').read().split('=')[0]"})"});
  ASSERT_EQ(lines.size(), 17u) << ::testing::PrintToString(lines);
  for (std::size_t kernel : {1u, 9u}) {
    EXPECT_EQ(lines[kernel], R"({"type":"warmed"})");
    EXPECT_EQ(lines[kernel + 1], R"({"type":"ready"})");
    EXPECT_NE(lines[kernel + 3].find("[['A', 'HOME', 'MPLBACKEND'], '/home/user', 1000, True]"),
              std::string::npos)
        << lines[kernel + 3];
    EXPECT_NE(lines[kernel + 6].find("bLANG"), std::string::npos) << lines[kernel + 6];
  }
}

TEST_F(JailZygote, AWornZygoteIsReplacedWithoutAGap) {
  prepared({"--zygote-forks", "2"});
  const auto before = zygotes();
  for (int i = 0; i < 8; ++i) {
    const SandboxId id = create_slim();
    EXPECT_EQ(warmed(id, 1, {"1"}).size(), 2u);
    destroy(id);
  }
  const auto all_new = [&] {
    const auto now = zygotes();
    return now.size() == before.size() && std::none_of(now.begin(), now.end(), [&](int pid) {
             return std::count(before.begin(), before.end(), pid) > 0;
           });
  };
  for (int i = 0; i < 200 && !all_new(); ++i) pause_for(std::chrono::milliseconds(50));
  EXPECT_TRUE(all_new());
}

TEST_F(JailZygote, AFrozenSandboxIsNotWarmed) {
  prepared();
  const SandboxId id = create_slim();
  ASSERT_TRUE(await(runtime_->freeze(id)).ok());
  EXPECT_EQ(await(runtime_->warm(id)).error().code, Errc::failed_precondition);
  ASSERT_TRUE(await(runtime_->thaw(id)).ok());
  listen(id, 0, {});
  ASSERT_TRUE(await(runtime_->warm(id)).ok());
  // A boot of the same disk is another sandbox: it has no nursery.
  ASSERT_TRUE(await(runtime_->kill(id)).ok());
  runtime::SandboxSpec again = spec();
  again.id = id;
  again.template_id = kTemplate;
  again.disk = runtime::Disk::kept;
  create(again);
  EXPECT_EQ(warmed(id, 1, {"1"}).size(), 2u);
}

TEST_F(JailZygote, CgroupV2) {
  const std::string mount =
      host("awk '$0 ~ / - cgroup2 / {printf \"%s\", $5; exit}' /proc/self/mountinfo");
  if (mount.empty()) GTEST_SKIP() << "no cgroup2 mount";
  prepared({"--unsafe-cgroup2-without-limits", mount});
  const SandboxId id = create_slim();
  const auto lines = warmed(id, 1, {"open('/proc/self/cgroup').read().split()[-1]"});
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1], "\"0::/\"");
}

TEST_F(JailZygote, AWardenThatDiesLeavesNothingHalf) {
  for (const char* point :
       {"prepare.start", "prepare.start+", "warm.send", "warm.send+", "warm.done+"}) {
    ASSERT_TRUE(start({"--die-at", point}).ok()) << point;
    std::vector<int> before;
    auto prepared_here = await(runtime_->prepare(kTemplate));
    if (std::string_view(point).starts_with("prepare")) {
      EXPECT_FALSE(prepared_here.ok()) << point;
    } else {
      ASSERT_TRUE(prepared_here.ok()) << point;
      before = zygotes();
      ASSERT_FALSE(before.empty());
      const SandboxId id = create_slim();
      listen(id, 0, {});
      EXPECT_FALSE(await(runtime_->warm(id)).ok()) << point;
    }
    stop();
    ASSERT_TRUE(start().ok()) << point;
    auto left = await(runtime_->list());
    ASSERT_TRUE(left.ok());
    for (const auto& found : *left) destroy(found.id);
    stop();
    EXPECT_EQ(leaks(), "") << point;
    EXPECT_TRUE(gone(before)) << point;
  }
}

net::Task<Result<int>> post(runtime::JailRuntime& runtime, SandboxId id, std::string target,
                            std::string body) {
  ATOLL_CO_TRY_ASSIGN(auto stream, co_await runtime.connect_agent(id));
  net::HttpClient client(std::move(stream));
  net::RequestHead head;
  head.method = "POST";
  head.target = std::move(target);
  auto asking = client.request(std::move(head), std::move(body));
  ATOLL_CO_TRY_ASSIGN(auto answer, co_await std::move(asking));
  co_return int(answer.head.status);
}

// All parts: warden, agent, the template's zygote; a cell runs in a process that came from it.
TEST_F(JailZygote, TheAgentRunsCellsInItsKernels) {
  kernels_path_ = ATOLL_KERNELS;
  agent_path_ = ATOLL_AGENT;
  prepared();
  const SandboxId id = create_slim();
  auto warm = await(runtime_->warm(id));
  ASSERT_TRUE(warm.ok()) << warm.error().message;
  auto warmed = await(post(*runtime_, id, "/warm", ""));
  ASSERT_TRUE(warmed.ok() && *warmed == 204) << (warmed.ok() ? *warmed : -1);
  auto init = await(post(*runtime_, id, "/init", R"({"defaultUser":"user"})"));
  ASSERT_TRUE(init.ok() && *init == 204);
  const std::string answer =
      host("nsenter --net=/proc/" + std::to_string(init_pid(id)) +
           "/ns/net curl -s -H 'Content-Type: application/json' -d '{\"code\":\"import os; "
           "[os.getppid(), os.getuid(), open(\\\"/proc/self/cmdline\\\").read()]\"}' "
           "http://127.0.0.1:49999/execute");
  EXPECT_NE(answer.find("[1, 1000, 'python3"), std::string::npos) << answer;
  EXPECT_NE(answer.find("/run/atoll/kernels/python/zygote.py"), std::string::npos) << answer;
  destroy(id);
}

TEST_F(JailZygote, ManyAtOnce) {
  prepared();
  std::vector<SandboxId> ids;
  for (int i = 0; i < 6; ++i) ids.push_back(create_slim());
  for (const SandboxId& id : ids) listen(id, 1, {"1"});
  int done = 0;
  for (const SandboxId& id : ids) {
    net::asio::co_spawn(
        io_,
        [&, id]() -> net::Task<void> {
          auto warming = runtime_->warm(id);
          auto warm = co_await std::move(warming);
          EXPECT_TRUE(warm.ok()) << (warm.ok() ? "" : warm.error().message);
          ++done;
        },
        net::asio::detached);
  }
  for (int i = 0; i < 200 && done < int(ids.size()); ++i) pause_for(std::chrono::milliseconds(50));
  EXPECT_EQ(done, int(ids.size()));
  for (const SandboxId& id : ids) EXPECT_EQ(answers(id).size(), 2u);
}

// A restored sandbox has a time namespace of its own, and is of its template as before.
TEST_F(JailZygote, ARevivedSandboxIsWarmedAgain) {
  if (tools_.empty()) GTEST_SKIP() << "no CRIU: set ATOLL_TOOLS to the directory above criu/";
  prepared();
  const SandboxId id = create_slim();
  const std::string where = "os.readlink('/proc/self/ns/time')";
  for (int round = 0; round < 3; ++round) {
    const auto lines = warmed(id, 1, {"6*7", where});
    ASSERT_EQ(lines.size(), 3u);
    EXPECT_NE(lines[1].find("42"), std::string::npos) << lines[1];
    const std::string space = inside(id, "readlink /proc/1/ns/time | tr -d '\\n'").output;
    EXPECT_NE(lines[2].find(space), std::string::npos) << lines[2] << " is not " << space;
    EXPECT_TRUE(nobody_left(id));
    ASSERT_TRUE(await(runtime_->freeze(id)).ok());
    auto written = await(runtime_->dump(id));
    ASSERT_TRUE(written.ok()) << written.error().message;
    runtime::SandboxSpec again = spec();
    again.id = id;
    again.template_id = kTemplate;
    again.limits.memory_bytes = 1ull << 30;
    again.disk = runtime::Disk::kept;
    again.memory = runtime::Memory::kept;
    auto created = await(runtime_->create(again));
    ASSERT_TRUE(created.ok()) << created.error().message;
  }
}

}  // namespace
}  // namespace atl::testing
