#include "runtime/jail/warden.h"

#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "base/log.h"
#include "sys/datagram.h"

namespace atl::jail {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint64_t kControlToken = 0;
constexpr seconds kLaunchDeadline{15};
constexpr seconds kReviveDeadline{600};
constexpr seconds kDestroyDeadline{15};
constexpr seconds kEmptyDeadline{3};
constexpr std::size_t kMaxLaunches = 256;

wire::Header header_for(wire::Op op, std::uint64_t sequence) {
  wire::Header header;
  header.op = std::uint16_t(op);
  header.sequence = sequence;
  return header;
}

void fill_times(wire::CreateReply& reply, const Launch& launch) {
  for (const auto& [name, took] : launch.times()) {
    if (reply.step_count == wire::kMaxSteps) break;
    wire::StepEntry& entry = reply.steps[reply.step_count++];
    wire::to_field_cut(entry.name, name);
    entry.micros = std::uint32_t(std::min<long long>(took.count(), UINT32_MAX));
  }
}

}  // namespace

void fill(wire::Reply& reply, const Error& error, std::string_view step) {
  reply.code = std::int32_t(error.code);
  reply.sys_errno = error.sys_errno;
  wire::to_field_cut(reply.step, step);
  wire::to_field_cut(reply.message, error.message);
}

Warden::Warden(LaunchHost host, sys::FileLock lock, sys::UniqueFd parent, std::string instance,
               sys::Poller poller)
    : host_(std::move(host)),
      lock_(std::move(lock)),
      parent_(std::move(parent)),
      instance_(std::move(instance)),
      poller_(std::move(poller)) {}

Warden::~Warden() {
  for (auto& [id, pending] : launches_) pending.launch->let_go();
  launches_.clear();
  zygotes_.clear();
  // What is being written is finished without us.
  for (auto& [number, job] : jobs_) {
    if (job.worker && job.kind != Job::Kind::probe) job.worker->process().release();
  }
  for (auto& [id, sandbox] : sandboxes_) sandbox.init.release();  // they go on without us
  close_network();
  host_.cgroups.remove_if_empty();
  (void)sys::remove_dir(parent_, instance_);  // only if empty
}

Result<void> Warden::serve(sys::UniqueFd control) {
  control_ = std::move(control);
  ATOLL_TRY(poller_.add(control_, kControlToken));
  while (control_) {
    ATOLL_TRY_ASSIGN(std::vector<std::uint64_t> ready, poller_.wait(milliseconds(0)));
    if (ready.empty() && launches_.empty() && tidy()) continue;
    if (ready.empty()) {
      ATOLL_TRY_ASSIGN(ready, poller_.wait(next_timeout()));
    }
    for (std::uint64_t token : ready) {
      if (token == kControlToken) {
        ATOLL_TRY(on_control());
        continue;
      }
      const auto found = watched_.find(token);
      if (found == watched_.end()) continue;  // ended by an event before it in this round
      const Watched watched = found->second;
      ATOLL_TRY(on_event(watched));
    }
    ATOLL_TRY(on_deadlines());
  }
  return {};
}

Result<void> Warden::on_event(const Watched& watched) {
  switch (watched.kind) {
    case Watched::Kind::launch:
      return on_launch(watched.id);
    case Watched::Kind::sandbox:
      return on_process_end(watched.id);
    case Watched::Kind::zygote:
      return on_zygote(watched.number);
    case Watched::Kind::zygote_end:
      return on_zygote_end(watched.number);
    case Watched::Kind::warming:
      return on_report(watched.number);
    case Watched::Kind::job:
      return on_job(watched.number);
  }
  return {};
}

bool Warden::tidy() {
  while (!with_layers_.empty()) {
    const auto found = sandboxes_.find(with_layers_.front());
    if (found == sandboxes_.end() || found->second.layers.empty()) {
      with_layers_.pop_front();
      continue;
    }
    found->second.layers.pop_back();
    return true;
  }
  if (!stale_memory_.empty()) {
    if (!remove_some_used_memory(stale_memory_.front())) stale_memory_.pop_front();
    return true;
  }
  return host_.disks.refill(disk_mount());
}

