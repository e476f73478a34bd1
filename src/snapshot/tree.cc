#include "snapshot/tree.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <thread>

#include "sys/datagram.h"
#include "sys/files.h"
#include "sys/namespaces.h"
#include "sys/self.h"

namespace atl::snapshot {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kPatience{20'000};
constexpr const char* kProgram = "program";
constexpr const char* kOutside = "ctl";

struct Ground {
  sys::DetachedMount root;
  sys::DetachedMount outside;
};

Result<sys::DetachedMount> new_tmpfs(uid_t owner) {
  ATOLL_TRY_ASSIGN(sys::FsContext context, sys::FsContext::open("tmpfs"));
  ATOLL_TRY(context.set_options({{"source", "atoll"},
                                 {"mode", "0755"},
                                 {"size", "16m"},
                                 {"uid", std::to_string(owner)},
                                 {"gid", std::to_string(owner)}}));
  return context.mount(MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
}

Result<Ground> new_ground(uid_t owner, std::string_view program) {
  Ground ground;
  ATOLL_TRY_ASSIGN(ground.root, new_tmpfs(owner));
  ATOLL_TRY_ASSIGN(ground.outside, new_tmpfs(owner));
  ATOLL_TRY(sys::create_file(ground.root.fd(), kProgram, program, 0755, owner));
  for (const char* name : {"proc", kOutside}) {
    ATOLL_TRY(sys::make_dir(ground.root.fd(), name, 0755, sys::IfExists::fail));
  }
  return ground;
}

// The first process on its way to the exec.
struct Newborn {
  Ground& ground;
  std::vector<sys::UniqueFd> entrances;
  sys::UniqueFd go;

  Error become(const std::vector<std::string>& arguments) {
    auto prepared = prepare();
    if (!prepared) return std::move(prepared).error();
    std::vector<std::string> argv = {kProgram};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    return sys::exec(std::string("/") + kProgram, argv, {});
  }

  Result<void> prepare() {
    for (const sys::UniqueFd& file : entrances) {
      ATOLL_TRY(sys::write_value(file, "0"));
    }
    ATOLL_TRY(sys::unshare(CLONE_NEWCGROUP));
    ATOLL_TRY(sys::new_session());
    ATOLL_TRY_ASSIGN(sys::Datagram message, sys::receive_datagram(go, 1, 0, sys::Wait::yes));
    if (message.bytes.empty()) return make_error(Errc::aborted, "the other side has ended");
    ATOLL_TRY(sys::loopback_up());
    ATOLL_TRY_ASSIGN(sys::FsContext context, sys::FsContext::open("proc"));
    ATOLL_TRY_ASSIGN(sys::DetachedMount proc, context.mount(MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV));
    ATOLL_TRY_ASSIGN(sys::UniqueFd place, sys::open_trusted("/run", O_PATH | O_DIRECTORY));
    ATOLL_TRY(ground.root.attach(place));
    ATOLL_TRY(sys::change_root(ground.root.fd()));
    ATOLL_TRY_ASSIGN(sys::UniqueFd at, sys::open_trusted("/proc", O_PATH | O_DIRECTORY));
    ATOLL_TRY(proc.attach(at));
    ATOLL_TRY_ASSIGN(at, sys::open_trusted("/" + std::string(kOutside), O_PATH | O_DIRECTORY));
    ATOLL_TRY(ground.outside.attach(at));
    ATOLL_TRY(sys::become_namespace_root());
    ATOLL_TRY(sys::reset_signals());
    return sys::close_all_except({});
  }
};

Result<std::string> await_file(const sys::UniqueFd& dir, const char* name,
                               const sys::UniqueFd& pidfd) {
  const auto deadline = Clock::now() + kPatience;
  while (Clock::now() < deadline) {
    auto text = sys::read_beneath(dir, name, 1 << 16);
    if (text || text.error().sys_errno != ENOENT) return text;
    if (sys::has_ended(pidfd)) return make_error(Errc::aborted, "the tree has ended");
    std::this_thread::sleep_for(milliseconds(1));
  }
  return make_error(Errc::deadline_exceeded, "no answer");
}

}  // namespace

Result<Tree> Tree::make(const std::string& name, std::uint32_t number) {
  ATOLL_TRY_ASSIGN(sys::CgroupLayout layout, sys::detect_cgroup_layout());
  Tree tree;
  tree.number_ = number;
  ATOLL_TRY_ASSIGN(tree.parent_, sys::CgroupTree::open(layout, {"atoll"}));
  ATOLL_TRY_ASSIGN(sys::Cgroup made, tree.parent_.create(name));
  tree.cgroup_ = std::make_unique<sys::Cgroup>(std::move(made));
  for (const sys::Hierarchy& hierarchy : layout.hierarchies) {
    const auto& parts = hierarchy.controllers;
    if (layout.kind == sys::CgroupKind::v2 ||
        std::find(parts.begin(), parts.end(), "freezer") != parts.end())
      tree.freezer_ = hierarchy.mount_point + "/atoll/" + name;
  }
  return tree;
}

Tree::~Tree() {
  if (!cgroup_) return;
  if (auto ended = end(); ended) (void)cgroup_->remove(kPatience);
  parent_.remove_if_empty();
}

Result<void> Tree::start(std::string_view program, const std::vector<std::string>& arguments) {
  const uid_t first = first_id(number_);
  ATOLL_TRY_ASSIGN(Ground ground, new_ground(first, program));
  ATOLL_TRY_ASSIGN(auto ends, sys::seqpacket_pair());
  ATOLL_TRY_ASSIGN(std::vector<sys::UniqueFd> entrances, cgroup_->entrances_for_others());
  ATOLL_TRY_ASSIGN(sys::Cloned cloned,
                   sys::clone_process(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET |
                                          CLONE_NEWIPC | CLONE_NEWUTS,
                                      nullptr, first));
  if (cloned.pid == 0) {
    ends.first.reset();
    Newborn newborn{ground, std::move(entrances), std::move(ends.second)};
    (void)newborn.become(arguments);
    sys::exit_now(1);
  }
  init_ = cloned.pid;
  pidfd_ = std::move(cloned.pidfd);
  ends.second.reset();
  const std::string map = fmt::format("0 {} {}\n", first, kIds);
  ATOLL_TRY_ASSIGN(sys::UniqueFd process,
                   sys::open_trusted(fmt::format("/proc/{}", init_), O_PATH | O_DIRECTORY));
  for (const char* file : {"uid_map", "gid_map"}) {
    ATOLL_TRY(sys::write_beneath(process, file, map));
  }
  ATOLL_TRY_ASSIGN(root_, sys::open_beneath(ground.root.fd(), "", O_RDONLY | O_DIRECTORY));
  ATOLL_TRY_ASSIGN(outside_, sys::open_beneath(ground.outside.fd(), "", O_RDONLY | O_DIRECTORY));
  const std::byte go[1] = {std::byte{1}};
  ATOLL_TRY(sys::send_datagram(ends.first, go, {}, sys::Wait::yes));
  auto ready = await_file(root_, "ready", pidfd_);
  if (!ready) return std::move(ready).error().with("start a tree");
  return {};
}

Result<void> Tree::freeze() const { return cgroup_->freeze(kPatience); }
Result<void> Tree::thaw() const { return cgroup_->thaw(); }

Result<std::string> Tree::ask() const {
  ATOLL_TRY(sys::remove_file(root_, "answer"));
  ATOLL_TRY(sys::signal_pidfd(pidfd_, SIGUSR1));
  return await_file(root_, "answer", pidfd_);
}

Result<void> Tree::end() {
  const auto deadline = Clock::now() + kPatience;
  for (;;) {
    ATOLL_TRY(cgroup_->kill_all());
    ATOLL_TRY(cgroup_->thaw());
    ATOLL_TRY_ASSIGN(std::vector<pid_t> left, cgroup_->processes());
    for (const pid_t pid : left) (void)::waitpid(pid, nullptr, WNOHANG);
    if (init_ > 0) (void)::waitpid(init_, nullptr, WNOHANG);
    if (left.empty()) break;
    if (Clock::now() > deadline)
      return make_error(Errc::deadline_exceeded, "processes of the tree do not end");
    std::this_thread::sleep_for(milliseconds(1));
  }
  init_ = 0;
  pidfd_.reset();
  return {};
}

CheckpointPlan Tree::dump_plan(const Tools& tools, const sys::UniqueFd& directory) const {
  CheckpointPlan plan;
  plan.tools = tools;
  plan.init = init_;
  plan.first_id = first_id(number_);
  plan.id_count = kIds;
  plan.cgroup = freezer_;
  plan.mounts = {{"/", "tmpfs", false},
                 {"/proc", "proc", false},
                 {"/" + std::string(kOutside), "tmpfs", true}};
  plan.directory = &directory;
  plan.facts = {{"program", "1"}};
  return plan;
}

Result<RestorePlan> Tree::restore_plan(const Tools& tools, const sys::UniqueFd& directory,
                                       std::string_view program) {
  ATOLL_TRY_ASSIGN(Ground ground, new_ground(first_id(number_), program));
  ATOLL_TRY_ASSIGN(root_, sys::open_beneath(ground.root.fd(), "", O_RDONLY | O_DIRECTORY));
  ATOLL_TRY_ASSIGN(outside_, sys::open_beneath(ground.outside.fd(), "", O_RDONLY | O_DIRECTORY));
  RestorePlan plan;
  plan.tools = tools;
  plan.directory = &directory;
  plan.first_id = first_id(number_);
  plan.hostname = "restored";
  plan.facts = {{"program", "1"}};
  plan.root = std::move(ground.root);
  plan.externals.push_back({"/" + std::string(kOutside), std::move(ground.outside)});
  ATOLL_TRY_ASSIGN(plan.cgroup_entrances, cgroup_->entrances_for_others());
  plan.on_stage = [](Stage stage, pid_t init) -> Result<void> {
    if (stage != Stage::namespaces) return {};
    ATOLL_TRY_ASSIGN(sys::UniqueFd network,
                     sys::open_trusted(fmt::format("/proc/{}/ns/net", init), O_RDONLY));
    ATOLL_TRY_ASSIGN(sys::InNamespace inside, sys::InNamespace::enter(network, CLONE_NEWNET));
    return sys::loopback_up();
  };
  return plan;
}

Result<void> Tree::adopt(pid_t init) {
  ATOLL_TRY_ASSIGN(pidfd_, sys::open_pidfd(init));
  init_ = init;
  return {};
}

}  // namespace atl::snapshot
