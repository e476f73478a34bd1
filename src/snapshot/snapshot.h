// The processes of a sandbox as files, and back: what the warden's workers call.
//
// Theory of operation. A tree that stands still in its frozen cgroup is looked at first (scan.h):
// what CRIU cannot dump, or would dump and fail to restore, is refused with a reason while nothing
// has been touched. Then CRIU writes the images (`--leave-running`: the tree stays as it is,
// frozen), the images are patched so that they name files of the sandbox itself (patch.h), and a
// manifest with sizes, checksums and all that must be equal at a restore is written last. A
// directory without a manifest is no dump. A restore checks the manifest against the host and the
// files before anything is made.
//
// All functions block and are meant for a process of one thread that does nothing else. CRIU runs
// from a prefix of its own with its own loader, with a small library before it (preload.c) that
// lends it the owner of the sandbox's user namespace for the two calls that need it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "sys/fd.h"
#include "sys/mounts.h"

namespace atl::snapshot {

// ---- CRIU
struct Tools {
  std::string prefix;   // holds usr/sbin/criu, its loader and its libraries
  std::string version;  // "4.2.1"
};
// Runs it once. failed_precondition: not there, does not start, or too old.
Result<Tools> find_tools(const std::string& prefix);

// What must be equal when an image is used: template and its build, layers, the agent's and the
// runners' checksums, ... Text for text; a difference is named in the error.
using Facts = std::map<std::string, std::string>;

// Of the dump in a directory. not_found: there is none; data_loss; failed_precondition: made by
// another version.
Result<Facts> read_facts(const sys::UniqueFd& directory);

struct StepTime {
  std::string name;
  std::chrono::microseconds took;
};

// ---- dump
// A mount that a sandbox has. `external`: what it shows comes from outside and is given again to
// the restore under the same path; the others are made again by CRIU.
struct ExpectedMount {
  std::string path;
  std::string type;  // of the filesystem, as mountinfo calls it
  bool external = false;
};

// Of page tables, stacks of the kernel and CRIU itself while it restores: so much more than what
// was written must fit into the limit.
inline constexpr std::uint64_t kRestoreMargin = 24u << 20;

struct CheckpointPlan {
  Tools tools;
  pid_t init = 0;
  uid_t first_id = 0;
  std::uint32_t id_count = 65536;
  // The sandbox's cgroup: the frozen one, with cgroup.procs and freezer.state or cgroup.freeze.
  std::string cgroup;
  // All that there may be; a mount of another kind or place is an obstacle. Not all need exist.
  std::vector<ExpectedMount> mounts;
  // Root of the template, for files of it that a kernel inherited from a zygote. May be empty.
  const sys::UniqueFd* template_root = nullptr;
  std::uint64_t memory_limit = 0;  // of the cgroup that it shall come back to; 0: none
  // An empty directory, mode 0700: gets `images` and `manifest.json`.
  const sys::UniqueFd* directory = nullptr;
  Facts facts;
};
// Links on the sandbox's disk that a restore needs: other names of files that are open under a name
// that was removed. They are removed again with this object, unless the disk stays the image's.
class Links {
 public:
  Links() = default;
  Links(Links&&) = default;
  Links& operator=(Links&&) = delete;
  ~Links();
  // Makes one for what `file` (O_PATH) is, in the directory.
  Result<void> add(const sys::UniqueFd& file, sys::UniqueFd directory, std::string name);
  void keep() { made_.clear(); }
  void remove();