std::optional<milliseconds> Warden::next_timeout() const {
  Clock::time_point next = std::min(next_warm_deadline(), next_job_deadline());
  for (const auto& [id, pending] : launches_) next = std::min(next, pending.deadline);
  for (const auto& [id, sandbox] : sandboxes_)
    next = std::min({next, sandbox.deadline, sandbox.look.next});
  if (next == Clock::time_point::max()) return std::nullopt;
  return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(next - Clock::now()));
}

// ---- requests

Result<void> Warden::on_control() {
  auto message = sys::receive_datagram(control_, wire::kMaxDatagram, 0, sys::Wait::yes);
  if (!message && message.error().sys_errno == ECONNRESET) message = sys::Datagram{};
  if (!message) return std::move(message).error();
  if (message->bytes.empty()) {
    control_.reset();
    return {};
  }
  auto request = wire::parse_request(message->bytes);
  if (!request && request.error().code == Errc::internal) return std::move(request).error();
  if (!request) {
    wire::Header header;
    std::copy_n(message->bytes.begin(), sizeof(header), reinterpret_cast<std::byte*>(&header));
    return reply(wire::Op(header.op), header.sequence, std::move(request).error());
  }
  return std::visit(
      [this](const auto& body) -> Result<void> {
        if (!greeted_ && wire::Op(body.header.op) != wire::Op::hello) {
          return reply(wire::Op(body.header.op), body.header.sequence,
                       make_error(Errc::failed_precondition, "hello comes first"));
        }
        return handle(body);
      },
      *request);
}

Result<void> Warden::handle(const wire::HelloRequest& request) {
  greeted_ = true;
  server_gid_ = request.server_gid;
  return reply(wire::Op::hello, request.header.sequence, {});
}

Result<void> Warden::handle(const wire::CreateRequest& request) {
  LaunchSpec spec = to_launch_spec(request, server_gid_);
  const std::string id = spec.id;
  if (request.kept_disk != 0) return boot_again(id, std::move(spec), request.header.sequence);
  if (request.replace != 0) {
    auto away = put_aside(id);
    if (!away) {
      put_back(id);
      return reply(wire::Op::create, request.header.sequence, away);
    }
  }
  if (launches_.contains(id) || sandboxes_.contains(id)) {
    return reply(wire::Op::create, request.header.sequence,
                 make_error(Errc::already_exists, "sandbox " + id + " exists"));
  }
  return begin_launch(std::move(spec), request.header.sequence);
}

Result<void> Warden::begin_launch(LaunchSpec spec, std::uint64_t sequence) {
  const std::string id = spec.id;
  if (launches_.size() >= kMaxLaunches) {
    put_back(id);
    return reply(wire::Op::create, sequence,
                 make_error(Errc::resource_exhausted, "too many launches at once"));
  }
  const bool spec_has_memory = spec.memory != runtime::Memory::none;
  Pending pending;
  pending.launch = std::make_unique<Launch>(host_, std::move(spec));
  pending.sequence = sequence;
  pending.deadline = Clock::now() + (spec_has_memory ? kReviveDeadline : kLaunchDeadline);
  auto begun = pending.launch->begin();
  const auto it = launches_.emplace(id, std::move(pending)).first;
  if (!begun) return end_launch(it, begun.error());
  it->second.token = watch(Watched::Kind::launch, id);
  auto added = poller_.add(it->second.launch->channel(), it->second.token);
  if (!added) return end_launch(it, added.error());
  return {};
}

