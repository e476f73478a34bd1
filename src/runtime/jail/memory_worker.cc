#include "runtime/jail/memory_worker.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <optional>

#include "runtime/jail/disk_copy.h"
#include "runtime/jail/memory_files.h"
#include "runtime/jail/plan.h"
#include "runtime/jail/ranges.h"
#include "runtime/jail/trial.h"
#include "snapshot/snapshot.h"
#include "sys/files.h"
#include "sys/self.h"

namespace atl::jail {
namespace {

// Below the directory of an instance; no sandbox has such a name.
constexpr const char* kProbeName = ".probe";

void on_cancel(int) { snapshot::cancel(); }

// Without SA_RESTART: what waits is to notice.
Result<void> obey_cancel() {
  struct sigaction action{};
  action.sa_handler = on_cancel;
  if (::sigaction(SIGTERM, &action, nullptr) != 0) return errno_error("sigaction");
  return sys::unblock_signal(SIGTERM);
}

// Everything that a sandbox has mounted, see plan.cc.
std::vector<snapshot::ExpectedMount> expected_mounts() {
  std::vector<snapshot::ExpectedMount> all = {
      {"/", "overlay", false},       {"/proc", "proc", false},     {"/proc/sys", "proc", false},
      {"/proc/irq", "proc", false},  {"/proc/bus", "proc", false}, {"/proc/fs", "proc", false},
      {"/dev/pts", "devpts", false}, {"/dev/shm", "tmpfs", false}};
  const StageExternals host = host_mounts();
  for (const HostMount& mount : host.mounts) all.push_back({mount.target, "tmpfs", true});
  for (const HostMask& mask : host.masks) all.push_back({mask.target, "tmpfs", true});
  return all;
}

Result<snapshot::CheckpointPlan> plan_for(const DumpInput& input, const sys::UniqueFd& directory) {
  snapshot::CheckpointPlan plan;
  ATOLL_TRY_ASSIGN(plan.tools, tried_tools(input.tools));
  plan.init = input.init;
  plan.first_id = Ranges::first_id(input.slot);
  plan.id_count = kIdsPerSandbox;
  plan.cgroup = input.freezer;
  plan.mounts = expected_mounts();
  plan.template_root = input.template_root ? &input.template_root : nullptr;
  plan.directory = &directory;
  plan.facts = input.facts;
  plan.memory_limit = input.memory_limit;
  return plan;
}

void tell_steps(WorkerChannel& channel, const snapshot::Checkpointed& made) {
  for (const snapshot::StepTime& step : made.steps) channel.tell(step.name, step.took);
}

// What the sandbox has written is in the image, and the image on the host's disk, as far as that
// can be while it is mounted: what follows the end of the tree is little.
Result<void> flush_mounted(const DumpInput& input) {
  ATOLL_TRY_ASSIGN(
      sys::UniqueFd root,
      sys::open_trusted("/proc/" + std::to_string(input.init) + "/root", O_RDONLY | O_DIRECTORY));
  if (::syncfs(root.get()) != 0) return errno_error("syncfs");
  ATOLL_TRY_ASSIGN(sys::UniqueFd image, sys::open_beneath(input.directory, kImageName, O_RDONLY));
  return sys::flush_to_disk(image);
}

}  // namespace

std::vector<int> DumpInput::descriptors() const {
  std::vector<int> all = {directory.get(), lock.get()};
  if (template_root) all.push_back(template_root.get());
  return all;
}

Result<WorkerResult> run_dump(WorkerChannel& channel, DumpInput& input) {
  WorkerResult result;
  ATOLL_TRY(sign_lock(input.lock));
  ATOLL_TRY(obey_cancel());
  std::optional<snapshot::Links> links;  // removed again if there is no dump
  auto written = channel.run("dump.write", [&]() -> Result<void> {
    ATOLL_TRY_ASSIGN(sys::UniqueFd memory, make_new_memory(input.directory));
    ATOLL_TRY_ASSIGN(snapshot::CheckpointPlan plan, plan_for(input, memory));
    ATOLL_TRY_ASSIGN(snapshot::Checkpointed made, snapshot::checkpoint(plan));
    tell_steps(channel, made);
    result.memory_bytes = made.bytes;
    links.emplace(std::move(made.links));
    return {};
  });
  if (written) written = channel.run("dump.sync", [&] { return flush_mounted(input); });
  if (written)
    written = channel.run("dump.publish", [&] { return publish_memory(input.directory); });
  if (!written) {
    // Best effort: the next dump, or the next warden, removes it too.
    (void)sys::remove_tree(input.directory, kNewMemoryName);
    return std::move(written).error();
  }
  links->keep();
  return result;
}

Result<WorkerResult> run_snapshot(WorkerChannel& channel, SnapshotInput& input) {
  WorkerResult result;
  DumpInput& source = input.source;
  ATOLL_TRY(sign_lock(source.lock));
  ATOLL_TRY(obey_cancel());
  ATOLL_TRY_ASSIGN(sys::UniqueFd home,
                   sys::open_trusted(source.tools.home, O_RDONLY | O_DIRECTORY));
  ATOLL_TRY_ASSIGN(SnapshotStore store, SnapshotStore::open(home, input.instance));
  ATOLL_TRY_ASSIGN(std::optional<Mark> mark, read_mark(source.directory));
  if (!mark) return make_error(Errc::failed_precondition, "the sandbox has no mark");
  sys::UniqueFd directory;
  ATOLL_TRY(channel.run("snapshot.begin", [&]() -> Result<void> {
    ATOLL_TRY_ASSIGN(directory, store.begin(input.snapshot));
    return {};
  }));
  sys::UniqueFd memory;
  snapshot::CheckpointPlan plan;
  std::optional<snapshot::Checkpoint> checkpoint;
  Result<void> done;
  if (input.memory) {
    done = channel.run("snapshot.write", [&]() -> Result<void> {
      ATOLL_TRY(sys::make_dir(directory, kMemoryName, 0700, sys::IfExists::fail));
      ATOLL_TRY_ASSIGN(memory, sys::open_beneath(directory, kMemoryName, O_RDONLY | O_DIRECTORY));
      ATOLL_TRY_ASSIGN(plan, plan_for(source, memory));
      ATOLL_TRY_ASSIGN(snapshot::Checkpoint written, snapshot::Checkpoint::write(plan));
      checkpoint.emplace(std::move(written));
      return {};
    });
  }
  if (done) {
    done = channel.run("snapshot.disk", [&]() -> Result<void> {
      ATOLL_TRY_ASSIGN(DiskCopy copied, copy_disk(source.directory, directory, kImageName));
      result.disk_bytes = copied.bytes;
      return {};
    });
  }
  // Links are needed on the copy of the disk only.
  if (checkpoint) checkpoint->links().remove();
  const auto released = std::chrono::steady_clock::now();
  if (done) channel.release();
  if (done) {
    done = channel.run("snapshot.flush", [&]() -> Result<void> {
      if (checkpoint) {
        ATOLL_TRY_ASSIGN(snapshot::Checkpointed made, checkpoint->seal());
        tell_steps(channel, made);
        result.memory_bytes = made.bytes;
      }
      return flush_copy(directory, kImageName);
    });
  }
  if (done) {
    done = channel.run("snapshot.publish", [&] {
      return store.publish(input.snapshot, Mark{mark->files_slot(), 0, mark->layers});
    });
  }
  channel.tell("after_source", std::chrono::duration_cast<std::chrono::microseconds>(
                                   std::chrono::steady_clock::now() - released));
  if (!done) {
    (void)store.remove(input.snapshot, {});  // what stays is listed as remains
    return std::move(done).error();
  }
  return result;
}

Result<WorkerResult> run_seal(WorkerChannel& channel, const sys::UniqueFd& directory,
                              const sys::UniqueFd& parent) {
  ATOLL_TRY(channel.run("kill.seal", [&]() -> Result<void> {
    ATOLL_TRY(flush_disk(directory));
    return sys::flush_to_disk(parent);
  }));
  return WorkerResult{};
}

Result<WorkerResult> run_probe(WorkerChannel& channel, const MemoryTools& tools,
                               const sys::UniqueFd& directory) {
  WorkerResult result;
  auto tested = channel.run("probe", [&]() -> Result<void> {
    ATOLL_TRY(sys::remove_tree(directory, kProbeName));
    ATOLL_TRY(sys::make_dir(directory, kProbeName, 0700, sys::IfExists::fail));
    ATOLL_TRY_ASSIGN(sys::UniqueFd scratch,
                     sys::open_beneath(directory, kProbeName, O_RDONLY | O_DIRECTORY));
    ATOLL_TRY_ASSIGN(snapshot::SelfTest test, snapshot::self_test(tools.criu, scratch));
    result.text = test.version;
    return {};
  });
  (void)sys::remove_tree(directory, kProbeName);  // the next one removes it too
  ATOLL_TRY(tested);
  return result;
}

}  // namespace atl::jail
