// Zygotes of the prepared templates, and the nurseries they put into sandboxes.
//
// Nothing here waits. A zygote that starts says so on its channel; a nursery under way has a pipe,
// on which it tells how it went, once, and whose end without a word means that it is gone. Whoever
// takes too long is given up: the pipe is closed, and a process that finds it closed ends.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "runtime/jail/warden.h"
#include "sys/datagram.h"
#include "zygote/wire.h"

namespace atl::jail {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kStartDeadline{90};
constexpr seconds kWarmDeadline{10};
constexpr milliseconds kFirstPause{500};
constexpr milliseconds kLongestPause{60000};
constexpr std::uint32_t kMaxInFlight = 256;
constexpr std::uint32_t kMaxLate = 3;
// All children of a zygote have its memory layout and its hash seed, and the kernel keeps one list
// of all of them per page: after so many, or so long, another takes its place. Starting one costs
// as much as some hundred forks.
constexpr std::uint32_t kMaxLive = 500;
constexpr hours kMaxAge{6};

std::size_t zygotes_per_template() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  const int count = ::sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
  return std::size_t(std::clamp(count, 1, 2));
}

}  // namespace

// ---- starting and ending zygotes

Result<void> Warden::handle(const wire::TemplateRequest& request) {
  const std::string id(wire::from_field(request.template_id));
  const std::uint64_t sequence = request.header.sequence;
  auto allowed = check_zygote_allowed(host_.templates, id);
  if (!allowed) return reply(wire::Op::prepare, sequence, allowed);
  Prepared& prepared = prepared_[id];
  prepared.waiting.push_back(sequence);
  return fill_up(id);
}

std::size_t Warden::count_zygotes(const std::string& template_id, bool ready) const {
  return std::size_t(std::count_if(zygotes_.begin(), zygotes_.end(), [&](const auto& entry) {
    const Zygote& zygote = entry.second;
    return zygote.template_id == template_id && !zygote.worn && (zygote.ready || !ready);
  }));
}

// Starts what is missing; answers those who wait if nothing is.
Result<void> Warden::fill_up(const std::string& template_id) {
  const std::size_t wanted = zygotes_per_template();
  prepared_.at(template_id).again = Clock::time_point::max();
  while (count_zygotes(template_id, false) < wanted) {
    auto started = [&]() -> Result<StartedZygote> {
      ATOLL_TRY(host_.faults.before("prepare.start"));
      return start_zygote(host_, template_id);
    }();
    if (!started) {
      Prepared& prepared = prepared_.at(template_id);
      prepared.pause = std::clamp(prepared.pause * 2, kFirstPause, kLongestPause);
      prepared.again = Clock::now() + prepared.pause;
      return answer_prepare(template_id, started.error());
    }
    host_.faults.after("prepare.start");
    const std::uint64_t number = ++last_number_;
    Zygote zygote;
    zygote.template_id = template_id;
    zygote.process = std::move(started->process);
    zygote.channel = std::move(started->channel);
    zygote.born = Clock::now();
    zygote.deadline = zygote.born + kStartDeadline;
    zygote.token = watch(Watched::Kind::zygote, template_id, number);
    const Zygote& kept = zygotes_.emplace(number, std::move(zygote)).first->second;
    ATOLL_TRY(poller_.add(kept.channel, kept.token));
  }
  if (count_zygotes(template_id, true) >= wanted) return answer_prepare(template_id, {});
  return {};
}

Result<void> Warden::answer_prepare(const std::string& template_id, const Result<void>& outcome) {
  for (std::uint64_t sequence : std::exchange(prepared_.at(template_id).waiting, {})) {
    ATOLL_TRY(reply(wire::Op::prepare, sequence, outcome));
  }
  return {};
}

