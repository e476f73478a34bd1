// src/snapshot with a real CRIU: trees are dumped, refused, cancelled, damaged and restored. Needs
// root and ATOLL_TOOLS (the directory that holds criu/); skips otherwise.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <span>
#include <thread>

#include "snapshot/criu.h"
#include "snapshot/manifest.h"
#include "snapshot/snapshot.h"
#include "snapshot/tree.h"
#include "sys/datagram.h"
#include "sys/files.h"
#include "sys/process.h"
#include "sys/self.h"

namespace atl::snapshot {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// In a process of its own, as a worker of the warden: mount namespaces and cancel() end with it.
// The text, or the error. `on_start` gets its pid.
Result<std::string> apart(const std::function<Result<std::string>()>& work,
                          const std::function<void(pid_t)>& on_start = nullptr) {
  ATOLL_TRY_ASSIGN(auto ends, sys::seqpacket_pair());
  ATOLL_TRY_ASSIGN(sys::Cloned cloned, sys::clone_process(0, nullptr));
  if (cloned.pid == 0) {
    auto result = work();
    const std::string line =
        result ? "0 " + *result
               : fmt::format("{} {}", int(result.error().code), result.error().message);
    (void)sys::send_datagram(ends.second, std::as_bytes(std::span(line)), {}, sys::Wait::yes);
    sys::exit_now(0);
  }
  ends.second.reset();
  sys::Child child(cloned.pid, std::move(cloned.pidfd));
  if (on_start) on_start(child.pid());
  ATOLL_TRY_ASSIGN(sys::Datagram message,
                   sys::receive_datagram(ends.first, 4096, 0, sys::Wait::yes));
  ATOLL_TRY(child.wait(std::chrono::seconds(60)));
  const std::string line(reinterpret_cast<const char*>(message.bytes.data()), message.bytes.size());
  if (line.empty()) return make_error(Errc::internal, "the worker died");
  const int code = std::atoi(line.c_str());
  const std::string text = line.substr(line.find(' ') + 1);
  if (code != 0) return make_error(Errc(code), text);
  return text;
}

class Snapshot : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    const char* dir = std::getenv("ATOLL_TOOLS");
    auto tools = find_tools(std::string(dir != nullptr ? dir : "/var/lib/atoll/tools") + "/criu");
    if (!tools) GTEST_SKIP() << tools.error().message;
    tools_ = *tools;
    ASSERT_TRUE(sys::adopt_orphans());
    struct sigaction action{};
    action.sa_handler = [](int) { cancel(); };
    ASSERT_EQ(::sigaction(SIGTERM, &action, nullptr), 0);  // workers inherit it
    char name[] = "/tmp/atoll-snapshot-test-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    scratch_path_ = name;
    scratch_ = *sys::open_trusted(name, O_RDONLY | O_DIRECTORY);
    auto program = sys::read_trusted(ATOLL_SNAPSHOT_PROBE, 16 << 20);
    ASSERT_TRUE(program);
    program_ = *program;
    new_directory();
  }
  void TearDown() override {
    trees_.clear();
    if (scratch_path_.empty()) return;
    auto names = sys::list_dir(scratch_);
    for (const std::string& entry : *names) EXPECT_TRUE(sys::remove_tree(scratch_, entry));
    ::rmdir(scratch_path_.c_str());
  }

  // Every dump has its own, as the warden makes them.
  void new_directory() {
    const std::string name = "dump-" + std::to_string(dumps_++);
    ASSERT_TRUE(sys::make_dir(scratch_, name, 0700, sys::IfExists::fail));
    directory_ = *sys::open_beneath(scratch_, name, O_RDONLY | O_DIRECTORY);
  }

  Tree& new_tree() {
    const auto number = std::uint32_t(128 + trees_.size());
    auto tree = Tree::make(fmt::format("snapshot-test-{}-{}", ::getpid(), number), number);
    if (!tree) ADD_FAILURE() << tree.error().message;
    trees_.push_back(std::make_unique<Tree>(std::move(*tree)));
    return *trees_.back();
  }
  // Frozen. Empty: the kernel does not let the program do it.
  Tree* started(const std::string& what) {
    Tree& tree = new_tree();
    auto begun = tree.start(program_, {"token", what});
    if (!begun) {
      ADD_FAILURE() << begun.error().message;
      return nullptr;
    }
    const std::string complaint = *sys::read_beneath(tree.root(), "ready");
    if (!complaint.empty()) {
      reason_ = complaint;
      return nullptr;
    }
    EXPECT_TRUE(tree.freeze());
    return &tree;
  }

  Result<std::string> dump(const Tree& tree, const std::function<void(pid_t)>& on_start = nullptr) {
    return apart(
        [&]() -> Result<std::string> {
          ATOLL_TRY_ASSIGN(Checkpointed made, checkpoint(tree.dump_plan(tools_, directory_)));
          return std::to_string(made.memory_bytes);
        },
        on_start);
  }
  Result<void> bring_back(Tree& tree, const std::function<void(RestorePlan&)>& change = nullptr) {
    ATOLL_TRY_ASSIGN(RestorePlan plan, tree.restore_plan(tools_, directory_, program_));
    if (change) change(plan);
    ATOLL_TRY_ASSIGN(std::string pid, apart([&]() -> Result<std::string> {
                       ATOLL_TRY_ASSIGN(Restored made, restore(std::move(plan)));
                       return std::to_string(made.init);
                     }));
    return tree.adopt(std::atoi(pid.c_str()));
  }
  std::string answer_of(const Tree& tree) {
    auto answer = tree.ask();
    return answer ? *answer : answer.error().message;
  }
  // As it stood: frozen, and well once thawed.
  void expect_unharmed(const Tree& tree) {
    EXPECT_TRUE(*tree.cgroup().frozen());
    EXPECT_TRUE(tree.thaw());
    EXPECT_THAT(answer_of(tree), StartsWith("token "));
  }

  Tools tools_;
  std::string program_;
  std::string scratch_path_;
  sys::UniqueFd scratch_;
  sys::UniqueFd directory_;
  int dumps_ = 0;
  std::string reason_;
  std::vector<std::unique_ptr<Tree>> trees_;
};

