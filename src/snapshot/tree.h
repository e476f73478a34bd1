// A tree of processes like a sandbox's, small, for the self-test and for tests: in all the
// namespaces, in a cgroup of its own, over a root of its own with one mount from outside.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "snapshot/snapshot.h"
#include "sys/cgroup.h"
#include "sys/process.h"

namespace atl::snapshot {

class Tree {
 public:
  // Far above the ranges of sandboxes; `number` tells trees apart.
  static constexpr std::uint32_t kIds = 65536;
  static uid_t first_id(std::uint32_t number) { return 0x7f000000u + number * kIds; }

  // An empty cgroup. `name` is unique on this host.
  static Result<Tree> make(const std::string& name, std::uint32_t number);
  Tree(Tree&&) = default;
  Tree& operator=(Tree&&) = delete;
  ~Tree();  // ends and removes everything

  // Runs the static program until it has made /ready.
  Result<void> start(std::string_view program, const std::vector<std::string>& arguments);
  Result<void> freeze() const;
  Result<void> thaw() const;
  // SIGUSR1 to the first process, which answers by making /answer.
  Result<std::string> ask() const;
  // Ends and reaps all processes.
  Result<void> end();

  // The plans for it. `directory` must outlive them.
  CheckpointPlan dump_plan(const Tools& tools, const sys::UniqueFd& directory) const;
  // Makes a fresh root with the program in it.
  Result<RestorePlan> restore_plan(const Tools& tools, const sys::UniqueFd& directory,
                                   std::string_view program);
  // After a restore: the first process.
  Result<void> adopt(pid_t init);

  const sys::UniqueFd& root() const { return root_; }
  const sys::UniqueFd& outside() const { return outside_; }  // shown inside as /ctl
  pid_t init() const { return init_; }
  const sys::Cgroup& cgroup() const { return *cgroup_; }

 private:
  Tree() = default;
  std::uint32_t number_ = 0;
  sys::CgroupTree parent_;
  std::unique_ptr<sys::Cgroup> cgroup_;  // empty once moved from
  std::string freezer_;
  sys::UniqueFd root_;
  sys::UniqueFd outside_;
  pid_t init_ = 0;
  sys::UniqueFd pidfd_;
};

}  // namespace atl::snapshot