// Readable: it is ready, or it has ended.
Result<void> Warden::on_zygote(std::uint64_t number) {
  const auto found = zygotes_.find(number);
  if (found == zygotes_.end()) return {};
  Zygote& zygote = found->second;
  auto message =
      sys::receive_datagram(zygote.channel, sizeof(atoll_zygote_ready), 0, sys::Wait::no);
  if (!message && message.error().sys_errno == EAGAIN) return {};
  if (!message || message->bytes.empty()) return end_zygote(number, "it ended");
  atoll_zygote_ready ready{};
  if (message->bytes.size() != sizeof(ready) || zygote.ready)
    return end_zygote(number, "it said something else");
  std::memcpy(&ready, message->bytes.data(), sizeof(ready));
  if (ready.magic != ATOLL_ZYGOTE_MAGIC || ready.version != ATOLL_ZYGOTE_VERSION)
    return end_zygote(number, "it is another version");
  zygote.ready = true;
  zygote.deadline = Clock::time_point::max();
  prepared_.at(zygote.template_id).pause = milliseconds(0);
  const std::string template_id = zygote.template_id;
  // One comes, one goes.
  const auto worn = std::find_if(zygotes_.begin(), zygotes_.end(), [&](const auto& entry) {
    return entry.second.template_id == template_id && entry.second.worn &&
           entry.second.in_flight == 0;
  });
  if (worn != zygotes_.end()) {
    ATOLL_TRY(end_zygote(worn->first, nullptr));
  }
  if (count_zygotes(template_id, true) < zygotes_per_template()) return {};
  return answer_prepare(template_id, {});
}

// `why`: it is to be replaced. What it was asked and has not done ends with it: its pipes close.
Result<void> Warden::end_zygote(std::uint64_t number, const char* why) {
  const auto found = zygotes_.find(number);
  if (found == zygotes_.end()) return {};
  Zygote zygote = std::move(found->second);
  zygotes_.erase(found);
  poller_.remove(zygote.channel);
  watched_.erase(zygote.token);
  zygote.channel.reset();
  auto killed = zygote.process.signal(SIGKILL);
  if (!killed && killed.error().sys_errno != ESRCH)
    log::error("cannot end a zygote", {{"error", killed.error().message}});
  // It has much memory to give back; nobody waits for that.
  const sys::Child& process = ending_.emplace(number, std::move(zygote.process)).first->second;
  ATOLL_TRY(
      poller_.add(process.pidfd(), watch(Watched::Kind::zygote_end, zygote.template_id, number)));
  if (why == nullptr) return {};
  log::warn("a zygote is gone", {{"template", zygote.template_id}, {"why", why}});
  Prepared& prepared = prepared_.at(zygote.template_id);
  if (zygote.ready) {
    prepared.again = Clock::now();
    return {};
  }
  prepared.pause = std::clamp(prepared.pause * 2, kFirstPause, kLongestPause);
  prepared.again = Clock::now() + prepared.pause;
  // With one that works, sandboxes can be warmed; the others are tried again.
  return answer_prepare(zygote.template_id,
                        count_zygotes(zygote.template_id, true) > 0
                            ? Result<void>()
                            : make_error(Errc::unavailable, std::string("no zygote: ") + why));
}

Result<void> Warden::on_zygote_end(std::uint64_t number) {
  const auto found = ending_.find(number);
  if (found == ending_.end()) return {};
  std::erase_if(watched_, [&](const auto& entry) {
    return entry.second.kind == Watched::Kind::zygote_end && entry.second.number == number;
  });
  poller_.remove(found->second.pidfd());
  ending_.erase(found);  // reaps it
  return {};
}

// ---- warming

