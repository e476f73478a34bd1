// The parts of a sandbox's life that take the kernel some time and that it does not announce:
// freezing, ending, unmounting, booting again.
#include <fcntl.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

#include "base/log.h"
#include "runtime/jail/warden.h"

namespace atl::jail {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kFreezeDeadline{2};
constexpr seconds kSettleDeadline{15};
constexpr milliseconds kLongestPause{20};
constexpr milliseconds kEagerTime{40};
// Most groups freeze within this, which is less than what one turn of the event loop and a timer
// cost.
constexpr int kQuickLooks = 6;
constexpr microseconds kQuickPause{60};

}  // namespace

// ---- freezing

Result<void> Warden::begin_freeze(const std::string& id, Sandbox& sandbox, std::uint64_t sequence) {
  if (sandbox.frozen) return reply(wire::Op::freeze, sequence, {});
  sandbox.waiting_freeze.push_back(sequence);
  if (sandbox.look.what == Look::For::frozen) return {};
  auto asked = [&]() -> Result<void> {
    ATOLL_TRY_ASSIGN(sys::Cgroup cgroup, cgroup_of(id));
    ATOLL_TRY(host_.faults.before("freeze.ask"));
    ATOLL_TRY(cgroup.start_freezing());
    host_.faults.after("freeze.ask");
    return {};
  }();
  if (!asked) return end_freeze(sandbox, asked);
  sandbox.look = {Look::For::frozen, Clock::now(), Clock::now() + kFreezeDeadline, milliseconds(1)};
  return look_again(id);
}

Result<void> Warden::end_freeze(Sandbox& sandbox, const Result<void>& outcome) {
  if (sandbox.look.what == Look::For::frozen) sandbox.look = {};
  for (std::uint64_t sequence : std::exchange(sandbox.waiting_freeze, {})) {
    ATOLL_TRY(reply(wire::Op::freeze, sequence, outcome));
  }
  return {};
}

// ---- ending

// The end of a pid namespace's first process is the end of all of them. In a frozen group all of
// them are killed before one can run on.
Result<void> Warden::kill(Sandbox& sandbox, const std::string& id) {
  const bool stopped = sandbox.frozen || sandbox.look.what == Look::For::frozen;
  ATOLL_TRY(end_freeze(sandbox, make_error(Errc::aborted, "killed meanwhile")));
  auto sent = sys::signal_pidfd(sandbox.process(), SIGKILL);
  if (!sent && sent.error().sys_errno != ESRCH) return sent;
  if (!stopped) return {};
  ATOLL_TRY_ASSIGN(sys::Cgroup cgroup, cgroup_of(id));
  ATOLL_TRY(cgroup.kill_all());
  ATOLL_TRY(cgroup.thaw());
  sandbox.frozen = false;
  return {};
}

Result<void> Warden::begin_kill(const std::string& id, Sandbox& sandbox, std::uint64_t sequence) {
  if (sandbox.dumped) {
    auto dropped = drop_memory(id, sandbox);
    if (!dropped) return reply(wire::Op::kill, sequence, dropped);
  }
  if (!sandbox.alive() && sandbox.settled) return reply(wire::Op::kill, sequence, {});
  if (sandbox.alive()) {
    auto killed = host_.faults.before("kill.signal");
    if (killed) killed = kill(sandbox, id);
    if (!killed) return reply(wire::Op::kill, sequence, killed);
    host_.faults.after("kill.signal");
    sandbox.waiting_kill.push_back(sequence);
    return {};  // on_process_end goes on
  }
  sandbox.waiting_kill.push_back(sequence);
  return begin_settling(id, sandbox);
}

Result<void> Warden::begin_settling(const std::string& id, Sandbox& sandbox) {
  if (sandbox.look.what == Look::For::settled) return {};
  sandbox.settled = false;
  sandbox.look = {Look::For::settled, Clock::now(), Clock::now() + kSettleDeadline,
                  milliseconds(1)};
  return look_again(id);
}

