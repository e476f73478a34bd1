// Starts a program as a user of the sandbox.
//
// Theory of operation. The agent has one thread. Everything the child needs (argv, environment,
// candidates of the PATH search, credentials, descriptors) is laid out before a clone(CLONE_VM |
// CLONE_VFORK): the child borrows the agent's memory on a stack of its own and makes only system
// calls, the agent sleeps until the child has called execve or _exit. No page tables are copied,
// and a failure is handed back through the shared memory. Signals are blocked across the clone,
// because a handler would run in the child on shared memory.
//
// Borrowed memory and dropped privileges: the kernel makes a memory image undumpable when one of
// its users changes its uid, before the new uid becomes visible; so a process of the target user
// cannot ptrace the child and reach the agent's memory. The agent makes itself dumpable again once
// the child has its own image, or its own /proc/self files would belong to nobody in the sandbox's
// user namespace.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace atl::agent {

struct Credentials {
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;
};

enum class Terminal {
  none,         // stays in the agent's session and process group
  session,      // leads a session of its own, without a terminal
  controlling,  // leads a session of its own; `in` becomes its controlling terminal
};

// What children get as oom_score_adj: well above the agent's own, so that the agent is the last to
// go. Memory of the kernel (descriptors, socket buffers) has no owner, and by size alone the agent
// would be the first to be chosen.
const std::string& child_oom_score();

struct SpawnSpec {
  std::vector<std::string> argv;  // argv[0] without a slash is looked up in the PATH of `env`
  std::vector<std::string> env;   // NAME=value
  std::string cwd;                // entered after the credentials were taken on
  std::optional<Credentials> credentials;  // nullopt: stay who we are
  int in = -1;  // the child's 0, 1, 2; all above 2, they stay the caller's
  int out = -1;
  int err = -1;
  int extra = -1;  // the child's 3, above 2 as well; it has none if negative
  Terminal terminal = Terminal::none;
  std::string oom_score_adj = child_oom_score();
};

// The pid of a child that the caller must reap. A program that is missing or cannot be executed is
// not an error here: as from a shell, the child says so on `err` and ends with 127 or 126. Errors:
// what failed before (credentials, cwd, limits); sys_errno is set, and the child is already reaped.
Result<pid_t> spawn(const SpawnSpec& spec);

// The paths an executable may be at: `name` itself if it has a slash, else below each directory of
// `path`.
std::vector<std::string> path_candidates(std::string_view name, std::string_view path);

// Raises the soft limit of open files to the hard one; children get the old one back. Call once, at
// start.
void raise_descriptor_limit();

}  // namespace atl::agent
