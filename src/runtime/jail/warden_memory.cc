// Memory in files: dumps, their end, and what earlier wardens left of them. The long parts are done
// by workers (memory_worker.h); here is what the event loop does about them.
#include <fcntl.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/log.h"
#include "runtime/jail/disk_copy.h"
#include "runtime/jail/memory_files.h"
#include "runtime/jail/memory_worker.h"
#include "runtime/jail/trial.h"
#include "runtime/jail/warden.h"
#include "sys/files.h"

namespace atl::jail {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// After these it is cancelled, and then waited for: CRIU cannot be stopped by force.
constexpr seconds kWriteDeadline{900};
constexpr seconds kSealDeadline{300};
constexpr seconds kProbeDeadline{60};
// For a dump that was under way when an earlier warden ended. Less than what the server waits for
// this one to start.
constexpr milliseconds kForeignGrace{300};
constexpr milliseconds kForeignDeadline{20000};

}  // namespace

// ---- requests

Result<void> Warden::handle(const wire::PlainRequest& request) {
  const std::uint64_t sequence = request.header.sequence;
  if (auto version = support_ ? std::nullopt : remembered_trial(host_.tools)) {
    wire::MemorySupportReply& support = support_.emplace();
    support.durable = 1;
    wire::to_field_cut(support.version, *version);
  }
  if (support_) {
    wire::MemorySupportReply message = *support_;
    message.reply.header.op = std::uint16_t(wire::Op::memory_support);
    message.reply.header.sequence = sequence;
    return send(message);
  }
  for (auto& [number, job] : jobs_) {
    if (job.kind != Job::Kind::probe) continue;
    job.waiting.push_back(sequence);
    return {};
  }
  const std::uint64_t number = ++last_number_;
  Job& job = jobs_[number];
  job.kind = Job::Kind::probe;
  job.op = wire::Op::memory_support;
  job.waiting.push_back(sequence);
  job.deadline = Clock::now() + kProbeDeadline;
  auto worker = Worker::start(
      Worker::Life::with_warden, {host_.sandboxes.get()}, host_.faults,
      [this](WorkerChannel& channel) { return run_probe(channel, host_.tools, host_.sandboxes); });
  return start_worker(number, std::move(worker));
}

Result<void> Warden::begin_dump(const std::string& id, Sandbox& sandbox, std::uint64_t sequence) {
  if (!sandbox.frozen)
    return reply(wire::Op::dump, sequence,
                 make_error(Errc::failed_precondition, "sandbox " + id + " is not frozen"));
  auto started = [&]() -> Result<Worker> {
    ATOLL_TRY(host_.faults.before("dump.start"));
    DumpInput input;
    ATOLL_TRY(fill_dump(id, sandbox, input));
    ATOLL_TRY(host_.programs.keep(input.facts.at(kProgramsFact)));
    ATOLL_TRY_ASSIGN(input.lock, lock_memory(input.directory));
    const std::vector<int> keep = input.descriptors();
    // The lock is the worker's alone once `input` goes here.
    return Worker::start(Worker::Life::on_its_own, keep, host_.faults,
                         [&input](WorkerChannel& channel) { return run_dump(channel, input); });
  }();
  host_.faults.after("dump.start");
  return begin_write(id, sandbox, wire::Op::dump, sequence, std::move(started));
}

Result<void> Warden::begin_write(const std::string& id, Sandbox& sandbox, wire::Op op,
                                 std::uint64_t sequence, Result<Worker> worker) {
  if (!worker) return reply(op, sequence, std::move(worker).error());
  const std::uint64_t number = ++last_number_;
  Job& job = jobs_[number];
  job.kind = op == wire::Op::dump ? Job::Kind::dump : Job::Kind::snapshot;
  job.id = id;
  job.op = op;
  job.waiting.push_back(sequence);
  job.deadline = Clock::now() + kWriteDeadline;
  sandbox.job = number;
  return start_worker(number, std::move(worker));
}