Result<bool> Warden::settle(const std::string& id, Sandbox& sandbox) {
  ATOLL_TRY(host_.faults.before("kill.cgroup"));
  ATOLL_TRY_ASSIGN(std::optional<sys::Cgroup> cgroup, host_.cgroups.find(id));
  if (cgroup) {
    ATOLL_TRY_ASSIGN(std::vector<pid_t> left, cgroup->processes());
    if (!left.empty()) {
      ATOLL_TRY(cgroup->kill_all());
      return false;
    }
    auto removed = cgroup->remove(milliseconds(0));
    if (!removed && removed.error().code == Errc::deadline_exceeded) return false;
    if (!removed) return std::move(removed).error();
  }
  host_.faults.after("kill.cgroup");
  if (host_.faults.dies_before("kill.layers")) die_now();
  sandbox.control_dir.reset();
  sandbox.layers.clear();
  sandbox.shared.clear();
  host_.faults.after("kill.layers");
  ATOLL_TRY(host_.faults.before("kill.unmounted"));
  auto directory = sys::open_beneath(host_.sandboxes, id, O_PATH | O_DIRECTORY);
  if (!directory && directory.error().sys_errno == ENOENT) return true;
  if (!directory) return std::move(directory).error();
  return is_unmounted(*directory, kImageName);
}

Result<void> Warden::end_settling(const std::string& id, Sandbox& sandbox,
                                  const Result<void>& outcome) {
  if (sandbox.look.what == Look::For::settled) sandbox.look = {};
  std::vector<std::uint64_t> killed = std::exchange(sandbox.waiting_kill, {});
  // A kill, or the end of a dump, is answered when it would survive the host's.
  if (outcome && sandbox.job == 0 && !killed.empty() && !sandbox.removing)
    return begin_seal(id, sandbox, wire::Op::kill, std::move(killed));
  const bool dumping = sandbox.job != 0 && !jobs_.at(sandbox.job).worker;
  if (outcome && dumping) return begin_seal(id, sandbox, wire::Op::dump, {});
  for (std::uint64_t sequence : killed) {
    ATOLL_TRY(reply(wire::Op::kill, sequence, outcome));
  }
  if (dumping) {
    // The memory is published and the processes have ended: it is dumped, whatever the disk does.
    // Who boots it settles it first.
    ATOLL_TRY(end_job(sandbox.job, sandbox.dumped ? Result<void>() : outcome, "kill.unmounted"));
  }
  return boot_waiting(id, sandbox, outcome);
}

Result<void> Warden::boot_waiting(const std::string& id, Sandbox& sandbox,
                                  const Result<void>& outcome) {
  auto boot = std::exchange(sandbox.waiting_boot, std::nullopt);
  if (!boot) return {};
  if (!outcome) return reply(wire::Op::create, boot->sequence, outcome);
  return boot_again(id, std::move(boot->spec), boot->sequence);
}

// ---- looking again

Result<void> Warden::look_again(const std::string& id) {
  const auto found = sandboxes_.find(id);
  if (found == sandboxes_.end()) return {};
  Sandbox& sandbox = found->second;
  Look& look = sandbox.look;
  if (look.what == Look::For::nothing) return {};
  const bool freezing = look.what == Look::For::frozen;
  auto done = [&]() -> Result<bool> {
    if (!freezing) return settle(id, sandbox);
    ATOLL_TRY(host_.faults.before("freeze.frozen"));
    ATOLL_TRY_ASSIGN(sys::Cgroup cgroup, cgroup_of(id));
    for (int i = 0;; ++i) {
      ATOLL_TRY_ASSIGN(bool frozen, cgroup.frozen());
      if (frozen || i == kQuickLooks) return frozen;
      std::this_thread::sleep_for(kQuickPause);
    }
  }();
  if (done && !*done) {
    const auto now = Clock::now();
    if (now < look.give_up) {
      look.next = now + look.pause;
      // Somebody who counts milliseconds waits for most of these; on a busy machine the processes
      // first need their turn.
      const auto patience = freezing ? kFreezeDeadline : kSettleDeadline;
      if (now > look.give_up - patience + kEagerTime)
        look.pause = std::min(look.pause * 2, kLongestPause);
      return {};
    }
    done = make_error(Errc::deadline_exceeded, freezing ? "processes did not freeze in time"
                                                        : "processes or the disk did not end");
  }
  const Result<void> outcome = done ? Result<void>() : Result<void>(done.error());
  if (!freezing) {
    sandbox.settled = done.ok();
    if (done) host_.faults.after("kill.unmounted");
    if (!done)
      log::error("a dead sandbox does not settle",
                 {{"sandbox", id}, {"error", done.error().message}});
    return end_settling(id, sandbox, outcome);
  }
  sandbox.frozen = done.ok();
  if (done) {
    host_.faults.after("freeze.frozen");
  } else if (auto cgroup = cgroup_of(id); cgroup) {
    auto undone = cgroup->thaw();
    if (!undone) log::error("cannot thaw", {{"sandbox", id}, {"error", undone.error().message}});
  }
  return end_freeze(sandbox, outcome);
}