Result<void> Warden::begin_warm(const std::string& id, Sandbox& sandbox, std::uint64_t sequence) {
  const auto refuse = [&](Errc code, const std::string& why) {
    return reply(wire::Op::warm, sequence, make_error(code, why));
  };
  if (sandbox.frozen || sandbox.look.what == Look::For::frozen)
    return refuse(Errc::failed_precondition, "sandbox " + id + " is frozen");
  if (sandbox.warm) return refuse(Errc::failed_precondition, "sandbox " + id + " is warm already");
  auto best = zygotes_.end();
  for (auto it = zygotes_.begin(); it != zygotes_.end(); ++it) {
    if (it->second.template_id != sandbox.template_id || !it->second.ready) continue;
    if (best == zygotes_.end() || it->second.in_flight < best->second.in_flight) best = it;
  }
  if (best == zygotes_.end())
    return refuse(Errc::failed_precondition, "the template is not prepared");
  Zygote& zygote = best->second;
  if (zygote.in_flight >= kMaxInFlight)
    return refuse(Errc::resource_exhausted, "too many sandboxes are being warmed");

  Warming warming{id, sandbox.token, sequence, best->first, 0, {}, Clock::now() + kWarmDeadline};
  auto sent = [&]() -> Result<void> {
    ATOLL_TRY(host_.faults.before("warm.send"));
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return errno_error("pipe2");
    warming.report.reset(ends[0]);
    const sys::UniqueFd write_end(ends[1]);
    ATOLL_TRY_ASSIGN(sys::Cgroup cgroup, cgroup_of(id));
    ATOLL_TRY_ASSIGN(std::vector<sys::UniqueFd> entrances, cgroup.entrances_for_others());
    if (entrances.size() > ATOLL_ZYGOTE_MAX_CGROUPS)
      return make_error(Errc::internal, "too many cgroups");
    std::vector<int> fds = {write_end.get(), sandbox.process().get()};
    for (const sys::UniqueFd& file : entrances) fds.push_back(file.get());
    const atoll_zygote_request request{ATOLL_ZYGOTE_MAGIC, std::uint32_t(entrances.size())};
    return sys::send_datagram(zygote.channel, std::as_bytes(std::span(&request, 1)), fds,
                              sys::Wait::no);
  }();
  if (!sent) return reply(wire::Op::warm, sequence, sent);
  host_.faults.after("warm.send");
  sandbox.warm = true;
  ++zygote.in_flight;
  const std::uint64_t number = ++last_number_;
  warming.token = watch(Watched::Kind::warming, id, number);
  const Warming& kept = warmings_.emplace(number, std::move(warming)).first->second;
  return poller_.add(kept.report, kept.token);
}

Result<void> Warden::on_report(std::uint64_t number) {
  const auto found = warmings_.find(number);
  if (found == warmings_.end()) return {};
  const Warming& warming = found->second;
  atoll_zygote_report report{};
  const ssize_t n = ::read(warming.report.get(), &report, sizeof(report));
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return {};
  wire::WarmReply times;
  if (n != ssize_t(sizeof(report)) || report.magic != ATOLL_ZYGOTE_MAGIC)
    return end_warm(number, make_error(Errc::aborted, "the new process ended on its way in"),
                    times);
  times.fork_micros = report.fork_micros;
  times.enter_micros = report.enter_micros;
  if (report.step == atoll_step_none) {
    const auto zygote = zygotes_.find(warming.zygote);
    if (zygote != zygotes_.end()) zygote->second.late = 0;
    return end_warm(number, {}, times);
  }
  Error error = errno_error(zygote_step_name(report.step), report.error);
  if (report.step == atoll_step_connect)
    error.code = Errc::unavailable;  // its agent does not listen
  if (report.entered == 0 || report.step == atoll_step_connect)
    return end_warm(number, std::move(error), times);
  // It was inside with rights that it could not give up. It has ended; nothing that may have seen
  // it goes on.
  log::error("a process failed to give its rights up",
             {{"sandbox", warming.id}, {"step", std::string(zygote_step_name(report.step))}});
  const std::string id = warming.id;
  const std::uint64_t boot = warming.boot;
  ATOLL_TRY(end_warm(number, std::move(error), times));
  const auto sandbox = sandboxes_.find(id);
  if (sandbox == sandboxes_.end() || sandbox->second.token != boot) return {};
  return kill(sandbox->second, id);
}

