// The part of a launch that is special for a sandbox from memory: a worker restores it, and the
// warden does for it what only the warden can.
#include <fcntl.h>

#include <cerrno>
#include <thread>

#include "base/json.h"
#include "base/log.h"
#include "runtime/jail/launch.h"
#include "runtime/jail/memory_files.h"
#include "runtime/jail/restore_worker.h"
#include "sys/files.h"

namespace atl::jail {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kEmptyDeadline{10};
constexpr std::size_t kMaxManifest = 64 << 10;

std::chrono::microseconds since(Clock::time_point begin) {
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
}

}  // namespace

Result<std::map<std::string, std::string>> memory_facts(const LaunchHost& host,
                                                        const std::string& template_id) {
  std::map<std::string, std::string> facts{{"template", template_id}};
  auto text = sys::read_beneath(host.templates, template_id + "/manifest.json", kMaxManifest);
  if (!text && text.error().sys_errno == ENOENT) return facts;  // made by hand: has no builds
  if (!text) return std::move(text).error();
  ATOLL_TRY_ASSIGN(json::value manifest, parse_json(*text));
  const json::value* build =
      manifest.is_object() ? manifest.get_object().if_contains("buildID") : nullptr;
  if (build != nullptr && build->is_string()) facts["build"] = std::string(build->get_string());
  return facts;
}

Result<void> Launch::open_memory() {
  const bool kept = spec_.memory == runtime::Memory::kept;
  sys::UniqueFd snapshot;
  if (!kept) {
    ATOLL_TRY_ASSIGN(snapshot, host_.snapshots.directory(spec_.snapshot));
  }
  const sys::UniqueFd& owner = kept ? directory_ : snapshot;
  ATOLL_TRY_ASSIGN(bool there, has_memory(owner));
  if (!there)
    return make_error(
        Errc::not_found,
        (kept ? "sandbox " + spec_.id : "snapshot " + spec_.snapshot) + " has no memory in files");
  ATOLL_TRY_ASSIGN(memory_, sys::open_beneath(owner, kMemoryName, O_RDONLY | O_DIRECTORY));
  ATOLL_TRY_ASSIGN(snapshot::Facts written, snapshot::read_facts(memory_));
  ATOLL_TRY_ASSIGN(memory_facts_, memory_facts(host_, spec_.template_id));
  // Images of earlier versions do not say these.
  if (written.contains(kOwnerFact)) memory_facts_[kOwnerFact] = kept ? spec_.id : spec_.snapshot;
  if (const auto layers = written.find(kLayersFact); layers != written.end()) {
    // Those of a snapshot may have been merged since.
    memory_facts_[kLayersFact] = layers->second;
    if (kept) {
      ATOLL_TRY_ASSIGN(std::optional<Mark> mark, read_mark(directory_));
      memory_facts_[kLayersFact] = layers_fact(mark ? mark->layers : std::vector<LayerRef>{});
    }
  }
  // An image without this fact is of a version that did not keep programs: its own may do.
  const auto programs = written.find(kProgramsFact);
  if (programs == written.end()) return {};
  ATOLL_TRY_ASSIGN(bool provided, host_.programs.provide(programs->second));
  if (!provided && kept)
    return make_error(Errc::failed_precondition,
                      "sandbox " + spec_.id +
                          " was paused by another version of Atoll whose programs are gone; resume "
                          "it from its disk (memory: false)");
  if (!provided)
    return make_error(Errc::failed_precondition,
                      "snapshot " + spec_.snapshot +
                          " was made by another version of Atoll whose programs are gone");
  programs_ = programs->second;
  memory_facts_[kProgramsFact] = programs_;
  return {};
}

