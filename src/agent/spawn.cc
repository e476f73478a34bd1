#include "agent/spawn.h"

#include <fcntl.h>
#include <linux/ioprio.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <memory>

#include "agent/paths.h"

namespace atl::agent {
namespace {

constexpr std::size_t kChildStack = 64 * 1024;
constexpr const char* kShell = "/bin/sh";

// The soft RLIMIT_NOFILE from before raise_descriptor_limit().
std::optional<rlimit> original_descriptor_limit;

enum class Step : int { none, terminal, descriptors, groups, gid, uid, cwd, exec };

// All that the child sees. Plain pointers: no code of the library runs between clone and execve.
struct ChildPlan {
  const char* const* candidates;  // null-terminated
  char* const* argv;
  const char**
      script_argv;  // /bin/sh, <candidate>, argv[1..]: for a file that is a script without "#!"
  char* const* env;
  const char* cwd;
  const char* oom_score_adj;
  std::size_t oom_score_adj_size;
  bool change_user;
  uid_t uid;
  gid_t gid;
  const gid_t* groups;
  std::size_t group_count;
  int in, out, err;
  int extra;
  bool own_session;
  bool controlling_terminal;
  const rlimit* descriptor_limit;  // null: leave it

  // Written by the child, read by the parent after it sleeps no more.
  Step failed_step;
  int failed_errno;
};

#define ATOLL_RAW __attribute__((no_sanitize("address", "thread", "undefined"), no_stack_protector))

ATOLL_RAW void child_fail(ChildPlan* plan, Step step, int code) {
  plan->failed_step = step;
  plan->failed_errno = errno;
  syscall(SYS_exit_group, code);
  __builtin_unreachable();
}

ATOLL_RAW void reset_signals() {
  // exec keeps ignored signals ignored. The kernel's structure is smaller than glibc's; zeroes mean
  // SIG_DFL in both.
  struct {
    void* handler;
    unsigned long flags;
    void* restorer;
    unsigned long mask;
  } const standard = {nullptr, 0, nullptr, 0};
  for (int signal = 1; signal <= 64; ++signal) {
    syscall(SYS_rt_sigaction, signal, &standard, nullptr, sizeof(standard.mask));
  }
}

ATOLL_RAW void set_priorities(const ChildPlan* plan) {
  // Comfort, not security: each may be refused without harm. Before the change of user, after which
  // /proc/self is not ours.
  const long fd =
      syscall(SYS_openat, AT_FDCWD, "/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC, 0);
  if (fd >= 0) {
    syscall(SYS_write, fd, plan->oom_score_adj, plan->oom_score_adj_size);
    syscall(SYS_close, fd);
  }
  syscall(SYS_setpriority, PRIO_PROCESS, 0, 0);
  syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_PRIO_VALUE(IOPRIO_CLASS_BE, 4));
  if (plan->descriptor_limit)
    syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, plan->descriptor_limit, nullptr);
}

ATOLL_RAW void execute(ChildPlan* plan) {
  int worst = ENOENT;
  for (const char* const* candidate = plan->candidates; *candidate; ++candidate) {
    syscall(SYS_execve, *candidate, plan->argv, plan->env);
    if (errno == ENOEXEC) {
      plan->script_argv[1] = *candidate;
      syscall(SYS_execve, kShell, plan->script_argv, plan->env);
    }
    if (errno == ENOENT || errno == ENOTDIR) continue;
    worst = errno;
    if (errno != EACCES) break;
  }
  errno = worst;
  child_fail(plan, Step::exec, worst == ENOENT ? 127 : 126);
}

ATOLL_RAW int child_main(void* argument) {
  auto* plan = static_cast<ChildPlan*>(argument);
  reset_signals();
  if (plan->own_session && syscall(SYS_setsid) < 0) child_fail(plan, Step::terminal, 1);
  if (plan->controlling_terminal) {
    if (syscall(SYS_ioctl, plan->in, TIOCSCTTY, 0) < 0) child_fail(plan, Step::terminal, 1);
  }
  // The sources are above 2, so no target is overwritten before it is read, and dup3 leaves the
  // copies without CLOEXEC.
  if (syscall(SYS_dup3, plan->in, 0, 0) < 0) child_fail(plan, Step::descriptors, 1);
  if (syscall(SYS_dup3, plan->out, 1, 0) < 0) child_fail(plan, Step::descriptors, 1);
  if (syscall(SYS_dup3, plan->err, 2, 0) < 0) child_fail(plan, Step::descriptors, 1);
  // Last, since one of the sources may have been number 3.
  if (plan->extra == 3) {
    if (syscall(SYS_fcntl, 3, F_SETFD, 0) < 0) child_fail(plan, Step::descriptors, 1);
  } else if (plan->extra > 3 && syscall(SYS_dup3, plan->extra, 3, 0) < 0) {
    child_fail(plan, Step::descriptors, 1);
  }
  // Kernels before 5.9 lack it; there, CLOEXEC does the work alone.
  syscall(SYS_close_range, plan->extra >= 0 ? 4U : 3U, ~0U, 0U);
  set_priorities(plan);
  // Raw calls: glibc's wrappers would signal "other threads". Groups while still privileged, the
  // uid last.
  if (plan->change_user) {
    if (syscall(SYS_setgroups, plan->group_count, plan->groups) < 0)
      child_fail(plan, Step::groups, 1);
    if (syscall(SYS_setresgid, plan->gid, plan->gid, plan->gid) < 0) child_fail(plan, Step::gid, 1);
    if (syscall(SYS_setresuid, plan->uid, plan->uid, plan->uid) < 0) child_fail(plan, Step::uid, 1);
  }
  if (syscall(SYS_chdir, plan->cwd) < 0) child_fail(plan, Step::cwd, 1);
  const unsigned long no_signals = 0;
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &no_signals, nullptr, sizeof(no_signals));
  execute(plan);
  return 1;
}