Result<void> Warden::handle(const wire::IdRequest& request) {
  const std::string id(wire::from_field(request.id));
  const wire::Op op = wire::Op(request.header.op);
  const std::uint64_t sequence = request.header.sequence;
  if (launches_.contains(id)) {
    return reply(op, sequence,
                 make_error(Errc::failed_precondition, "sandbox " + id + " is being made"));
  }
  const auto found = sandboxes_.find(id);
  if (found == sandboxes_.end()) {
    return reply(op, sequence, make_error(Errc::not_found, "no sandbox " + id));
  }
  Sandbox& sandbox = found->second;
  if (sandbox.job != 0 &&
      (op == wire::Op::destroy || op == wire::Op::kill || op == wire::Op::cancel_dump)) {
    sandbox.deferred.push_back(request);
    return cancel_job(jobs_.at(sandbox.job), make_error(Errc::aborted, "cancelled"));
  }
  if (op == wire::Op::destroy) return destroy(id, sandbox, sequence);
  if (sandbox.removing) return reply(op, sequence, make_error(Errc::not_found, "no sandbox " + id));
  if (!sandbox.whole) {
    return reply(op, sequence,
                 make_error(Errc::failed_precondition,
                            "sandbox " + id + " is a leftover: it can only be destroyed"));
  }
  if (op == wire::Op::stats) return send_stats(id, sequence);
  if (op == wire::Op::kill) return begin_kill(id, sandbox, sequence);
  if (op == wire::Op::cancel_dump) return reply(op, sequence, {});
  if (!sandbox.alive() || sandbox.dumped) {
    return reply(op, sequence,
                 make_error(Errc::failed_precondition,
                            "sandbox " + id + (sandbox.dumped ? " is dumped" : " is dead")));
  }
  if (sandbox.job != 0 && (op == wire::Op::thaw || op == wire::Op::dump)) {
    return reply(
        op, sequence,
        make_error(Errc::failed_precondition, "the memory of sandbox " + id + " is being written"));
  }
  switch (op) {
    case wire::Op::warm:
      return begin_warm(id, sandbox, sequence);
    case wire::Op::dump:
      return begin_dump(id, sandbox, sequence);
    case wire::Op::freeze:
      return begin_freeze(id, sandbox, sequence);
    case wire::Op::thaw:
      return reply(op, sequence, thaw(id, sandbox));
    case wire::Op::agent_dir: {
      if (!sandbox.control_dir)
        return reply(op, sequence, make_error(Errc::not_found, "control directory not found"));
      wire::Reply message;
      message.header = header_for(op, sequence);
      return send(message, std::span(&sandbox.control_dir, 1));
    }
    default:
      return reply(op, sequence, make_error(Errc::unimplemented, "not an operation on a sandbox"));
  }
}

Result<void> Warden::handle(const wire::ListRequest& request) {
  if (wire::Op(request.header.op) == wire::Op::list_snapshots) return list_snapshots(request);
  wire::ListReply message;
  message.reply.header = header_for(wire::Op::list, request.header.sequence);
  const std::string after(wire::from_field(request.after));
  for (auto it = sandboxes_.upper_bound(after); it != sandboxes_.end(); ++it) {
    if (message.count == wire::kListPage) {
      message.more = 1;
      break;
    }
    const Sandbox& sandbox = it->second;
    wire::ListEntry& entry = message.entries[message.count++];
    wire::to_field_cut(entry.id, it->first);
    entry.state = std::uint8_t(!sandbox.whole     ? wire::SandboxState::leftover
                               : sandbox.dumped   ? wire::SandboxState::dumped
                               : !sandbox.alive() ? wire::SandboxState::dead
                               : sandbox.frozen   ? wire::SandboxState::frozen
                                                  : wire::SandboxState::running);
    entry.address = address_of(sandbox).value;
  }
  return send(message);
}

Result<void> Warden::handle(const wire::SetNetworkRequest& request) {
  const std::string id(wire::from_field(request.id));
  const auto done = [&]() -> Result<void> {
    const auto found = sandboxes_.find(id);
    if (found == sandboxes_.end() || found->second.removing)
      return make_error(Errc::not_found, "no sandbox " + id);
    const Sandbox& sandbox = found->second;
    if (!sandbox.alive() || !sandbox.slot || address_of(sandbox) == Ipv4{})
      return make_error(Errc::failed_precondition, "sandbox " + id + " has no network");
    return host_.network->apply(*sandbox.slot, wire::to_policy(request.network),
                                Network::Tenant::same);
  }();
  return reply(wire::Op::set_network, request.header.sequence, done);
}