Result<void> Warden::fill_dump(const std::string& id, const Sandbox& sandbox, DumpInput& input) {
  if (!sandbox.slot)
    return make_error(Errc::failed_precondition, "sandbox " + id + " has lost its id range");
  ATOLL_TRY_ASSIGN(sys::Cgroup cgroup, cgroup_of(id));
  ATOLL_TRY_ASSIGN(input.freezer, cgroup.freezer_path());
  if (auto limit = cgroup.memory_limit()) input.memory_limit = *limit;
  ATOLL_TRY_ASSIGN(input.directory, sys::open_beneath(host_.sandboxes, id, O_RDONLY | O_DIRECTORY));
  if (!sandbox.template_id.empty()) {
    ATOLL_TRY_ASSIGN(
        input.template_root,
        sys::open_beneath(host_.templates, sandbox.template_id + "/rootfs", O_PATH | O_DIRECTORY));
  }
  ATOLL_TRY_ASSIGN(input.facts, memory_facts(host_, sandbox.template_id));
  // What it runs, which need not be of this version.
  ATOLL_TRY_ASSIGN(input.facts[kProgramsFact], host_.programs.of(input.directory));
  input.facts[kOwnerFact] = id;
  ATOLL_TRY_ASSIGN(std::optional<Mark> mark, read_mark(input.directory));
  if (mark) input.facts[kLayersFact] = layers_fact(mark->layers);
  input.tools = host_.tools;
  input.id = id;
  input.template_id = sandbox.template_id;
  input.init = sandbox.pid;
  input.slot = *sandbox.slot;
  return {};
}

// After a dump, whose job goes on, or after a kill.
Result<void> Warden::begin_seal(const std::string& id, Sandbox& sandbox, wire::Op op,
                                std::vector<std::uint64_t> waiting) {
  if (sandbox.job == 0) {
    sandbox.job = ++last_number_;
    Job& job = jobs_[sandbox.job];
    job.id = id;
    job.op = op;
    job.waiting = std::move(waiting);
  }
  const std::uint64_t number = sandbox.job;
  Job& job = jobs_.at(number);
  job.kind = Job::Kind::seal;
  job.deadline = Clock::now() + kSealDeadline;
  auto started = [&]() -> Result<Worker> {
    ATOLL_TRY_ASSIGN(sys::UniqueFd directory,
                     sys::open_beneath(host_.sandboxes, id, O_RDONLY | O_DIRECTORY));
    return Worker::start(
        Worker::Life::on_its_own, {directory.get(), host_.sandboxes.get()}, host_.faults,
        [&](WorkerChannel& channel) { return run_seal(channel, directory, host_.sandboxes); });
  }();
  return start_worker(number, std::move(started));
}

// ---- workers

Result<void> Warden::start_worker(std::uint64_t number, Result<Worker> worker) {
  if (!worker) return end_job(number, std::move(worker).error(), "worker");
  Job& job = jobs_.at(number);
  job.worker = std::move(*worker);
  job.token = watch(Watched::Kind::job, job.id, number);
  return poller_.add(job.worker->channel(), job.token);
}

Result<void> Warden::cancel_job(Job& job, Error why) {
  if (job.cancelled || !job.worker) return {};
  if (job.kind != Job::Kind::dump && job.kind != Job::Kind::snapshot) return {};
  job.cancelled = std::move(why);
  auto asked = job.worker->cancel();
  if (!asked && asked.error().sys_errno != ESRCH) return asked;
  return {};
}

Result<void> Warden::on_job(std::uint64_t number) {
  const auto found = jobs_.find(number);
  if (found == jobs_.end() || !found->second.worker) return {};
  Job& job = found->second;
  auto received = job.worker->receive();
  if (!received) return on_worker_end(number, std::move(received).error());
  if (!*received)
    return on_worker_end(number, make_error(Errc::internal, "the worker ended without a word"));
  const WorkerMessage& message = **received;
  switch (message.kind) {
    case WorkerMessage::step: {
      if (job.written.step_count == wire::kMaxSteps) return {};
      wire::StepEntry& entry = job.written.steps[job.written.step_count++];
      wire::to_field_cut(entry.name, wire::from_field(message.name));
      entry.micros = std::uint32_t(std::min<std::uint64_t>(message.micros, UINT32_MAX));
      return {};
    }
    case WorkerMessage::die:
      die_now();
    case WorkerMessage::done:
      return on_worker_end(number, message);
    case WorkerMessage::released:
      return on_released(job);
    default:
      return job.worker->answer(make_error(Errc::unimplemented, "not for this work"));
  }
}