std::vector<const char*> pointers(const std::vector<std::string>& strings) {
  std::vector<const char*> out;
  out.reserve(strings.size() + 1);
  for (const std::string& text : strings) out.push_back(text.c_str());
  out.push_back(nullptr);
  return out;
}

std::string_view variable(const std::vector<std::string>& env, std::string_view name) {
  std::string_view value;
  for (const std::string& entry : env) {
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=') {
      value = std::string_view(entry).substr(name.size() + 1);
    }
  }
  return value;
}

const char* step_name(Step step) {
  switch (step) {
    case Step::terminal:
      return "controlling terminal";
    case Step::descriptors:
      return "descriptors";
    case Step::groups:
      return "setgroups";
    case Step::gid:
      return "setgid";
    case Step::uid:
      return "setuid";
    case Step::cwd:
      return "chdir";
    case Step::exec:
      return "exec";
    case Step::none:
      break;
  }
  return "start";
}

void reap(pid_t pid) {
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

// What a shell would say, on the child's standard error; the child is gone, the descriptor is still
// ours.
void tell_exec_failure(const SpawnSpec& spec, int err) {
  const std::string reason = err == ENOENT ? "not found" : os_error_text(err);
  const std::string text =
      std::string(kShell) + ": 1: exec: " + spec.argv[0].substr(0, 4000) + ": " + reason + "\n";
  // Fits the empty pipe; a terminal that takes less of it only loses text.
  (void)!::write(spec.err, text.data(), text.size());
}

pid_t clone_child(ChildPlan& plan) {
  auto stack = std::make_unique_for_overwrite<char[]>(kChildStack);
  auto top = reinterpret_cast<std::uintptr_t>(stack.get() + kChildStack) & ~std::uintptr_t(15);
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  const int dumpable = prctl(PR_GET_DUMPABLE);
  const pid_t pid =
      clone(child_main, reinterpret_cast<void*>(top), CLONE_VM | CLONE_VFORK | SIGCHLD, &plan);
  const int err = errno;
  if (dumpable == 1) prctl(PR_SET_DUMPABLE, 1);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  errno = err;
  return pid;
}

}  // namespace