Result<void> Warden::handle(const wire::SetMemoryRequest& request) {
  const std::string id(wire::from_field(request.id));
  const auto done = [&]() -> Result<void> {
    const auto found = sandboxes_.find(id);
    if (found == sandboxes_.end() || found->second.removing)
      return make_error(Errc::not_found, "no sandbox " + id);
    const Sandbox& sandbox = found->second;
    if (!sandbox.whole || !sandbox.alive() || sandbox.dumped)
      return make_error(Errc::failed_precondition, "sandbox " + id + " does not run");
    if (host_.facts.unsafe_no_limits) return {};
    ATOLL_TRY_ASSIGN(const sys::Cgroup cgroup, cgroup_of(id));
    // v1 would refuse a limit below what is in use, v2 would kill for it: neither is a change of a
    // limit.
    ATOLL_TRY_ASSIGN(const sys::CgroupUsage usage, cgroup.usage());
    const std::uint64_t kept =
        usage.memory_bytes - std::min(usage.memory_bytes, usage.memory_cache_bytes);
    if (kept >= request.memory_bytes) {
      return make_error(Errc::failed_precondition,
                        "sandbox " + id + " holds more memory than that already");
    }
    return cgroup.set_memory_limit(request.memory_bytes);
  }();
  return reply(wire::Op::set_memory, request.header.sequence, done);
}

Result<void> Warden::handle(const wire::EgressSocketsRequest& request) {
  wire::Reply message;
  message.header = header_for(wire::Op::egress_sockets, request.header.sequence);
  if (!host_.network) return send(message);
  auto sockets = host_.network->egress_sockets();
  if (!sockets) return reply(wire::Op::egress_sockets, message.header.sequence, sockets.error());
  return send(message, *sockets);
}

Result<void> Warden::destroy(const std::string& id, Sandbox& sandbox, std::uint64_t sequence) {
  sandbox.waiting_destroy.push_back(sequence);
  if (sandbox.removing) return {};
  // From here on it is a leftover, whatever happens to us.
  auto unmarked = unmark(id, sandbox);
  if (!unmarked) {
    sandbox.waiting_destroy.pop_back();
    return reply(wire::Op::destroy, sequence, unmarked);
  }
  sandbox.removing = true;
  sandbox.deadline = Clock::now() + kDestroyDeadline;
  const Error gone = make_error(Errc::not_found, "sandbox " + id + " was destroyed");
  ATOLL_TRY(end_freeze(sandbox, gone));
  ATOLL_TRY(end_settling(id, sandbox, gone));
  if (!sandbox.alive()) return finish_removal(id);
  if (host_.faults.dies_before("destroy.kill")) die_now();
  auto killed = kill(sandbox, id);
  host_.faults.after("destroy.kill");
  if (!killed) {
    log::error("cannot kill a sandbox", {{"sandbox", id}, {"error", killed.error().message}});
    return finish_removal(id);
  }
  return {};
}

Result<void> Warden::thaw(const std::string& id, Sandbox& sandbox) {
  ATOLL_TRY(end_freeze(sandbox, make_error(Errc::aborted, "thawed meanwhile")));
  ATOLL_TRY_ASSIGN(sys::Cgroup cgroup, cgroup_of(id));
  ATOLL_TRY(host_.faults.before("thaw"));
  ATOLL_TRY(cgroup.thaw());
  host_.faults.after("thaw");
  sandbox.frozen = false;
  return {};
}

Result<void> Warden::send_stats(const std::string& id, std::uint64_t sequence) {
  const Sandbox& sandbox = sandboxes_.at(id);
  auto usage = [&]() -> Result<sys::CgroupUsage> {
    if (!sandbox.alive()) return sys::CgroupUsage{};
    ATOLL_TRY_ASSIGN(sys::Cgroup cgroup, cgroup_of(id));
    return cgroup.usage();
  }();
  wire::StatsReply message;
  message.reply.header = header_for(wire::Op::stats, sequence);
  if (!usage) {
    fill(message.reply, usage.error(), "");
    return send(message);
  }
  message.memory_bytes = usage->memory_bytes;
  message.memory_peak_bytes = usage->memory_peak_bytes;
  message.memory_cache_bytes = usage->memory_cache_bytes;
  const sys::Space space = disk_space(id, sandbox);
  message.disk_bytes = space.used;
  message.disk_total_bytes = space.total;
  message.cpu_micros = usage->cpu_micros;
  message.pids = usage->pids;
  message.oom_kills = usage->oom_kills;
  return send(message);
}

