// A look at a frozen tree before CRIU sees it. Finds what CRIU would refuse half-way, and, worse,
// what it would dump and could not restore.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "snapshot/snapshot.h"
#include "sys/fd.h"

namespace atl::snapshot {

enum class Obstacle : std::uint8_t {
  io_uring,
  userfaultfd,
  perf_event,
  descriptor,       // of another kind that cannot be dumped
  socket,           // of a family or protocol that cannot be dumped
  outside_socket,   // whose other end is not in the sandbox
  traced,           // by a debugger inside
  stopped,          // by a signal: CRIU waits for ever for such a process in a frozen cgroup
  namespaces,       // of its own, made inside
  mount,            // made inside
  outside_process,  // in the cgroup but not a descendant of the first one
  foreign_file,     // of neither sandbox nor template
};
// "io_uring", "traced", ...
std::string_view name_of(Obstacle obstacle);

// A file that a process has mapped or open through a mount which is not the sandbox's: one of the
// template, or of the runners, that a kernel inherited from its zygote.
struct ForeignFile {
  std::uint32_t mount = 0;
  std::uint64_t inode = 0;
  std::string path;
  bool same = false;  // the sandbox's own file of that path is still that file
};

// A file that is open or mapped under a name that was removed, and has others.
struct RemovedName {
  std::string path;  // without the leading slash
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  sys::UniqueFd file;  // O_PATH
};

struct Scan {
  std::vector<pid_t> pids;
  std::vector<pid_t> inner_pids;             // as the processes know themselves
  std::vector<std::string> external_mounts;  // paths, of those expected
  std::vector<ForeignFile> files;
  std::vector<RemovedName> removed;
};
// failed_precondition: an obstacle; the message says what and where.
Result<Scan> scan(const CheckpointPlan& plan);

// ---- pure parts
struct MountLine {
  std::uint32_t id = 0;
  std::uint64_t device = 0;  // as st_dev
  std::string path;          // escapes resolved
  std::string type;
};
Result<std::vector<MountLine>> parse_mountinfo(std::string_view text);
// Paths of the external ones, or the obstacle.
Result<std::vector<std::string>> check_mounts(const std::vector<MountLine>& found,
                                              const std::vector<ExpectedMount>& expected);

struct TaskStatus {
  char state = '?';
  pid_t parent = 0;
  pid_t tracer = 0;
  pid_t inner_pid = 0;  // in the innermost pid namespace
  std::string name;     // printable
};
Result<TaskStatus> parse_status(std::string_view text);

struct MapLine {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::string name;  // as the kernel writes it
};
// Lines that stand for no file are left out.
Result<std::vector<MapLine>> parse_maps(std::string_view text);

// What the target of a link in /proc/PID/fd means: nullopt if it is no obstacle by itself.
std::optional<Obstacle> obstacle_of_link(std::string_view target);

}  // namespace atl::snapshot