TEST_F(Snapshot, SelfTest) {
  auto result = self_test(tools_.prefix, directory_);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->version, tools_.version);
  EXPECT_TRUE(sys::list_dir(directory_)->empty());
  auto missing = self_test("/nonexistent", directory_);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Errc::failed_precondition);
}

TEST_F(Snapshot, OneImageManyTrees) {
  Tree* source = started("memory=32");
  ASSERT_NE(source, nullptr);
  auto dumped = dump(*source);
  ASSERT_TRUE(dumped) << dumped.error().message;
  EXPECT_GE(std::atol(dumped->c_str()), 32 << 20);
  for (int i = 0; i < 3; ++i) {
    Tree& copy = new_tree();
    auto restored = bring_back(copy);
    ASSERT_TRUE(restored) << restored.error().message;
    EXPECT_EQ(answer_of(copy), "token restored good");
  }
  expect_unharmed(*source);
}

TEST_F(Snapshot, ARestoredTreeIsDumpedAgain) {
  Tree* source = started("deleted");
  ASSERT_NE(source, nullptr);
  for (int generation = 0; generation < 3; ++generation) {
    auto dumped = dump(*source);
    ASSERT_TRUE(dumped) << dumped.error().message;
    ASSERT_TRUE(source->end());
    Tree& next = new_tree();
    auto restored = bring_back(next);
    ASSERT_TRUE(restored) << restored.error().message;
    EXPECT_EQ(answer_of(next), "token restored goodtoken");
    ASSERT_TRUE(next.freeze());
    source = &next;
    new_directory();
  }
}

