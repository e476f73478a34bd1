// The programs of sandboxes, kept as long as somebody needs them: the agent and the runners.
//
// A memory image names files that its processes have mapped, and CRIU wants the same files again.
// So a warden keeps its own version of them in HOME/programs/SUM (atoll-agent, kernels/), where SUM
// is a checksum over names, modes and contents; every sandbox has the SUM that it runs in the
// file `programs` of its directory, every image among its facts. A sandbox from an image of another
// version gets the programs of that version: a copy of them in the stage, checked against SUM.
//
// Thread safety: none; wardens of several instances may share a home.
#pragma once

#include <set>
#include <string>

#include "base/result.h"
#include "sys/fd.h"

namespace atl::jail {

inline constexpr const char* kProgramsName = "programs";  // in HOME, and in a sandbox's directory
inline constexpr const char* kProgramsFact = "programs";

class Programs {
 public:
  // Keeps the programs of the stage, which is there already, and removes what nobody needs any
  // more. `home` is open for reading.
  static Result<Programs> open(const sys::UniqueFd& home);

  // Those of the stage.
  const std::string& current() const { return current_; }
  // What the sandbox of this directory runs; the current ones if nobody wrote it down.
  Result<std::string> of(const sys::UniqueFd& directory) const;
  Result<void> note(const sys::UniqueFd& directory, const std::string& sum) const;

  // Before an image names them. failed_precondition: they are gone.
  Result<void> keep(const std::string& sum) const;
  // Makes sure that they are at `place`. False: they are gone. data_loss: they are damaged.
  Result<bool> provide(const std::string& sum);
  // The directory below the stage with agent/ and kernels/; empty is the stage itself.
  std::string place(const std::string& sum) const;

 private:
  Programs(sys::UniqueFd all, std::string current)
      : all_(std::move(all)), current_(std::move(current)) {}
  Result<bool> is_kept(const std::string& sum) const;
  Result<void> keep_current() const;
  Result<void> hold_current();
  Result<void> remove_unused(const sys::UniqueFd& home) const;

  sys::UniqueFd all_;  // HOME/programs
  std::string current_;
  sys::UniqueFd held_;  // HOME/programs/SUM with a shared lock: no other warden removes it
  std::set<std::string> provided_;
};

}  // namespace atl::jail
