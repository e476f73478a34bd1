#include "runtime/jail/restore_worker.h"

#include <fcntl.h>
#include <sched.h>

#include <string_view>
#include <utility>

#include "runtime/jail/memory_files.h"
#include "runtime/jail/network.h"
#include "runtime/jail/stage.h"
#include "runtime/jail/trial.h"
#include "sys/datagram.h"
#include "sys/files.h"
#include "sys/namespaces.h"
#include "sys/self.h"

namespace atl::jail {
namespace {

class Restorer {
 public:
  Restorer(WorkerChannel& channel, RestoreInput& input) : channel_(channel), in_(input) {}

  // Everything up to CRIU, and CRIU; the steps behind it belong to its stops.
  Result<WorkerResult> run() {
    WorkerResult result;
    for (const Step& step : in_.plan) {
      if (step.actor != Actor::worker) continue;
      ATOLL_TRY(channel_.run(step.name.c_str(), [&] { return std::visit(*this, step.action); }));
      if (std::holds_alternative<RunRestore>(step.action)) break;
    }
    result.pid = init_;
    return result;
  }

  Result<void> operator()(const StageExternals& a) {
    ATOLL_TRY_ASSIGN(sys::UniqueFd stage,
                     sys::open_trusted(kStage, O_PATH | O_DIRECTORY | O_NOFOLLOW));
    ATOLL_TRY_ASSIGN(sys::UniqueFd programs,
                     sys::open_beneath(stage, in_.programs, O_PATH | O_DIRECTORY));
    ATOLL_TRY_ASSIGN(control_dir_, sys::open_beneath(in_.control.fd(), "", O_RDONLY | O_DIRECTORY));
    for (const HostMount& mount : a.mounts) {
      if (mount.from == HostMount::From::control) {
        restore_.externals.push_back({mount.target, std::move(in_.control)});
        continue;
      }
      const bool program = mount.from == HostMount::From::programs;
      ATOLL_TRY_ASSIGN(sys::UniqueFd part,
                       sys::open_beneath(program ? programs : stage, mount.path, O_PATH));
      ATOLL_TRY_ASSIGN(sys::DetachedMount copy, sys::DetachedMount::clone_tree(part));
      ATOLL_TRY(copy.restrict_to(mount.attrs));
      restore_.externals.push_back({mount.target, std::move(copy)});
    }
    for (const HostMask& mask : a.masks)
      restore_.parts.push_back({mask.target, mask.of, mask.name});
    return {};
  }

  Result<void> operator()(const NewSession&) {
    ATOLL_TRY(sys::new_session());
    return sys::new_session_keyring();
  }

  Result<void> operator()(const RunRestore& a) {
    ATOLL_TRY_ASSIGN(restore_.tools, tried_tools(in_.tools));
    restore_.directory = &in_.memory;
    restore_.first_id = in_.first_id;
    restore_.hostname = a.hostname;
    restore_.facts = in_.facts;
    restore_.memory_limit = a.memory_limit;
    restore_.root = std::move(in_.root);
    restore_.cgroup_entrances = std::move(in_.cgroup_entrances);
    restore_.template_root = in_.template_root ? &in_.template_root : nullptr;
    restore_.on_stage = [this](snapshot::Stage stage, pid_t init) { return on_stage(stage, init); };
    ATOLL_TRY_ASSIGN(snapshot::Restored restored, snapshot::restore(std::move(restore_)));
    for (const snapshot::StepTime& step : restored.steps)
      channel_.tell("restore." + step.name, step.took);
    init_ = restored.init;
    return {};
  }

  // ---- while CRIU waits