// More descriptors than are free below the first one that this process would open.
TEST_F(Snapshot, CriuGetsItsDescriptors) {
  auto files = sys::open_trusted(ATOLL_SNAPSHOT_PROBE, O_RDONLY);
  ASSERT_TRUE(files);
  auto output = new_output();
  ASSERT_TRUE(output);
  snapshot::Run run;
  // It looks at each descriptor and then fails for want of images.
  std::vector<std::string> arguments = {"restore", "-D", scratch_path_, "-o", "criu.log"};
  for (int number = 10; number < 40; ++number) {
    run.fds.emplace_back(files->get(), number);
    arguments.insert(arguments.end(), {"--inherit-fd", fmt::format("fd[{0}]:file[1:{0}]", number)});
  }
  run.command = command_line(tools_.prefix, "", arguments);
  run.output = output->get();
  auto status = run_criu(std::move(run), OnCancel::kill);
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_FALSE(status->success());
  auto log = sys::read_beneath(scratch_, "criu.log");
  ASSERT_TRUE(log) << text_of_output(*output);
  EXPECT_THAT(first_complaint(*log), Not(HasSubstr("inherit")));

  snapshot::Run bad;
  bad.command = command_line(tools_.prefix, "", {"restore", "--inherit-fd", "fd[50]:file[1:1]"});
  bad.output = output->get();
  ASSERT_TRUE(run_criu(std::move(bad), OnCancel::kill));
  EXPECT_THAT(first_complaint(text_of_output(*output)), HasSubstr("inherit fd 50"));
}

class Refused : public Snapshot,
                public testing::WithParamInterface<std::pair<const char*, const char*>> {};

TEST_P(Refused, WithAReasonAndUnharmed) {
  const auto& [what, reason] = GetParam();
  Tree* tree = started(what);
  if (tree == nullptr) GTEST_SKIP() << reason_;
  auto dumped = dump(*tree);
  ASSERT_FALSE(dumped);
  EXPECT_EQ(dumped.error().code, Errc::failed_precondition);
  EXPECT_THAT(dumped.error().message, StartsWith(std::string(reason) + ": "));
  EXPECT_FALSE(read_manifest(directory_));
  expect_unharmed(*tree);
}
INSTANTIATE_TEST_SUITE_P(
    All, Refused,
    testing::Values(std::pair("io_uring", "io_uring"), std::pair("userfaultfd", "userfaultfd"),
                    std::pair("vsock", "socket"), std::pair("mptcp", "socket"),
                    std::pair("traced", "traced"), std::pair("stopped", "stopped"),
                    std::pair("user_namespace", "namespaces"),
                    std::pair("network_namespace", "namespaces"), std::pair("mount", "mount")),
    [](const auto& info) { return std::string(info.param.first); });

