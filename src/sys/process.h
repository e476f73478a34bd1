// Processes by pidfd: making them, waiting for them, ending them. Numbers are reused, descriptors
// are not.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "sys/fd.h"

namespace atl::sys {

struct ExitStatus {
  enum class Kind : std::uint8_t { exited, signaled };
  Kind kind = Kind::exited;
  int value = 0;  // exit code or signal
  bool success() const { return kind == Kind::exited && value == 0; }
  bool operator==(const ExitStatus&) const = default;
};

// A child of this process. Dropping it kills it by pidfd and reaps it; release() lets it go on its
// own.
class Child {
 public:
  Child() = default;
  Child(pid_t pid, UniqueFd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}
  Child(Child&& other) noexcept
      : pid_(std::exchange(other.pid_, 0)), pidfd_(std::move(other.pidfd_)) {}
  Child& operator=(Child&& other) noexcept;
  ~Child() { end(); }

  pid_t pid() const { return pid_; }
  const UniqueFd& pidfd() const { return pidfd_; }
  explicit operator bool() const { return pid_ > 0; }

  Result<void> signal(int number) const;
  // The status if the child has ended, reaping it; nullopt while it runs or after the time has
  // passed.
  Result<std::optional<ExitStatus>> wait(std::chrono::milliseconds at_most);
  // Gives up ownership without ending it.
  UniqueFd release();
  void end();

 private:
  pid_t pid_ = 0;
  UniqueFd pidfd_;
};

Result<void> signal_pidfd(const UniqueFd& pidfd, int number);
Result<UniqueFd> open_pidfd(pid_t pid);
// Whether this process is its parent.
Result<bool> is_child(const UniqueFd& pidfd);
// True once the process behind a pidfd has ended (it may still be a zombie).
bool has_ended(const UniqueFd& pidfd);
// poll(2) for reading; false when the time has passed.
Result<bool> wait_readable(const UniqueFd& fd, std::chrono::milliseconds at_most);

// clone3 without a stack of its own, that is, a fork with flags. Pid 0 in the child, which shares
// no memory with the parent. Preconditions: the process has one thread; the child does not return
// from its caller but ends with exec or _exit.
struct Cloned {
  pid_t pid = 0;
  UniqueFd pidfd;
};
// `owner`, with CLONE_NEWUSER: the host's user to whom the new namespace belongs. The kernel counts
// what is limited per user (inotify instances and watches, queues, namespaces) against the owner as
// well, so that namespaces of one owner use up each other's share. The child keeps the caller's
// other ids, with which it makes files.
Result<Cloned> clone_process(std::uint64_t flags, const UniqueFd* into_cgroup,
                             std::optional<uid_t> owner = std::nullopt);
[[noreturn]] void exit_now(int code);
// SIGKILL to this process: nothing is cleaned up, no destructor runs.
[[noreturn]] void kill_self();

struct SpawnOptions {
  std::string path;
  std::vector<std::string> argv;
  std::vector<std::string> env;
  // Descriptors the program gets: {ours, its number}. 0 and 1 are /dev/null and 2 is ours unless
  // named here. All others are closed.
  std::vector<std::pair<int, int>> fds;
};
// Fork and exec; fails if the exec does. Preconditions: the process has one thread.
Result<Child> spawn(const SpawnOptions& options);

}  // namespace atl::sys
