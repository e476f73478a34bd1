// CRIU: its arguments as pure functions, one run of it, and what its log says.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "snapshot/snapshot.h"
#include "sys/fd.h"
#include "sys/process.h"

namespace atl::snapshot {

// ---- arguments, without those that all runs share
struct DumpCommand {
  pid_t init = 0;
  std::string images;
  std::string cgroup;
  std::vector<std::string> external_mounts;  // paths; also the names under which they come back
  std::vector<std::string> external_files;   // external_file()
};
std::vector<std::string> dump_arguments(const DumpCommand& command);

struct RestoreCommand {
  std::string images;
  std::string work;  // for the log and the pid
  std::string root;
  std::string hook;
  std::vector<std::pair<std::string, std::string>> mounts;  // path inside -> source
  std::vector<std::pair<int, std::string>> inherited;       // descriptor -> external_file()
};
std::vector<std::string> restore_arguments(const RestoreCommand& command);

// Loader, libraries, preload library, CRIU.
std::vector<std::string> command_line(const std::string& prefix, const std::string& preload,
                                      std::vector<std::string> arguments);

// ---- log
inline constexpr const char* kDumpLog = "dump.log";
inline constexpr const char* kRestoreLog = "restore.log";
// The first complaint of a log that is not known to be harmless, short and printable: texts of
// processes inside may be in it. Empty: none.
std::string first_complaint(std::string_view log);
bool tells_of_no_space(std::string_view log);

// ---- a run
struct Run {
  std::vector<std::string> command;
  std::vector<std::string> env;
  std::vector<std::pair<int, int>> fds;         // ours -> its number
  std::vector<sys::UniqueFd> cgroup_entrances;  // entered, then a new cgroup namespace
  int output = -1;                              // for what it says before it has a log; -1: nowhere
};
enum class OnCancel {
  full_disk,  // RLIMIT_FSIZE 0: a dump fails at its next write and cleans up
  kill,
};
// A file without a name for Run::output.
Result<sys::UniqueFd> new_output();
std::string text_of_output(const sys::UniqueFd& output);

// `poll_fd` (-1: none) is watched meanwhile; `on_readable` is called for it and ends the run by
// SIGKILL with its error. aborted: cancelled.
Result<sys::ExitStatus> run_criu(Run run, OnCancel on_cancel, int poll_fd = -1,
                                 const std::function<Result<void>()>& on_readable = nullptr);

// A dump whose CRIU neither ends nor writes hangs in the kernel, on a process that cannot move
// because it is frozen. After a while it is told to give up, then the cgroup is thawed until it
// has, and frozen again. `size` tells how much has been written. failed_precondition: that
// happened.
struct Watch {
  std::string cgroup;
  std::function<std::uint64_t()> size;
  // Called again and again while CRIU writes, for work on what is there already. True: there was
  // something to do.
  std::function<bool()> meanwhile;
};
Result<sys::ExitStatus> run_dump(Run run, const Watch& watch);

// Whether all processes of a cgroup have stopped.
Result<bool> is_frozen(const std::string& cgroup);

bool is_cancelled();
// failed: aborted.
Result<void> check_cancelled();

}  // namespace atl::snapshot