// ---- events

Result<void> Warden::on_launch(const std::string& id) {
  const auto it = launches_.find(id);
  if (it == launches_.end()) return {};
  auto ready = it->second.launch->advance();
  if (!ready) return end_launch(it, ready.error());
  if (!*ready) return {};

  Pending pending = std::move(it->second);
  poller_.remove(pending.launch->channel());
  watched_.erase(pending.token);
  launches_.erase(it);
  StartedSandbox started = pending.launch->take();
  Sandbox sandbox;
  sandbox.whole = true;
  sandbox.slot = started.slot;
  sandbox.template_id = pending.launch->spec().template_id;
  sandbox.revived = pending.launch->spec().memory != runtime::Memory::none;
  sandbox.pid = started.init.pid();
  sandbox.init = std::move(started.init);
  sandbox.control_dir = std::move(started.control_dir);
  sandbox.layers = std::move(started.layers);
  sandbox.shared = std::move(started.shared);
  with_layers_.push_back(id);
  sandbox.token = watch(Watched::Kind::sandbox, id);
  const auto& entry = sandboxes_.insert_or_assign(id, std::move(sandbox)).first->second;
  ATOLL_TRY(poller_.add(entry.process(), entry.token));
  if (pending.launch->spec().kept) stale_memory_.push_back(id);
  if (asides_.contains(id)) {
    auto dropped = drop_aside(id);
    if (!dropped)
      log::error("what was replaced stays", {{"sandbox", id}, {"error", dropped.error().message}});
  }
  wire::CreateReply message;
  message.reply.header = header_for(wire::Op::create, pending.sequence);
  fill_times(message, *pending.launch);
  message.address = address_of(entry).value;
  return send(message);
}

Result<void> Warden::end_launch(std::map<std::string, Pending>::iterator it, const Error& error) {
  const Pending pending = std::move(it->second);
  launches_.erase(it);
  if (pending.token != 0) {
    poller_.remove(pending.launch->channel());
    watched_.erase(pending.token);
  }
  wire::CreateReply message;
  message.reply.header = header_for(wire::Op::create, pending.sequence);
  fill(message.reply, error, pending.launch->failed_step());
  fill_times(message, *pending.launch);
  const std::string id = pending.launch->spec().id;
  const_cast<std::unique_ptr<Launch>&>(pending.launch).reset();  // undone before it is answered
  put_back(id);
  ATOLL_TRY(send(message));
  // A disk that was to boot again is kept.
  const auto kept = sandboxes_.find(id);
  if (kept == sandboxes_.end()) return {};
  ATOLL_TRY(look_for_memory(id, kept->second));
  return begin_settling(id, kept->second);
}

Result<void> Warden::on_process_end(const std::string& id) {
  const auto found = sandboxes_.find(id);
  if (found == sandboxes_.end() || !found->second.alive()) return {};
  Sandbox& sandbox = found->second;
  poller_.remove(sandbox.process());
  watched_.erase(std::exchange(sandbox.token, 0));
  wire::ExitedEvent event;
  event.header = header_for(wire::Op::exited, 0);
  event.status = -1;  // unknown: the child of a warden before this one
  if (sandbox.init) {
    ATOLL_TRY_ASSIGN(std::optional<sys::ExitStatus> status, sandbox.init.wait(milliseconds(0)));
    if (status) {
      event.signaled = status->kind == sys::ExitStatus::Kind::signaled ? 1 : 0;
      event.status = status->value;
    }
  }
  sandbox.pidfd.reset();
  sandbox.init = sys::Child();
  sandbox.pid = 0;
  sandbox.frozen = false;
  forget_nursery(sandbox);
  ATOLL_TRY(end_freeze(sandbox, make_error(Errc::failed_precondition, "sandbox " + id + " died")));
  if (sandbox.removing) return finish_removal(id);
  if (!sandbox.whole) return {};
  if (sandbox.waiting_kill.empty() && !sandbox.dumped) {
    wire::to_field_cut(event.id, id);
    ATOLL_TRY(send(event));
  }
  return begin_settling(id, sandbox);
}