// ---- booting again

Result<void> Warden::boot_again(const std::string& id, LaunchSpec spec, std::uint64_t sequence) {
  const auto refuse = [&](Errc code, const char* why) {
    return reply(wire::Op::create, sequence, make_error(code, "sandbox " + id + " " + why));
  };
  if (launches_.contains(id)) return refuse(Errc::failed_precondition, "is being made");
  const auto found = sandboxes_.find(id);
  if (found == sandboxes_.end() || found->second.removing)
    return refuse(Errc::not_found, "does not exist");
  Sandbox& sandbox = found->second;
  if (!sandbox.whole) return refuse(Errc::failed_precondition, "is a leftover");
  if (sandbox.alive() && !sandbox.dumped) return refuse(Errc::failed_precondition, "is running");
  if (spec.memory == runtime::Memory::kept && !sandbox.dumped)
    return refuse(Errc::not_found, "has no memory in files");
  if (!sandbox.slot) return refuse(Errc::failed_precondition, "has lost its id range");
  if (sandbox.waiting_boot) return refuse(Errc::failed_precondition, "is being made");
  if (!sandbox.settled || sandbox.job != 0) {
    sandbox.waiting_boot = Boot{std::move(spec), sequence};
    return sandbox.alive() || sandbox.job != 0 ? Result<void>() : begin_settling(id, sandbox);
  }
  spec.kept = KeptDisk{*sandbox.slot};
  return begin_launch(std::move(spec), sequence);
}

// ---- removal and numbers

Result<void> Warden::unmark(const std::string& id, Sandbox& sandbox) {
  ATOLL_TRY(host_.faults.before("destroy.unmark"));
  auto directory = sys::open_beneath(host_.sandboxes, id, O_PATH | O_DIRECTORY);
  if (!directory && directory.error().sys_errno != ENOENT) return std::move(directory).error();
  if (directory) {
    ATOLL_TRY(remove_mark(*directory));
  }
  sandbox.whole = false;
  host_.faults.after("destroy.unmark");
  return {};
}

// Of a running sandbox: what the filesystem of its disk says. Its root is the only overlay it can
// have (nobody inside can mount), and an overlay answers for its upper layer; should its first
// process have changed its root to elsewhere, or be dead, the blocks that the image occupies on the
// host are told instead. Those never become fewer.
sys::Space Warden::disk_space(const std::string& id, const Sandbox& sandbox) const {
  if (sandbox.alive() && sandbox.pid > 0) {
    auto root =
        sys::open_trusted("/proc/" + std::to_string(sandbox.pid) + "/root", O_PATH | O_DIRECTORY);
    auto space = root ? sys::space_of(*root) : Result<sys::Space>(root.error());
    if (space && space->overlay && !sys::has_ended(sandbox.process())) return *space;
  }
  auto image = sys::open_beneath(host_.sandboxes, id + "/" + kImageName, O_PATH);
  auto info = image ? sys::stat_of(*image) : Result<struct stat>(image.error());
  if (!info) return {};
  return {std::uint64_t(info->st_blocks) * 512, std::uint64_t(info->st_size), false};
}

}  // namespace atl::jail