Result<void> Launch::start_restore() {
  RestoreInput input{plan_, host_.tools, {}, {}, {}, {}, {}, {}, {}, {}, {}, 0, {}};
  input.facts = std::move(memory_facts_);
  input.programs = host_.programs.place(programs_);
  input.memory = std::move(memory_);
  if (spec_.memory == runtime::Memory::kept) {
    ATOLL_TRY_ASSIGN(input.directory,
                     sys::open_beneath(host_.sandboxes, spec_.id, O_RDONLY | O_DIRECTORY));
    ATOLL_TRY_ASSIGN(input.lock, lock_memory(input.directory));
  }
  input.root = std::move(root_);
  input.control = std::move(control_);
  ATOLL_TRY_ASSIGN(input.cgroup_entrances, cgroup_->entrances_for_others());
  input.template_root = std::move(template_root_);
  input.first_id = Ranges::first_id(slot_);
  input.address = sandbox_address(slot_);
  // Before the worker: whatever it leaves in the cgroup is ended first.
  rollback_.add([this] { end_restore(); });
  ATOLL_TRY_ASSIGN(Worker worker, Worker::start(Worker::Life::with_warden, input.descriptors(),
                                                host_.faults, [&](WorkerChannel& channel) {
                                                  return run_restore(channel, input);
                                                }));
  worker_ = std::move(worker);
  return {};
}

// Everything of it is in the cgroup: CRIU was started there.
void Launch::end_restore() {
  worker_.reset();
  init_.end();
  const auto deadline = Clock::now() + kEmptyDeadline;
  for (;;) {
    auto left = cgroup_->processes();
    if (left && left->empty()) return;
    if (left) {
      auto killed = cgroup_->kill_all();
      if (!killed) log::error("undo of a restore failed", {{"error", killed.error().message}});
    }
    if (!left || Clock::now() > deadline) {
      log::error("a restore that failed does not end", {{"sandbox", spec_.id}});
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// A step of the warden that the worker has asked for.
Result<void> Launch::run_step(const char* name, const std::function<Result<void>()>& work) {
  const auto begin = Clock::now();
  Result<void> done = host_.faults.before(name);
  if (done) done = work();
  if (!done) {
    failed_step_ = name;
    return done;
  }
  host_.faults.after(name);
  times_.emplace_back(name, since(begin));
  return {};
}

Result<bool> Launch::advance_restore() {
  ATOLL_TRY_ASSIGN(std::optional<WorkerMessage> message, worker_->receive());
  if (!message) {
    failed_step_ = "restore";
    return make_error(Errc::internal, "the worker ended without a word");
  }
  switch (message->kind) {
    case WorkerMessage::step:
      times_.emplace_back(wire::from_field(message->name),
                          std::chrono::microseconds(message->micros));
      return false;
    case WorkerMessage::die:
      die_now();
    case WorkerMessage::connect: {
      // An error reaches us again by the worker, which gives up.
      ATOLL_TRY(worker_->answer(run_step(
          "network.link", [&] { return host_.network->connect(slot_, pid_t(message->pid)); })));
      return false;
    }
    case WorkerMessage::resume: {
      // The last moment at which a failure leaves the image as it was; it reaches us by the worker.
      Result<void> good = run_step("await_restore", [&] { return check_socket(); });
      committed_ = good.ok();
      ATOLL_TRY(worker_->answer(std::move(good)));
      return false;
    }
    case WorkerMessage::done: {
      if (message->code != 0) {
        if (failed_step_.empty()) failed_step_ = wire::from_field(message->name);
        return to_error(*message);
      }
      ATOLL_TRY(finish_restore(message->pid));
      return true;
    }
    default:
      return make_error(Errc::internal, "a worker sent something else");
  }
}

void Launch::let_go() {
  if (!committed_ || spec_.memory != runtime::Memory::kept) return;
  rollback_.commit();
  if (worker_) worker_->process().release();
  init_.release();
}

// CRIU has ended; its first process became a child of this one, the nearest that adopts orphans.
// Of a sandbox's own memory there is no image any more: nothing is done that could wait or fail.
Result<void> Launch::finish_restore(pid_t pid) {
  worker_.reset();
  failed_step_ = "await_restore";
  ATOLL_TRY_ASSIGN(sys::UniqueFd pidfd, sys::open_pidfd(pid));
  ATOLL_TRY_ASSIGN(bool ours, sys::is_child(pidfd));
  if (!ours) return make_error(Errc::internal, "the restored process is not ours");
  init_ = sys::Child(pid, std::move(pidfd));
  if (sys::has_ended(init_.pidfd()))
    return make_error(Errc::internal, "the restored process ended at once");
  failed_step_.clear();
  if (spec_.kept) return {};  // it has its mark
  return run_step("mark", [&] { return mark(); });
}

}  // namespace atl::jail