 private:
  struct Made {
    sys::UniqueFd directory;
    std::string name;
    std::uint64_t inode = 0;
  };
  std::vector<Made> made_;
};

struct Checkpointed {
  // A dump: keep() when the image is published. A snapshot: dropped when the disk was copied.
  Links links;
  std::uint64_t bytes = 0;         // on disk, all files
  std::uint64_t memory_bytes = 0;  // contents of memory
  std::vector<StepTime> steps;
};
// Everything is on disk (fsync) when it returns. Preconditions: the tree is frozen, and nobody
// outside is connected to a socket of it. Whatever the outcome, the tree stands as it stood; after
// an error the directory's content is worthless. Errors:
//   failed_precondition  this tree cannot be dumped; the message is the reason, for people
//   resource_exhausted   no space
//   aborted              cancel()
Result<Checkpointed> checkpoint(const CheckpointPlan& plan);

// The same in two parts, for whoever wants the tree to stand still no longer than it must. Errors
// as above.
class Checkpoint {
 public:
  // The memory is in files. The tree may run on once whatever else belongs to this instant has been
  // taken, too. `plan` outlives the object.
  static Result<Checkpoint> write(const CheckpointPlan& plan);
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) = delete;
  ~Checkpoint();

  Links& links();
  // The files are complete and on disk. The links go to the result.
  Result<Checkpointed> seal();

 private:
  class Work;
  explicit Checkpoint(std::unique_ptr<Work> work);
  std::unique_ptr<Work> work_;
};

// Makes a checkpoint or restore of this process give up soon (a dump in some 10 ms: CRIU's next
// write fails). May be called from a signal handler, which should be installed without SA_RESTART.
void cancel() noexcept;

// ---- restore
// Comes over a mount point inside.
struct External {
  std::string path;
  sys::DetachedMount mount;
};
// A file or directory below an External put over another path: the masks of procfs.
struct Part {
  std::string path;
  std::string of;    // path of the External
  std::string name;  // below it; may be empty
};

enum class Stage {
  namespaces,  // the first process exists with all its namespaces and nothing else: connect the
               // network, loopback up, sysctls
  restored,    // all is in place, no process has run yet; a failure ends them all. Last chance to
               // put the owner of the control directory right
  resuming,    // the processes stand before their next instruction, nothing of CRIU can fail any
               // more: mark the image as used. A failure ends them all, too
};

struct RestorePlan {
  Tools tools;
  const sys::UniqueFd* directory = nullptr;  // holds `images` and `manifest.json`
  uid_t first_id = 0;                        // may be another than before
  std::string hostname;
  Facts facts;
  std::uint64_t memory_limit = 0;  // of the cgroup; 0: unknown
  // The root filesystem, writable, with the ids of `first_id`. Not attached.
  sys::DetachedMount root;
  // At least those of the image. What the image does not have is passed over. The control directory
  // must belong to `first_id` when CRIU binds the agent's socket in it (see Stage::restored).
  std::vector<External> externals;
  std::vector<Part> parts;
  // Of the cgroup that the sandbox shall live in: "0" is written to each by CRIU's process.
  std::vector<sys::UniqueFd> cgroup_entrances;
  const sys::UniqueFd* template_root = nullptr;
  // Called in this process while CRIU waits. `init`: pid as seen here.
  std::function<Result<void>(Stage stage, pid_t init)> on_stage;
};
struct Restored {
  pid_t init = 0;
  sys::UniqueFd pidfd;
  std::vector<StepTime> steps;
};
// Leaves the calling process in a mount namespace of its own; the mounts made in it go with it. The
// restored tree is no child of CRIU any more: the nearest subreaper above has it. After an error
// processes may be left in the cgroup; the caller ends them. The directory is never changed.
// Errors:
//   not_found            no manifest
//   data_loss            corrupt or cut off
//   failed_precondition  made by another kernel, CPU, CRIU or version, or over other facts
//   resource_exhausted   more memory than the limit allows
//   aborted              cancel()
//   internal             CRIU failed; the message has its first complaint
Result<Restored> restore(RestorePlan plan);

// ---- self-test
struct SelfTest {
  std::string version;
  std::chrono::microseconds dump{};
  std::chrono::microseconds restore{};
};
// Makes a small tree in namespaces like a sandbox's, dumps it, ends it, restores it with other ids
// and asks it for what it remembered. `scratch`: an empty directory for the images; emptied at the
// end.
Result<SelfTest> self_test(const std::string& prefix, const sys::UniqueFd& scratch);

}  // namespace atl::snapshot
