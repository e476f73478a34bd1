// Where CRIU runs: a mount namespace of this process's own with a tmpfs over /run, in which there
// is all that CRIU is given by path. It and its mounts go with the process.
//
// CRIU keeps what it has found out about the kernel in /run/criu.kdat, if /run is a tmpfs; finding
// out again costs more than dumping a small tree. The file is carried from one workspace to the
// next by way of a name that has the kernel's boot id in it.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "sys/fd.h"
#include "sys/mounts.h"

namespace atl::snapshot {

class Workspace {
 public:
  // Preconditions: one thread.
  static Result<Workspace> make();

  // Absolute path of `name`.
  static std::string path(std::string_view name);
  const sys::UniqueFd& dir() const { return dir_; }

  // Files for CRIU; modes are exact.
  Result<std::string> add_file(const std::string& name, std::string_view content, mode_t mode);
  Result<std::string> add_dir(const std::string& name, mode_t mode);
  // A new directory, or file, with the mount over it.
  Result<std::string> attach(const std::string& name, const sys::DetachedMount& mount);

  // Keeps CRIU's knowledge for the next one. Failing costs time only.
  void keep_knowledge();

 private:
  explicit Workspace(sys::UniqueFd dir) : dir_(std::move(dir)) {}
  sys::UniqueFd dir_;
  sys::UniqueFd store_;  // of the knowledge; may be empty
  std::string knowledge_;
};

// Environment and command of every run.
std::string preload_path();
std::string program_path();  // PATH=...

}  // namespace atl::snapshot