Result<void> Warden::on_worker_end(std::uint64_t number, Result<WorkerMessage> result) {
  Job& job = jobs_.at(number);
  poller_.remove(job.worker->channel());
  watched_.erase(std::exchange(job.token, 0));
  job.worker.reset();
  job.deadline = Clock::time_point::max();
  std::string step;
  if (result) step = wire::from_field(result->name);
  if (result && result->code != 0) result = to_error(*result);
  reap_strays();
  if (result) {
    // The second worker of a dump says nothing of these.
    job.written.memory_bytes = std::max(job.written.memory_bytes, result->memory_bytes);
    job.written.disk_bytes = std::max(job.written.disk_bytes, result->disk_bytes);
  }
  if (job.kind == Job::Kind::probe) {
    wire::MemorySupportReply& support = support_.emplace();
    support.durable = result ? 1 : 0;
    if (result) {
      wire::to_field_cut(support.version, wire::from_field(result->message));
      remember_trial(host_.tools, wire::from_field(result->message));
    }
    if (!result) {
      wire::to_field_cut(support.reason, result.error().message);
      log::warn("memory cannot be written to files here", {{"error", result.error().message}});
    }
    return end_job(number, {}, "");
  }
  if (job.kind == Job::Kind::compact)
    return on_compacted(number, result ? Result<void>() : Result<void>(result.error()));
  const auto found = sandboxes_.find(job.id);
  if (found == sandboxes_.end()) return end_job(number, make_error(Errc::not_found, job.id), "");
  if (!result && job.kind == Job::Kind::seal && found->second.dumped) {
    // Both were flushed before the memory was published.
    log::error("the disk of a dumped sandbox was not flushed again",
               {{"sandbox", job.id}, {"error", result.error().message}});
    return end_job(number, {}, "");
  }
  if (!result) {
    const Error& error = result.error();
    return end_job(number, job.cancelled && error.code == Errc::aborted ? *job.cancelled : error,
                   step);
  }
  if (job.kind == Job::Kind::dump) return on_dumped(number, found->second);
  const runtime::SnapshotId made = job.kind == Job::Kind::snapshot ? job.snapshot : "";
  ATOLL_TRY(end_job(number, {}, ""));
  return made.empty() ? Result<void>() : compact_later(made);
}

// What was to be taken of this instant has been. Whoever asked for the snapshot thaws it in any
// case, when it is done.
Result<void> Warden::on_released(const Job& job) {
  const auto found = sandboxes_.find(job.id);
  if (found == sandboxes_.end() || job.kind != Job::Kind::snapshot || !found->second.alive())
    return {};
  auto thawed = thaw(job.id, found->second);
  if (!thawed)
    log::warn("a sandbox stands still longer than it has to",
              {{"sandbox", job.id}, {"error", thawed.error().message}});
  return {};
}

// The memory is whole and published; the tree is still there.
Result<void> Warden::on_dumped(std::uint64_t number, Sandbox& sandbox) {
  Job& job = jobs_.at(number);
  sandbox.dumped = true;
  if (job.cancelled || !sandbox.alive()) {
    const Error why = job.cancelled ? *job.cancelled
                                    : make_error(Errc::failed_precondition,
                                                 "sandbox " + job.id + " died meanwhile");
    ATOLL_TRY(drop_memory(job.id, sandbox));
    return end_job(number, why, "");
  }
  auto killed = host_.faults.before("dump.end");
  if (killed) killed = kill(sandbox, job.id);
  if (!killed) {
    ATOLL_TRY(drop_memory(job.id, sandbox));
    return end_job(number, killed, "dump.end");
  }
  host_.faults.after("dump.end");
  return {};  // on_process_end goes on
}

Result<void> Warden::end_job(std::uint64_t number, const Result<void>& outcome,
                             std::string_view step) {
  const auto found = jobs_.find(number);
  if (found == jobs_.end()) return {};
  Job job = std::move(found->second);
  jobs_.erase(found);
  for (std::uint64_t sequence : job.waiting) {
    if (job.op == wire::Op::memory_support && support_) {
      wire::MemorySupportReply message = *support_;
      message.reply.header.op = std::uint16_t(job.op);
      message.reply.header.sequence = sequence;
      ATOLL_TRY(send(message));
    } else if (job.op == wire::Op::dump || job.op == wire::Op::snapshot) {
      wire::WrittenReply message = job.written;
      message.reply.header.op = std::uint16_t(job.op);
      message.reply.header.sequence = sequence;
      if (!outcome) fill(message.reply, outcome.error(), step);
      ATOLL_TRY(send(message));
    } else {
      ATOLL_TRY(reply(job.op, sequence, outcome));
    }
  }
  const auto sandbox = sandboxes_.find(job.id);
  if (sandbox == sandboxes_.end()) return {};
  sandbox->second.job = 0;
  for (const wire::IdRequest& request : std::exchange(sandbox->second.deferred, {})) {
    ATOLL_TRY(handle(request));
  }
  const auto still = sandboxes_.find(job.id);
  if (still == sandboxes_.end() || still->second.job != 0 || !still->second.settled) return {};
  return boot_waiting(job.id, still->second, {});
}