Result<void> Warden::finish_removal(const std::string& id) {
  Sandbox& sandbox = sandboxes_.at(id);
  auto removed = remove_all_of(id, sandbox);
  if (!removed)
    log::error("cannot remove a sandbox", {{"sandbox", id}, {"error", removed.error().message}});
  const std::vector<std::uint64_t> waiting = std::exchange(sandbox.waiting_destroy, {});
  sandbox.removing = false;
  sandbox.deadline = Clock::time_point::max();
  if (removed) {
    sandboxes_.erase(id);
    let_go_of_layers();
  }
  for (std::uint64_t sequence : waiting) {
    ATOLL_TRY(reply(wire::Op::destroy, sequence, removed));
  }
  return {};
}

Result<void> Warden::remove_all_of(const std::string& id, Sandbox& sandbox) {
  ATOLL_TRY(host_.faults.before("destroy.cgroup"));
  ATOLL_TRY_ASSIGN(std::optional<sys::Cgroup> cgroup, host_.cgroups.find(id));
  if (cgroup) {
    // Members that are no children of the first process, or all of them if that one is unknown.
    const auto deadline = Clock::now() + kEmptyDeadline;
    for (;;) {
      ATOLL_TRY_ASSIGN(std::vector<pid_t> left, cgroup->processes());
      if (left.empty()) break;
      ATOLL_TRY(cgroup->kill_all());
      if (Clock::now() > deadline)
        return make_error(Errc::deadline_exceeded, "processes do not end");
      std::this_thread::sleep_for(milliseconds(1));
    }
    ATOLL_TRY(cgroup->remove(kEmptyDeadline));
  }
  host_.faults.after("destroy.cgroup");
  sandbox.control_dir.reset();
  sandbox.layers.clear();
  sandbox.shared.clear();
  ATOLL_TRY(host_.faults.before("destroy.tree"));
  ATOLL_TRY(sys::remove_tree(host_.sandboxes, id));
  host_.faults.after("destroy.tree");
  if (asides_.contains(id)) {
    ATOLL_TRY(drop_aside(id));
  }
  ATOLL_TRY(host_.faults.before("destroy.network"));
  if (sandbox.slot && host_.network) {
    ATOLL_TRY(host_.network->remove(*sandbox.slot));
  }
  host_.faults.after("destroy.network");
  ATOLL_TRY(host_.faults.before("destroy.range"));
  // Last: until here files and processes carried these ids.
  if (sandbox.slot) {
    ATOLL_TRY(host_.ranges.give_back(*sandbox.slot));
    sandbox.slot.reset();
  }
  host_.faults.after("destroy.range");
  return {};
}

Result<void> Warden::on_deadlines() {
  const auto now = Clock::now();
  std::vector<std::string> late;
  for (const auto& [id, pending] : launches_) {
    if (pending.deadline <= now) late.push_back(id);
  }
  for (const std::string& id : late) {
    Pending& pending = launches_.at(id);
    if (pending.launch->committed() && !pending.lenient) {
      pending.lenient = true;
      pending.deadline = now + kReviveDeadline;
      continue;
    }
    ATOLL_TRY(end_launch(launches_.find(id),
                         make_error(Errc::deadline_exceeded, "the launch took too long")));
  }
  std::vector<std::string> due;
  for (auto& [id, sandbox] : sandboxes_) {
    if (sandbox.look.next <= now) due.push_back(id);
    if (sandbox.deadline > now) continue;
    // It stays marked for removal; whenever its process ends, the rest goes too.
    sandbox.deadline = Clock::time_point::max();
    for (std::uint64_t sequence : std::exchange(sandbox.waiting_destroy, {})) {
      ATOLL_TRY(reply(wire::Op::destroy, sequence,
                      make_error(Errc::deadline_exceeded, "processes do not end")));
    }
  }
  for (const std::string& id : due) {
    ATOLL_TRY(look_again(id));
  }
  ATOLL_TRY(on_job_deadlines(now));
  return on_warm_deadlines(now);
}

