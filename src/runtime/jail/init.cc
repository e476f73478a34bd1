#include "runtime/jail/init.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>

#include "runtime/jail/network.h"
#include "runtime/jail/stage.h"
#include "sys/datagram.h"
#include "sys/files.h"
#include "sys/process.h"
#include "sys/self.h"

namespace atl::jail {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kListenFd = 3;

// One method per action; the steps of the warden never get here.
class Executor {
 public:
  explicit Executor(InitInput& input) : in_(input) {}

  Result<void> operator()(const EnterCgroup&) {
    for (const sys::UniqueFd& file : in_.cgroup_entrances) {
      ATOLL_TRY(sys::write_value(file, "0"));
    }
    in_.cgroup_entrances.clear();
    return {};
  }
  Result<void> operator()(const Unshare& a) { return sys::unshare(a.flags); }
  Result<void> operator()(const NewSession&) {
    ATOLL_TRY(sys::new_session());
    return sys::new_session_keyring();
  }
  Result<void> operator()(const SetHostname& a) { return sys::set_hostname(a.name); }
  Result<void> operator()(const LoopbackUp&) { return sys::loopback_up(); }

  Result<void> operator()(const ReceiveRoot&) {
    ATOLL_TRY_ASSIGN(sys::Datagram message,
                     sys::receive_datagram(in_.channel, 1, 1, sys::Wait::yes));
    if (message.bytes.empty() || message.fds.size() != 1)
      return make_error(Errc::aborted, "the warden is gone");
    root_ = sys::DetachedMount(std::move(message.fds.front()));
    return {};
  }

  Result<void> operator()(const CloneShared& a) {
    // By path: the warden's descriptors refer to its own mount namespace, from which nothing can be
    // copied here.
    ATOLL_TRY_ASSIGN(sys::UniqueFd stage,
                     sys::open_trusted(kStage, O_PATH | O_DIRECTORY | O_NOFOLLOW));
    for (const auto& [name, path] : a.parts) {
      ATOLL_TRY_ASSIGN(sys::UniqueFd part, sys::open_beneath(stage, path, O_PATH));
      ATOLL_TRY_ASSIGN(sys::DetachedMount copy, sys::DetachedMount::clone_tree(part));
      shared_.emplace(name, std::move(copy));
    }
    return {};
  }

  Result<void> operator()(const MakeProc& a) {
    ATOLL_TRY_ASSIGN(sys::FsContext context, sys::FsContext::open("proc"));
    ATOLL_TRY_ASSIGN(proc_, context.mount(a.attrs));
    return {};
  }

  Result<void> operator()(const ChangeRoot&) {
    ATOLL_TRY_ASSIGN(sys::UniqueFd target, sys::open_trusted(std::string(kStage) + "/" + kStageRoot,
                                                             O_PATH | O_DIRECTORY | O_NOFOLLOW));
    ATOLL_TRY(root_.attach(target));
    ATOLL_TRY(sys::change_root(root_.fd()));
    ATOLL_TRY_ASSIGN(inside_, sys::open_trusted("/", O_PATH | O_DIRECTORY));
    return {};
  }

  Result<void> operator()(const AttachShared& a) {
    return attach_shared(a.name, a.target, a.attrs);
  }
  Result<void> operator()(const AttachProc& a) {
    ATOLL_TRY_ASSIGN(sys::UniqueFd target, open_inside(a.target));
    return proc_.attach(target);
  }
  Result<void> operator()(const AttachControlDir& a) {
    ATOLL_TRY_ASSIGN(sys::UniqueFd target, open_inside(a.target));
    return in_.control.attach(target);
  }
  Result<void> operator()(const NewMount& a) {
    ATOLL_TRY_ASSIGN(sys::FsContext context, sys::FsContext::open(a.type));
    ATOLL_TRY(context.set_options(a.options));
    ATOLL_TRY_ASSIGN(sys::DetachedMount mount, context.mount(a.attrs));
    ATOLL_TRY_ASSIGN(sys::UniqueFd target, open_inside(a.target));
    return mount.attach(target);
  }

  Result<void> operator()(const SetSysctls& a) {
    for (const SetSysctl& value : a.values) {
      auto written = sys::write_beneath(proc_.fd(), "sys/" + value.path, value.value);
      // A kernel without the feature has nothing to switch off.
      if (!written && written.error().sys_errno != ENOENT) return std::move(written).error();
    }
    return {};
  }

  Result<void> operator()(const BindAll& a) {
    for (const Bind& bind : a.binds) {
      auto target = open_inside(bind.target);
      if (!target && target.error().sys_errno == ENOENT) continue;
      if (!target) return std::move(target).error();
      ATOLL_TRY_ASSIGN(sys::UniqueFd source, open_inside(bind.source));
      ATOLL_TRY_ASSIGN(sys::DetachedMount copy, sys::DetachedMount::clone_tree(source));
      ATOLL_TRY(copy.restrict_to(bind.attrs));
      auto attached = copy.attach(*target);
      if (!attached) return std::move(attached).error().with(bind.target);
    }
    return {};
  }