const std::string& child_oom_score() {
  static const std::string score = [] {
    int own = 0;
    if (std::FILE* file = std::fopen("/proc/self/oom_score_adj", "re")) {
      if (std::fscanf(file, "%d", &own) != 1) own = 0;
      std::fclose(file);
    }
    return std::to_string(std::min(own + 500, 1000));
  }();
  return score;
}

std::vector<std::string> path_candidates(std::string_view name, std::string_view path) {
  if (name.empty()) return {};
  if (name.find('/') != std::string_view::npos) return {std::string(name)};
  std::vector<std::string> out;
  for (;;) {
    const std::size_t colon = path.find(':');
    const std::string_view directory = path.substr(0, colon);
    std::string candidate(directory.empty() ? std::string_view(".")
                                            : directory);  // an empty entry is the cwd
    if (candidate.back() != '/') candidate += '/';
    candidate += name;
    if (candidate.size() < PATH_MAX) out.push_back(std::move(candidate));
    if (colon == std::string_view::npos) return out;
    path.remove_prefix(colon + 1);
  }
}

Result<pid_t> spawn(const SpawnSpec& spec) {
  ATOLL_CHECK(!spec.argv.empty() && spec.in > 2 && spec.out > 2 && spec.err > 2 &&
              (spec.extra < 0 || spec.extra > 2));
  const std::vector<std::string> candidates =
      path_candidates(spec.argv[0], variable(spec.env, "PATH"));
  const auto candidate_pointers = pointers(candidates);
  const auto argv = pointers(spec.argv);
  const auto env = pointers(spec.env);
  std::vector<const char*> script_argv = {kShell, nullptr};
  script_argv.insert(script_argv.end(), argv.begin() + 1, argv.end());

  ChildPlan plan{};
  plan.candidates = candidate_pointers.data();
  plan.argv = const_cast<char* const*>(argv.data());
  plan.script_argv = script_argv.data();
  plan.env = const_cast<char* const*>(env.data());
  plan.cwd = spec.cwd.c_str();
  plan.oom_score_adj = spec.oom_score_adj.c_str();
  plan.oom_score_adj_size = spec.oom_score_adj.size();
  if (spec.credentials) {
    plan.change_user = true;
    plan.uid = spec.credentials->uid;
    plan.gid = spec.credentials->gid;
    plan.groups = spec.credentials->groups.data();
    plan.group_count = spec.credentials->groups.size();
  }
  plan.in = spec.in;
  plan.out = spec.out;
  plan.err = spec.err;
  plan.extra = spec.extra;
  plan.own_session = spec.terminal != Terminal::none;
  plan.controlling_terminal = spec.terminal == Terminal::controlling;
  plan.descriptor_limit = original_descriptor_limit ? &*original_descriptor_limit : nullptr;

  const pid_t pid = clone_child(plan);
  if (pid < 0) return errno_error("clone");
  if (plan.failed_step == Step::none) return pid;
  // An argument list that the kernel does not take is the request's fault, not the program's.
  if (plan.failed_step == Step::exec && plan.failed_errno != E2BIG) {
    tell_exec_failure(spec, plan.failed_errno);
    return pid;
  }
  reap(pid);
  const std::string target = plan.failed_step == Step::cwd ? " " + spec.cwd : "";
  Error error = make_error(Errc::invalid_argument, step_name(plan.failed_step) + target + ": " +
                                                       os_error_text(plan.failed_errno));
  error.sys_errno = plan.failed_errno;
  return error;
}

void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  const rlimit raised{limit.rlim_max, limit.rlim_max};
  if (setrlimit(RLIMIT_NOFILE, &raised) == 0) original_descriptor_limit = limit;
}

}  // namespace atl::agent