  Result<void> operator()(const LoopbackUp&) { return sys::loopback_up(); }
  Result<void> operator()(const BringUpNetwork&) { return bring_up_inside(in_.address); }
  // The files below /proc/sys/net are those of the network namespace that one is in; numbers of
  // groups are those of the user namespace.
  Result<void> operator()(const SetSysctls& a) {
    ATOLL_TRY_ASSIGN(sys::UniqueFd sysctl, sys::open_trusted("/proc/sys", O_PATH | O_DIRECTORY));
    for (const SetSysctl& value : a.values) {
      const bool groups = value.path == kPingGroups;
      auto written =
          sys::write_beneath(sysctl, value.path,
                             groups ? std::to_string(in_.first_id) + " " +
                                          std::to_string(in_.first_id + kIdsPerSandbox - 1)
                                    : value.value);
      if (!written && written.error().sys_errno != ENOENT) return std::move(written).error();
    }
    return {};
  }
  Result<void> operator()(const BindForeign& a) { return allow_foreign_addresses(a.allowed); }
  Result<void> operator()(const UseMemory& a) {
    return a.own ? use_memory(in_.directory) : Result<void>();
  }
  // No process of the sandbox has run since the socket was bound.
  Result<void> operator()(const GiveSocket& a) {
    ATOLL_TRY_ASSIGN(sys::UniqueFd socket,
                     sys::open_beneath(control_dir_, "agent.sock", O_PATH | O_NOFOLLOW));
    ATOLL_TRY_ASSIGN(struct stat info, sys::stat_of(socket));
    if (!S_ISSOCK(info.st_mode))
      return make_error(Errc::internal, "the agent's socket is not a socket");
    ATOLL_TRY(sys::change_owner(control_dir_, "agent.sock", 0, a.group));
    ATOLL_TRY(sys::set_mode_at(control_dir_, "agent.sock", a.mode));
    ATOLL_TRY(sys::change_owner(control_dir_, ".", 0, a.group));
    return sys::set_mode(control_dir_, a.directory_mode);
  }

  template <class Other>
  Result<void> operator()(const Other&) {
    return make_error(Errc::internal, "not a step of the worker");
  }

 private:
  Result<void> on_stage(snapshot::Stage stage, pid_t init) {
    if (stage == snapshot::Stage::namespaces) {
      if (has<BringUpNetwork>()) {
        ATOLL_TRY(channel_.ask(WorkerMessage::connect, init));
      }
      ATOLL_TRY_ASSIGN(sys::UniqueFd network,
                       sys::open_trusted("/proc/" + std::to_string(init) + "/ns/net", O_RDONLY));
      ATOLL_TRY_ASSIGN(sys::InNamespace inside, sys::InNamespace::enter(network, CLONE_NEWNET));
      ATOLL_TRY(at_stop<LoopbackUp>());
      ATOLL_TRY(at_stop<BringUpNetwork>());
      ATOLL_TRY(at_stop<SetSysctls>());
      return at_stop<BindForeign>("foreign.bind");
    }
    if (stage == snapshot::Stage::resuming) return at_stop<UseMemory>();
    if (has<BindForeign>()) {
      ATOLL_TRY_ASSIGN(sys::UniqueFd network,
                       sys::open_trusted("/proc/" + std::to_string(init) + "/ns/net", O_RDONLY));
      ATOLL_TRY_ASSIGN(sys::InNamespace inside, sys::InNamespace::enter(network, CLONE_NEWNET));
      ATOLL_TRY(at_stop<BindForeign>("foreign.end"));
    }
    ATOLL_TRY(at_stop<GiveSocket>());
    return commit(init);
  }

  // The warden agrees, and from then on its end does not stop the restore, which would leave
  // neither image nor processes. Until the image is marked as used, a failure leaves it as it was.
  Result<void> commit(pid_t init) {
    if (in_.directory) {
      ATOLL_TRY(sys::set_parent_death(sys::WithParent::live));
    }
    return channel_.ask(WorkerMessage::resume, init);
  }

  template <class Action>
  bool has() const {
    for (const Step& step : in_.plan) {
      if (step.actor == Actor::worker && std::holds_alternative<Action>(step.action)) return true;
    }
    return false;
  }
  template <class Action>
  Result<void> at_stop(std::string_view name = {}) {
    for (const Step& step : in_.plan) {
      if (step.actor != Actor::worker || !std::holds_alternative<Action>(step.action)) continue;
      if (!name.empty() && step.name != name) continue;
      ATOLL_TRY(
          channel_.run(step.name.c_str(), [&] { return (*this)(std::get<Action>(step.action)); }));
    }
    return {};
  }

  WorkerChannel& channel_;
  RestoreInput& in_;
  snapshot::RestorePlan restore_;
  sys::UniqueFd control_dir_;
  pid_t init_ = 0;
};

}  // namespace

std::vector<int> RestoreInput::descriptors() const {
  std::vector<int> all = {memory.get(), root.fd().get(), control.fd().get()};
  if (directory) all.insert(all.end(), {directory.get(), lock.get()});
  if (template_root) all.push_back(template_root.get());
  for (const sys::UniqueFd& entrance : cgroup_entrances) all.push_back(entrance.get());
  return all;
}

Result<WorkerResult> run_restore(WorkerChannel& channel, RestoreInput& input) {
  if (input.lock) {
    ATOLL_TRY(sign_lock(input.lock));
  }
  return Restorer(channel, input).run();
}

}  // namespace atl::jail