TEST_F(Snapshot, ConnectionFromOutsideIsRefused) {
  Tree* tree = started("connection");
  ASSERT_NE(tree, nullptr);
  ASSERT_TRUE(tree->thaw());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = sys::path_of(tree->outside()) + "/sock";
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  sys::UniqueFd client(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  while (!sys::stat_at(tree->root(), "accepted")) std::this_thread::yield();
  ASSERT_TRUE(tree->freeze());
  auto dumped = dump(*tree);
  ASSERT_FALSE(dumped);
  EXPECT_THAT(dumped.error().message, StartsWith("outside_socket: "));
  expect_unharmed(*tree);
}

TEST_F(Snapshot, ProcessFromOutsideIsRefused) {
  Tree* tree = started("nothing");
  ASSERT_NE(tree, nullptr);
  ASSERT_TRUE(tree->thaw());
  auto entrances = tree->cgroup().entrances_for_others();
  ASSERT_TRUE(entrances);
  auto ends = *sys::seqpacket_pair();
  auto cloned = sys::clone_process(0, nullptr);
  ASSERT_TRUE(cloned);
  if (cloned->pid == 0) {
    for (const sys::UniqueFd& file : *entrances) (void)sys::write_value(file, "0");
    const std::byte in[1] = {std::byte{1}};
    (void)sys::send_datagram(ends.second, in, {}, sys::Wait::yes);
    for (;;) ::pause();
  }
  sys::Child visitor(cloned->pid, std::move(cloned->pidfd));
  ASSERT_TRUE(sys::receive_datagram(ends.first, 1, 0, sys::Wait::yes));
  ASSERT_TRUE(tree->freeze());
  auto dumped = dump(*tree);
  ASSERT_FALSE(dumped);
  EXPECT_THAT(dumped.error().message, StartsWith("outside_process: "));
  expect_unharmed(*tree);
}

TEST_F(Snapshot, ATreeThatRunsIsRefused) {
  Tree* tree = started("nothing");
  ASSERT_NE(tree, nullptr);
  ASSERT_TRUE(tree->thaw());
  auto dumped = dump(*tree);
  ASSERT_FALSE(dumped);
  EXPECT_EQ(dumped.error().code, Errc::failed_precondition);
  EXPECT_THAT(answer_of(*tree), StartsWith("token "));
}

TEST_F(Snapshot, Cancelled) {
  Tree* tree = started("memory=256");
  ASSERT_NE(tree, nullptr);
  // When some of it has been written, and before that.
  for (const bool at_once : {true, false}) {
    auto dumped = dump(*tree, [&](pid_t worker) {
      while (!at_once) {
        auto images = sys::open_beneath(directory_, "images", O_RDONLY | O_DIRECTORY);
        auto pages = images ? sys::stat_at(*images, "pages-1.img")
                            : Result<struct stat>(make_error(Errc::not_found, ""));
        if (pages && pages->st_size > 0) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      ::kill(worker, SIGTERM);
    });
    ASSERT_FALSE(dumped);
    EXPECT_EQ(dumped.error().code, Errc::aborted) << dumped.error().message;
    EXPECT_FALSE(read_manifest(directory_));
    EXPECT_TRUE(*tree->cgroup().frozen());
    new_directory();
  }
  ASSERT_TRUE(tree->thaw());
  EXPECT_THAT(answer_of(*tree), testing::EndsWith(" good"));
  ASSERT_TRUE(tree->freeze());
  EXPECT_TRUE(dump(*tree));
}

// From a process of its own, which goes when the traced one does: so nobody else can attach to it.
Result<void> trace(pid_t traced) {
  ATOLL_TRY_ASSIGN(auto ends, sys::seqpacket_pair());
  ATOLL_TRY_ASSIGN(sys::Cloned cloned, sys::clone_process(0, nullptr));
  if (cloned.pid == 0) {
    const char good = ::ptrace(PTRACE_SEIZE, traced, nullptr, nullptr) == 0 ? 'y' : 'n';
    (void)::write(ends.second.get(), &good, 1);
    int status = 0;
    while (good == 'y' && ::waitpid(traced, &status, __WALL) == traced && WIFSTOPPED(status))
      ::ptrace(PTRACE_CONT, traced, nullptr, nullptr);
    sys::exit_now(0);
  }
  sys::Child(cloned.pid, std::move(cloned.pidfd)).release();
  char good = 0;
  if (::read(ends.first.get(), &good, 1) != 1 || good != 'y')
    return make_error(Errc::internal, "cannot trace");
  return {};
}

TEST_F(Snapshot, DamagedImagesAreRefusedAndDoNoHarm) {
  Tree* source = started("memory=8");
  ASSERT_NE(source, nullptr);
  ASSERT_TRUE(dump(*source));
  auto images = *sys::open_beneath(directory_, "images", O_RDONLY | O_DIRECTORY);
  const auto refused = [&](Errc code, const std::function<void(RestorePlan&)>& change = nullptr) {
    Tree& tree = new_tree();
    auto restored = bring_back(tree, change);
    ASSERT_FALSE(restored);
    EXPECT_EQ(restored.error().code, code) << restored.error().message;
    EXPECT_TRUE(tree.end());
    trees_.pop_back();
  };
  const auto flip = [&](const char* name, off_t at) {
    auto file = *sys::open_beneath(images, name, O_RDWR);
    char byte = 0;
    ASSERT_EQ(::pread(file.get(), &byte, 1, at), 1);
    byte ^= 1;
    ASSERT_EQ(::pwrite(file.get(), &byte, 1, at), 1);
  };
  for (const auto& [name, at] : {std::pair("core-1.img", 40), std::pair("pages-1.img", 5 << 20)}) {
    flip(name, at);
    refused(Errc::data_loss);
    flip(name, at);
  }
  const std::string inventory = *sys::read_beneath(images, "inventory.img");
  ASSERT_TRUE(sys::set_size(*sys::open_beneath(images, "inventory.img", O_RDWR), 10));
  refused(Errc::data_loss);
  ASSERT_TRUE(sys::remove_file(images, "inventory.img"));
  refused(Errc::data_loss);
  ASSERT_TRUE(sys::create_file(images, "inventory.img", inventory, 0644, 0));
  refused(Errc::failed_precondition, [](RestorePlan& plan) { plan.facts["program"] = "2"; });
  refused(Errc::failed_precondition, [](RestorePlan& plan) { plan.externals.clear(); });
  refused(Errc::resource_exhausted, [](RestorePlan& plan) { plan.memory_limit = 16 << 20; });
  for (const Stage last : {Stage::restored, Stage::resuming}) {
    refused(Errc::permission_denied, [last](RestorePlan& plan) {
      plan.on_stage = [last](Stage stage, pid_t) -> Result<void> {
        if (stage == last) return make_error(Errc::permission_denied, "no");
        return {};
      };
    });
  }
  // What CRIU itself cannot do after its first scripts comes before the last one: the image is
  // given up only when all has been done.
  refused(Errc::internal, [this](RestorePlan& plan) {
    plan.on_stage = [this](Stage stage, pid_t init) -> Result<void> {
      if (stage == Stage::restored) return trace(init);
      if (stage == Stage::resuming) return sys::create_file(scratch_, "resuming", "", 0600, 0);
      return {};
    };
  });
  EXPECT_FALSE(sys::stat_at(scratch_, "resuming"));
  Tree& tree = new_tree();
  auto restored = bring_back(tree);
  ASSERT_TRUE(restored) << restored.error().message;
  EXPECT_EQ(answer_of(tree), "token restored good");
  expect_unharmed(*source);
}

TEST_F(Snapshot, FullDiskIsSaidSo) {
  Tree* tree = started("memory=64");
  ASSERT_NE(tree, nullptr);
  auto dumped = apart([&]() -> Result<std::string> {
    ATOLL_TRY(sys::unshare(CLONE_NEWNS));
    ATOLL_TRY(sys::make_all_private());
    ATOLL_TRY_ASSIGN(sys::FsContext context, sys::FsContext::open("tmpfs"));
    ATOLL_TRY(context.set_options({{"size", "16m"}, {"mode", "0700"}}));
    ATOLL_TRY_ASSIGN(sys::DetachedMount small, context.mount(0));
    ATOLL_TRY_ASSIGN(sys::UniqueFd directory,
                     sys::open_beneath(small.fd(), "", O_RDONLY | O_DIRECTORY));
    ATOLL_TRY(checkpoint(tree->dump_plan(tools_, directory)));
    return std::string();
  });
  ASSERT_FALSE(dumped);
  EXPECT_EQ(dumped.error().code, Errc::resource_exhausted) << dumped.error().message;
  expect_unharmed(*tree);
}

}  // namespace
}  // namespace atl::snapshot
