// Control groups, both kinds. On a v1 or hybrid machine a sandbox has one directory per controller
// hierarchy, on a v2 machine one directory; the rest of the code sees one Cgroup.
//
// A Cgroup object does not own what is in it: sandboxes outlive the process that made them. Whoever
// builds one half puts its removal into a Rollback.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "sys/fd.h"

namespace atl::sys {

enum class CgroupKind : std::uint8_t { v1, v2 };

struct Hierarchy {
  std::string mount_point;
  std::vector<std::string> controllers;
  bool operator==(const Hierarchy&) const = default;
};

struct CgroupLayout {
  CgroupKind kind = CgroupKind::v1;
  std::vector<Hierarchy> hierarchies;
  bool has(std::string_view controller) const;
  bool operator==(const CgroupLayout&) const = default;
};

// From the text of /proc/self/mountinfo. v1 if memory, pids, cpu and freezer are all mounted as v1
// controllers (cpuacct and devices join if they are there), v2 if none of them is and cgroup2 is
// mounted; anything else is an error that names what is missing. On v2 the controllers are not in
// mountinfo: the caller adds them.
Result<CgroupLayout> parse_cgroup_layout(std::string_view mountinfo);
// The same for this machine, with v2's controllers read from the root.
Result<CgroupLayout> detect_cgroup_layout();

struct CgroupUsage {
  std::uint64_t memory_bytes = 0;
  std::uint64_t memory_peak_bytes = 0;
  std::uint64_t memory_cache_bytes = 0;
  std::uint64_t cpu_micros = 0;
  std::uint64_t pids = 0;
  std::uint64_t oom_kills = 0;
};

class Cgroup {
 public:
  CgroupKind kind() const { return kind_; }
  // Writes a limit. A controller that is not there is an error: a limit that is not set must not
  // pass for one that is.
  Result<void> write(const std::string& controller, const std::string& file,
                     std::string_view value) const;
  Result<std::string> read(const std::string& controller, const std::string& file) const;
  // Another limit of memory (and swap) for what is inside. It must be above what cannot be given
  // back at once: v1 refuses otherwise, v2 kills.
  Result<void> set_memory_limit(std::uint64_t bytes) const;
  Result<std::uint64_t> memory_limit() const;  // 0: none
  bool has_file(const std::string& controller, const std::string& file) const;

  // v1: files into which a single-threaded process writes "0" to move itself; faster by far than
  // moving it from outside by cgroup.procs (that waits for an RCU grace period). v2: none, use
  // clone_target().
  Result<std::vector<UniqueFd>> entrances() const;
  // The same on both: files into which any single-threaded process writes "0" to enter, however it
  // came by them.
  Result<std::vector<UniqueFd>> entrances_for_others() const;
  // v2: the directory for CLONE_INTO_CGROUP; nullptr on v1.
  const UniqueFd* clone_target() const;

  Result<std::vector<pid_t>> processes() const;
  // The directory whose files freeze it, by name: for programs that take no descriptor.
  Result<std::string> freezer_path() const;
  // Waits until the kernel says that everything inside has stopped; thaws again if that takes too
  // long.
  Result<void> freeze(std::chrono::milliseconds at_most) const;
  // The same for whoever waits by other means: asks for it, and frozen() tells when it is done.
  Result<void> start_freezing() const;
  Result<void> thaw() const;
  // True when all processes inside have stopped, not merely been asked to.
  Result<bool> frozen() const;
  // Asked to freeze, whether or not it has come to that.
  Result<bool> freezing() const;
  // SIGKILL to every process inside, frozen ones too. New ones may still appear on v1: repeat until
  // processes() is empty.
  Result<void> kill_all() const;
  // Removes the directories; retries while the kernel still counts dying processes.
  Result<void> remove(std::chrono::milliseconds at_most);
  Result<CgroupUsage> usage() const;

 private:
  friend class CgroupTree;
  struct Part {
    UniqueFd parent;
    UniqueFd dir;
    std::vector<std::string> controllers;
  };
  const Part* part_of(std::string_view controller) const;

  CgroupKind kind_ = CgroupKind::v1;
  std::string name_;
  std::vector<Part> parts_;
};

// The directories below which sandboxes of one server live: <hierarchy>/<path...>/<sandbox>.
class CgroupTree {
 public:
  CgroupTree() = default;
  // Creates the path in every hierarchy; on v2 hands the controllers down.
  static Result<CgroupTree> open(CgroupLayout layout, std::vector<std::string> path);

  const CgroupLayout& layout() const { return layout_; }
  // Fresh and empty; already_exists if there is one of that name in any hierarchy. On failure
  // nothing is left.
  Result<Cgroup> create(const std::string& name) const;
  // With the parts that exist; nullopt if there is none at all.
  Result<std::optional<Cgroup>> find(const std::string& name) const;
  // Names in any hierarchy.
  Result<std::vector<std::string>> list() const;
  // Removes the path itself as far as it is empty.
  void remove_if_empty() const;

 private:
  CgroupLayout layout_;
  std::vector<std::string> path_;
  std::vector<UniqueFd> parents_;  // one per hierarchy of the layout
};

}  // namespace atl::sys