// ---- helpers

// The router stays as long as there is a sandbox.
void Warden::close_network() {
  if (!host_.network || !sandboxes_.empty()) return;
  auto closed = host_.network->close_down();
  if (!closed) log::error("cannot remove the router", {{"error", closed.error().message}});
}

Ipv4 Warden::address_of(const Sandbox& sandbox) const {
  if (!host_.network || !sandbox.slot || !host_.network->has(*sandbox.slot)) return {};
  return sandbox_address(*sandbox.slot);
}

Result<sys::Cgroup> Warden::cgroup_of(const std::string& id) const {
  ATOLL_TRY_ASSIGN(std::optional<sys::Cgroup> cgroup, host_.cgroups.find(id));
  if (!cgroup) return make_error(Errc::not_found, "no cgroup of " + id);
  return std::move(*cgroup);
}

template <class Message>
Result<void> Warden::send(const Message& message, std::span<const sys::UniqueFd> fds) {
  if (!control_) return {};
  std::vector<int> numbers;
  for (const sys::UniqueFd& fd : fds) numbers.push_back(fd.get());
  auto sent = sys::send_datagram(control_, wire::bytes_of(message), numbers, sys::Wait::yes);
  // The server is gone; the loop is about to see the same.
  if (!sent && (sent.error().sys_errno == EPIPE || sent.error().sys_errno == ECONNRESET)) return {};
  return sent;
}

template Result<void> Warden::send(const wire::WarmReply&, std::span<const sys::UniqueFd>);
template Result<void> Warden::send(const wire::WrittenReply&, std::span<const sys::UniqueFd>);
template Result<void> Warden::send(const wire::MemorySupportReply&, std::span<const sys::UniqueFd>);
template Result<void> Warden::send(const wire::ListSnapshotsReply&, std::span<const sys::UniqueFd>);

// The body of a failed answer has the shape that the operation's good answer has.
Result<void> Warden::reply(wire::Op op, std::uint64_t sequence, const Result<void>& outcome) {
  const auto fill_in = [&](wire::Reply& reply) {
    reply.header = header_for(op, sequence);
    if (!outcome) fill(reply, outcome.error(), "");
  };
  const auto send_as = [&]<class Message>(Message message) {
    fill_in(message.reply);
    return send(message);
  };
  switch (op) {
    case wire::Op::create:
      return send_as(wire::CreateReply());
    case wire::Op::list:
      return send_as(wire::ListReply());
    case wire::Op::stats:
      return send_as(wire::StatsReply());
    case wire::Op::warm:
      return send_as(wire::WarmReply());
    case wire::Op::memory_support:
      return send_as(wire::MemorySupportReply());
    case wire::Op::dump:
    case wire::Op::snapshot:
      return send_as(wire::WrittenReply());
    case wire::Op::list_snapshots:
      return send_as(wire::ListSnapshotsReply());
    default:
      break;
  }
  wire::Reply message;
  fill_in(message);
  return send(message);
}

void refuse_service(const sys::UniqueFd& control, const Error& error) {
  auto request = sys::receive_datagram(control, wire::kMaxDatagram, 0, sys::Wait::yes);
  if (!request || request->bytes.size() != sizeof(wire::HelloRequest)) return;
  wire::Header header;
  std::copy_n(request->bytes.begin(), sizeof(header), reinterpret_cast<std::byte*>(&header));
  wire::Reply message;
  message.header = header_for(wire::Op::hello, header.sequence);
  fill(message, error, "start");
  (void)sys::send_datagram(control, wire::bytes_of(message), {},
                           sys::Wait::yes);  // nobody else is left to tell
}

}  // namespace atl::jail
