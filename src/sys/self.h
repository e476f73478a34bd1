// What a process does to itself on the way to an exec: identity, capabilities, limits, descriptors,
// signals, system call filter.
#pragma once

#include <linux/filter.h>
#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "sys/fd.h"

namespace atl::sys {

Result<UniqueFd> open_null();

// The same open file under a number above `limit`.
Result<UniqueFd> moved_above(UniqueFd fd, int limit);
// Puts each {from, to} in place and marks everything above the highest `to` close-on-exec; gaps
// below it are closed. Sources may overlap targets.
Result<void> place_descriptors(std::vector<std::pair<int, int>> fds);
// Closes every descriptor that is not named: for a child that does not exec. Objects that own the
// others must not be destroyed afterwards.
Result<void> close_all_except(std::vector<int> keep);
// Orphans among the descendants become children of this process instead of the host's first.
Result<void> adopt_orphans();
// A signal is held back in this thread, and in what it forks, until destruction.
class BlockedSignal {
 public:
  static Result<BlockedSignal> block(int number);
  BlockedSignal(BlockedSignal&& other) noexcept : number_(std::exchange(other.number_, 0)) {}
  BlockedSignal& operator=(BlockedSignal&&) = delete;
  ~BlockedSignal();

 private:
  explicit BlockedSignal(int number) : number_(number) {}
  int number_;
};
Result<void> unblock_signal(int number);
// Default disposition for all signals, none blocked.
Result<void> reset_signals();

// SIGKILL when the parent ends. The kernel forgets it when the user id changes, not at an exec.
enum class WithParent { die, live };
Result<void> set_parent_death(WithParent what);

Result<void> unshare(int flags);
Result<void> new_session();
Result<void> set_hostname(const std::string& name);
// A keyring of its own instead of the inherited one; fine where the kernel has no keys.
Result<void> new_session_keyring();
// uid and gid 0 of the user namespace, no supplementary groups.
Result<void> become_namespace_root();
// Capabilities outside `keep` (bit n = capability n) leave the bounding set; ambient and
// inheritable sets become empty. The permitted set shrinks to the bounding set at the next exec of
// uid 0.
Result<void> limit_capabilities(std::uint64_t keep);
// Sets soft and hard limit; values above the current hard limit are lowered to it.
Result<void> limit_resource(int resource, std::uint64_t soft, std::uint64_t hard);
void set_file_mask(mode_t mask);
// The soft limit of open files raised to the hard one.
void raise_open_files();
// Adds a filter for good. Preconditions: CAP_SYS_ADMIN in the user namespace (no_new_privs is not
// set: sudo must work).
Result<void> install_filter(std::span<const sock_filter> program);
Result<void> change_dir(const std::string& path);
// Returns only on failure.
Error exec(const std::string& path, const std::vector<std::string>& argv,
           const std::vector<std::string>& env);

}  // namespace atl::sys
