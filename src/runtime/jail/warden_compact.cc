// Chains of layers that became too long: a worker makes them one (compact.h), one chain after the
// other. What lies below is let go of once nobody uses the chain any more.
#include <fcntl.h>

#include <algorithm>
#include <vector>

#include "base/log.h"
#include "runtime/jail/compact.h"
#include "runtime/jail/stage.h"
#include "runtime/jail/warden.h"
#include "sys/files.h"

namespace atl::jail {
namespace {

constexpr std::chrono::minutes kCompactDeadline{30};

Result<WorkerResult> run_compact(WorkerChannel& channel, const std::string& home_path,
                                 const std::string& instance, const runtime::SnapshotId& snapshot) {
  ATOLL_TRY(channel.run("compact", [&]() -> Result<void> {
    ATOLL_TRY_ASSIGN(sys::UniqueFd home, sys::open_trusted(home_path, O_RDONLY | O_DIRECTORY));
    ATOLL_TRY_ASSIGN(const SnapshotStore store, SnapshotStore::open(home, instance));
    // Of this process and its mount namespace, not the warden's.
    Layers layers(std::string(kStage) + "/" + kStageLayers);
    ATOLL_TRY(compact(store, layers, snapshot));
    return {};
  }));
  return WorkerResult{};
}

}  // namespace

Result<void> Warden::look_for_long_chains() {
  ATOLL_TRY_ASSIGN(const std::vector<StoredSnapshot> all, host_.snapshots.list());
  for (const StoredSnapshot& snapshot : all) {
    if (!snapshot.whole) continue;
    const auto chain = host_.snapshots.chain_of(snapshot.id);
    if (!chain) continue;
    if (chain->front().flat) to_let_go_.insert(snapshot.id);
    if (chain->size() > kMaxChain) to_compact_.push_back(snapshot.id);
  }
  let_go_of_layers();
  return compact_next();
}

Result<void> Warden::compact_later(const runtime::SnapshotId& snapshot) {
  const auto chain = host_.snapshots.chain_of(snapshot);
  if (!chain || chain->size() <= kMaxChain) return {};
  to_compact_.push_back(snapshot);
  return compact_next();
}

Result<void> Warden::compact_next() {
  const auto compacts = [](const auto& job) { return job.second.kind == Job::Kind::compact; };
  if (to_compact_.empty() || std::any_of(jobs_.begin(), jobs_.end(), compacts)) return {};
  const runtime::SnapshotId snapshot = std::move(to_compact_.front());
  to_compact_.pop_front();
  const std::uint64_t number = ++last_number_;
  Job& job = jobs_[number];
  job.kind = Job::Kind::compact;
  job.snapshot = snapshot;
  job.deadline = Clock::now() + kCompactDeadline;
  auto worker =
      Worker::start(Worker::Life::with_warden, {}, host_.faults, [&](WorkerChannel& channel) {
        return run_compact(channel, host_.tools.home, instance_, snapshot);
      });
  if (!worker) return on_compacted(number, std::move(worker).error());
  return start_worker(number, std::move(worker));
}

// A chain that stays long works as well; the next start tries again.
Result<void> Warden::on_compacted(std::uint64_t number, const Result<void>& outcome) {
  const runtime::SnapshotId snapshot = jobs_.at(number).snapshot;
  if (outcome) {
    log::info("made one layer of many", {{"snapshot", snapshot}});
    to_let_go_.insert(snapshot);
    let_go_of_layers();
  } else if (outcome.error().code != Errc::aborted) {
    log::warn("the layers of a snapshot stay many",
              {{"snapshot", snapshot}, {"error", outcome.error().message}});
  }
  ATOLL_TRY(end_job(number, {}, ""));
  return compact_next();
}

Result<void> Warden::stop_compacting(const runtime::SnapshotId& snapshot) {
  std::erase(to_compact_, snapshot);
  for (const auto& [number, job] : jobs_) {
    if (job.kind != Job::Kind::compact || job.snapshot != snapshot) continue;
    // With the job its worker goes, which leaves nothing.
    return on_worker_end(number, make_error(Errc::aborted, "the snapshot is removed"));
  }
  return {};
}

Result<UsedLayers> Warden::used_layers() const {
  ATOLL_TRY_ASSIGN(UsedLayers used, layers_of_sandboxes(host_.sandboxes));
  for (const auto& [id, pending] : launches_)
    used.insert(pending.launch->chain().begin(), pending.launch->chain().end());
  return used;
}

void Warden::let_go_of_layers() {
  if (to_let_go_.empty()) return;
  const auto used = used_layers();
  for (auto snapshot = to_let_go_.begin(); used && snapshot != to_let_go_.end();) {
    auto gone = host_.snapshots.let_go(*snapshot, *used);
    if (!gone && gone.error().code != Errc::not_found)
      log::error("layers that nobody needs stay",
                 {{"snapshot", *snapshot}, {"error", gone.error().message}});
    const bool done = gone ? *gone : gone.error().code == Errc::not_found;
    snapshot = done ? to_let_go_.erase(snapshot) : std::next(snapshot);
  }
}

}  // namespace atl::jail
