// Snapshots: taking, listing and removing them.
#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "runtime/jail/memory_files.h"
#include "runtime/jail/memory_worker.h"
#include "runtime/jail/warden.h"
#include "sys/files.h"

namespace atl::jail {

Result<void> Warden::handle(const wire::SnapshotRequest& request) {
  const std::string id(wire::from_field(request.id));
  const std::string name(wire::from_field(request.snapshot));
  const std::uint64_t sequence = request.header.sequence;
  const auto refuse = [&](Errc code, const std::string& why) {
    return reply(wire::Op::snapshot, sequence, make_error(code, why));
  };
  const auto found = sandboxes_.find(id);
  if (found == sandboxes_.end() || found->second.removing)
    return refuse(Errc::not_found, "no sandbox " + id);
  Sandbox& sandbox = found->second;
  if (!sandbox.whole || !sandbox.alive() || sandbox.dumped || !sandbox.frozen)
    return refuse(Errc::failed_precondition, "sandbox " + id + " is not frozen");
  if (sandbox.job != 0)
    return refuse(Errc::failed_precondition, "the memory of sandbox " + id + " is being written");
  auto started = [&]() -> Result<Worker> {
    ATOLL_TRY(host_.faults.before("snapshot.start"));
    SnapshotInput input;
    ATOLL_TRY(fill_dump(id, sandbox, input.source));
    ATOLL_TRY_ASSIGN(input.source.lock, lock_memory(input.source.directory));
    input.memory = request.disk_only == 0;
    if (input.memory) {
      ATOLL_TRY(host_.programs.keep(input.source.facts.at(kProgramsFact)));
    }
    input.source.facts[kOwnerFact] = name;
    input.instance = instance_;
    input.snapshot = name;
    const std::vector<int> keep = input.source.descriptors();
    return Worker::start(Worker::Life::on_its_own, keep, host_.faults,
                         [&input](WorkerChannel& channel) { return run_snapshot(channel, input); });
  }();
  host_.faults.after("snapshot.start");
  ATOLL_TRY(begin_write(id, sandbox, wire::Op::snapshot, sequence, std::move(started)));
  if (sandbox.job != 0) jobs_.at(sandbox.job).snapshot = name;
  return {};
}

Result<void> Warden::handle(const wire::SnapshotIdRequest& request) {
  const std::string name(wire::from_field(request.snapshot));
  auto removed = [&]() -> Result<void> {
    ATOLL_TRY(host_.faults.before("remove_snapshot"));
    for (const auto& [number, job] : jobs_) {
      if (job.snapshot == name && job.kind == Job::Kind::snapshot)
        return make_error(Errc::failed_precondition, "snapshot " + name + " is being made");
    }
    for (const auto& [id, pending] : launches_) {
      if (pending.launch->spec().snapshot == name && !pending.launch->spec().kept)
        return make_error(Errc::failed_precondition, "snapshot " + name + " is in use");
    }
    ATOLL_TRY(stop_compacting(name));
    ATOLL_TRY_ASSIGN(const UsedLayers used, used_layers());
    return host_.snapshots.remove(name, used);
  }();
  if (removed) {
    host_.faults.after("remove_snapshot");
    to_let_go_.erase(name);
    let_go_of_layers();
  }
  return reply(wire::Op::remove_snapshot, request.header.sequence, removed);
}

Result<void> Warden::list_snapshots(const wire::ListRequest& request) {
  const std::uint64_t sequence = request.header.sequence;
  auto stored = host_.snapshots.list();
  if (!stored) return reply(wire::Op::list_snapshots, sequence, std::move(stored).error());
  std::sort(stored->begin(), stored->end(),
            [](const StoredSnapshot& a, const StoredSnapshot& b) { return a.id < b.id; });
  wire::ListSnapshotsReply message;
  message.reply.header.op = std::uint16_t(wire::Op::list_snapshots);
  message.reply.header.sequence = sequence;
  const std::string_view after = wire::from_field(request.after);
  for (const StoredSnapshot& snapshot : *stored) {
    if (snapshot.id <= after) continue;
    if (message.count == wire::kSnapshotPage) {
      message.more = 1;
      break;
    }
    wire::SnapshotEntry& entry = message.entries[message.count++];
    wire::to_field_cut(entry.id, snapshot.id);
    entry.whole = snapshot.whole ? 1 : 0;
    entry.memory_bytes = snapshot.memory_bytes;
    entry.disk_bytes = snapshot.disk_bytes;
    for (const LayerRef& layer : snapshot.mark.layers) {
      if (entry.layer_count == wire::kMaxLayers) break;
      wire::to_field_cut(entry.layers[entry.layer_count++], layer.snapshot);
    }
  }
  return send(message);
}

}  // namespace atl::jail