Result<void> Warden::on_job_deadlines(Clock::time_point now) {
  std::vector<std::uint64_t> late;
  for (const auto& [number, job] : jobs_) {
    if (job.deadline <= now) late.push_back(number);
  }
  for (std::uint64_t number : late) {
    Job& job = jobs_.at(number);
    job.deadline = Clock::time_point::max();
    log::error("work on memory takes too long", {{"sandbox", job.id}});
    if (job.kind == Job::Kind::probe || job.kind == Job::Kind::compact) {
      ATOLL_TRY(on_worker_end(number, make_error(Errc::deadline_exceeded, "it took too long")));
      continue;
    }
    ATOLL_TRY(cancel_job(job, make_error(Errc::deadline_exceeded, "it took too long")));
  }
  return {};
}

Warden::Clock::time_point Warden::next_job_deadline() const {
  Clock::time_point next = Clock::time_point::max();
  for (const auto& [number, job] : jobs_) next = std::min(next, job.deadline);
  return next;
}

// ---- what is left

Result<void> Warden::drop_memory(const std::string& id, Sandbox& sandbox) {
  ATOLL_TRY(host_.faults.before("drop_memory"));
  ATOLL_TRY_ASSIGN(sys::UniqueFd directory,
                   sys::open_beneath(host_.sandboxes, id, O_RDONLY | O_DIRECTORY));
  ATOLL_TRY(use_memory(directory));
  sandbox.dumped = false;
  host_.faults.after("drop_memory");
  return remove_stale_memory(directory);
}

Result<void> Warden::tidy_memory(const std::string& id, const sys::UniqueFd& directory,
                                 Sandbox& sandbox) {
  auto waited = await_lock(directory, kForeignGrace, kForeignDeadline);
  if (!waited) return std::move(waited).error().with("sandbox " + id);
  auto thawed = end_interrupted_copy(directory);
  if (!thawed)
    log::error("the disk of a sandbox stays frozen",
               {{"sandbox", id}, {"error", thawed.error().message}});
  ATOLL_TRY(remove_stale_memory(directory));
  ATOLL_TRY_ASSIGN(sandbox.dumped, has_memory(directory));
  return {};
}

Result<void> Warden::look_for_memory(const std::string& id, Sandbox& sandbox) {
  ATOLL_TRY_ASSIGN(sys::UniqueFd directory,
                   sys::open_beneath(host_.sandboxes, id, O_RDONLY | O_DIRECTORY));
  ATOLL_TRY_ASSIGN(sandbox.dumped, has_memory(directory));
  return {};
}

// False: nothing more is to be done.
bool Warden::remove_some_used_memory(const std::string& id) {
  auto directory = sys::open_beneath(host_.sandboxes, id, O_RDONLY | O_DIRECTORY);
  if (!directory) return false;  // it was destroyed meanwhile
  auto more = jail::remove_some_used_memory(*directory);
  if (more) return *more;
  log::error("an image that was used stays", {{"sandbox", id}, {"error", more.error().message}});
  return false;
}

// Processes that workers have left behind, which are this one's children now. What belongs to a
// Child object is left to it.
void Warden::reap_strays() {
  for (;;) {
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    const pid_t pid = info.si_pid;
    const auto owns = [&](const auto& map, auto get) {
      return std::any_of(map.begin(), map.end(),
                         [&](const auto& entry) { return get(entry.second) == pid; });
    };
    if (owns(sandboxes_, [](const Sandbox& s) { return s.init.pid(); }) ||
        owns(zygotes_, [](const Zygote& z) { return z.process.pid(); }) ||
        owns(ending_, [](const sys::Child& c) { return c.pid(); }) ||
        owns(jobs_, [](const Job& j) { return j.worker ? j.worker->pid() : 0; }) ||
        owns(launches_, [](const Pending& p) { return p.launch->child(); }))
      return;
    if (::waitid(P_PID, id_t(pid), &info, WEXITED | WNOHANG) != 0) return;
  }
}

}  // namespace atl::jail