  Result<void> operator()(const BringUpNetwork&) { return bring_up_inside(in_.address); }

  Result<void> operator()(const ListenAgent& a) {
    ATOLL_TRY_ASSIGN(listener_, sys::listen_unix(a.path, a.mode, a.backlog));
    return {};
  }
  Result<void> operator()(const BecomeRoot&) { return sys::become_namespace_root(); }
  Result<void> operator()(const LimitCapabilities& a) { return sys::limit_capabilities(a.keep); }
  Result<void> operator()(const LimitResources& a) {
    for (const ResourceLimit& limit : a.limits) {
      ATOLL_TRY(sys::limit_resource(limit.resource, limit.soft, limit.hard));
    }
    sys::set_file_mask(a.file_mask);
    return {};
  }
  Result<void> operator()(const PlaceDescriptors&) {
    ATOLL_TRY_ASSIGN(in_.channel, sys::moved_above(std::move(in_.channel), kListenFd));
    ATOLL_TRY_ASSIGN(sys::UniqueFd null, sys::open_null());
    ATOLL_TRY(sys::place_descriptors(
        {{null.get(), 0}, {null.get(), 1}, {null.get(), 2}, {listener_.get(), kListenFd}}));
    return sys::reset_signals();
  }
  Result<void> operator()(const InstallFilter&) {
    ATOLL_TRY(sys::install_filter(in_.filters.allow_list));
    return sys::install_filter(in_.filters.rules);
  }
  // The report goes out before the exec: afterwards there is nobody to send it.
  Result<void> operator()(const ExecAgent& a) {
    ATOLL_TRY(sys::set_parent_death(sys::WithParent::live));
    ATOLL_TRY(
        sys::send_datagram(in_.channel, std::as_bytes(std::span(&report, 1)), {}, sys::Wait::yes));
    return sys::exec(a.path, a.argv, a.env);
  }

  template <class Other>
  Result<void> operator()(const Other&) {
    return make_error(Errc::internal, "not a step of the new process");
  }

  InitReport report;

 private:
  Result<sys::UniqueFd> open_inside(const std::string& path) {
    return sys::open_beneath(inside_, path, O_PATH);
  }

  Result<void> attach_shared(const std::string& name, const std::string& target,
                             sys::MountAttrs attrs) {
    const auto found = shared_.find(name);
    if (found == shared_.end()) return make_error(Errc::internal, "no shared part " + name);
    ATOLL_TRY_ASSIGN(sys::UniqueFd at, open_inside(target));
    ATOLL_TRY(found->second.restrict_to(attrs));
    return found->second.attach(at);
  }

  InitInput& in_;
  sys::DetachedMount root_;
  sys::DetachedMount proc_;
  std::map<std::string, sys::DetachedMount> shared_;
  sys::UniqueFd inside_;
  sys::UniqueFd listener_;
};

void ask_to_die(const sys::UniqueFd& channel) {
  InitReport report;
  report.failed = InitReport::die;
  (void)sys::send_datagram(channel, std::as_bytes(std::span(&report, 1)), {}, sys::Wait::yes);
}

}  // namespace

void run_init(InitInput input) {
  Executor executor(input);
  InitReport& report = executor.report;
  // A warden that ends takes a half-made sandbox along; once the user id has changed, the end of
  // the channel does the same at the latest when the report cannot be sent. If the warden ended
  // before this call, `receive` sees that.
  Result<void> bound = sys::set_parent_death(sys::WithParent::die);
  for (const Step& step : input.plan) {
    if (step.actor != Actor::init) continue;
    const auto begin = Clock::now();
    if (input.faults.dies_before(step.name)) ask_to_die(input.channel);
    Result<void> done = !bound ? bound
                        : step.name == input.faults.fail_at
                            ? Result<void>(errno_error("failure asked for", EIO))
                            : std::visit(executor, step.action);
    if (done && input.faults.dies_after(step.name)) ask_to_die(input.channel);
    if (!done) {
      report.failed = InitReport::bad;
      report.code = std::int32_t(done.error().code);
      report.sys_errno = done.error().sys_errno;
      wire::to_field_cut(report.step, step.name);
      wire::to_field_cut(report.message, done.error().message);
      // Nothing more can be done if this fails too: the warden sees the end of the stream without a
      // good report.
      (void)sys::send_datagram(input.channel, std::as_bytes(std::span(&report, 1)), {},
                               sys::Wait::yes);
      sys::exit_now(1);
    }
    if (report.step_count < kMaxInitSteps) {
      const auto took = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
      report.micros[report.step_count++] = std::uint32_t(took.count());
    }
  }
  sys::exit_now(1);
}

}  // namespace atl::jail