Result<void> Warden::end_warm(std::uint64_t number, const Result<void>& outcome,
                              const wire::WarmReply& times) {
  const auto found = warmings_.find(number);
  if (found == warmings_.end()) return {};
  const Warming warming = std::move(found->second);
  warmings_.erase(found);
  poller_.remove(warming.report);
  watched_.erase(warming.token);
  const auto zygote = zygotes_.find(warming.zygote);
  const auto sandbox = sandboxes_.find(warming.id);
  const bool there = sandbox != sandboxes_.end() && sandbox->second.token == warming.boot;
  if (there) sandbox->second.warm = outcome.ok();
  if (zygote != zygotes_.end()) {
    Zygote& from = zygote->second;
    --from.in_flight;
    if (outcome.ok()) {
      ++from.forks;
      if (there) {
        ++from.live;
        sandbox->second.zygote = warming.zygote;
      }
    }
    if (!from.worn && (from.forks >= zygote_forks_ || from.live >= kMaxLive ||
                       Clock::now() - from.born > kMaxAge)) {
      from.worn = true;
      prepared_.at(from.template_id).again = Clock::now();
    }
  }
  // The last that it was asked for, and others are there.
  if (zygote != zygotes_.end() && zygote->second.worn && zygote->second.in_flight == 0 &&
      count_zygotes(zygote->second.template_id, true) >= zygotes_per_template()) {
    ATOLL_TRY(end_zygote(warming.zygote, nullptr));
  }
  host_.faults.after("warm.done");
  if (!outcome) return reply(wire::Op::warm, warming.sequence, outcome);
  wire::WarmReply message = times;
  message.reply.header.op = std::uint16_t(wire::Op::warm);
  message.reply.header.sequence = warming.sequence;
  return send(message);
}

void Warden::forget_nursery(Sandbox& sandbox) {
  const auto zygote = zygotes_.find(std::exchange(sandbox.zygote, 0));
  if (zygote != zygotes_.end() && zygote->second.live > 0) --zygote->second.live;
  sandbox.warm = false;
}

// ---- time

Warden::Clock::time_point Warden::next_warm_deadline() const {
  Clock::time_point next = Clock::time_point::max();
  for (const auto& [number, zygote] : zygotes_) {
    if (!zygote.ready) next = std::min(next, zygote.deadline);
  }
  for (const auto& [id, prepared] : prepared_) next = std::min(next, prepared.again);
  for (const auto& [number, warming] : warmings_) next = std::min(next, warming.deadline);
  return next;
}

Result<void> Warden::on_warm_deadlines(Clock::time_point now) {
  std::vector<std::uint64_t> late;
  for (const auto& [number, warming] : warmings_) {
    if (warming.deadline <= now) late.push_back(number);
  }
  for (std::uint64_t number : late) {
    const auto zygote = zygotes_.find(warmings_.at(number).zygote);
    const std::uint64_t from = zygote != zygotes_.end() ? zygote->first : 0;
    // Whoever runs in a revived sandbox may stop what enters it: that is not the zygote's fault.
    const auto sandbox = sandboxes_.find(warmings_.at(number).id);
    const bool revived = sandbox != sandboxes_.end() && sandbox->second.revived;
    const bool stuck = from != 0 && !revived && ++zygote->second.late >= kMaxLate;
    ATOLL_TRY(
        end_warm(number, make_error(Errc::deadline_exceeded, "the nursery took too long"), {}));
    if (stuck) {
      ATOLL_TRY(end_zygote(from, "it does not answer"));
    }
  }
  std::vector<std::uint64_t> slow;
  for (const auto& [number, zygote] : zygotes_) {
    if (!zygote.ready && zygote.deadline <= now) slow.push_back(number);
  }
  for (std::uint64_t number : slow) {
    ATOLL_TRY(end_zygote(number, "it took too long to start"));
  }
  std::vector<std::string> due;
  for (const auto& [id, prepared] : prepared_) {
    if (prepared.again <= now) due.push_back(id);
  }
  for (const std::string& id : due) {
    ATOLL_TRY(fill_up(id));
  }
  return {};
}

}  // namespace atl::jail
