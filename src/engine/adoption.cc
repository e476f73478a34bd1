#include "engine/adoption.h"

namespace atl::engine {
namespace {

using runtime::Condition;
using store::SandboxState;

// A running sandbox, or one that is as good as running.
Adoption of_running(Condition found, bool over) {
  switch (found) {
    case Condition::running:
      return Adoption::run;
    case Condition::frozen:
      return Adoption::thaw_and_run;
    case Condition::dead:
      // The host was restarted, or its agent ended unseen: the files are still there.
      return over ? Adoption::remove : Adoption::rest_disk;
    case Condition::leftover:
      break;
  }
  return Adoption::lost;
}

// One with memory that was being paused, was paused, or was being resumed.
Adoption of_frozen(Condition found, Adoption if_running) {
  switch (found) {
    case Condition::running:
      return if_running;
    case Condition::frozen:
      return Adoption::rest_frozen;
    case Condition::dead:
      return Adoption::rest_disk;
    case Condition::leftover:
      break;
  }
  return Adoption::lost;
}

// One without memory that was being paused or was paused.
Adoption of_stopped(Condition found) {
  switch (found) {
    case Condition::running:
    case Condition::frozen:
      return Adoption::stop;
    case Condition::dead:
      return Adoption::rest_disk;
    case Condition::leftover:
      break;
  }
  return Adoption::lost;
}

}  // namespace

std::string_view to_string(Adoption adoption) {
  switch (adoption) {
    case Adoption::run:
      return "run";
    case Adoption::thaw_and_run:
      return "thaw_and_run";
    case Adoption::init_and_run:
      return "init_and_run";
    case Adoption::rest_frozen:
      return "rest_frozen";
    case Adoption::freeze:
      return "freeze";
    case Adoption::rest_disk:
      return "rest_disk";
    case Adoption::stop:
      return "stop";
    case Adoption::remove:
      return "remove";
    case Adoption::lost:
      return "lost";
  }
  return "unknown";
}

Adoption decide_adoption(SandboxState state, bool memory_kept, std::optional<Condition> found,
                         bool over) {
  if (state == SandboxState::creating || state == SandboxState::killing ||
      state == SandboxState::killed)
    return Adoption::remove;
  if (!found) return Adoption::lost;
  switch (state) {
    case SandboxState::running:
      return of_running(*found, over);
    case SandboxState::pausing:
      return memory_kept ? of_frozen(*found, Adoption::run) : of_stopped(*found);
    case SandboxState::paused:
      return memory_kept ? of_frozen(*found, Adoption::freeze) : of_stopped(*found);
    case SandboxState::resuming:
      return of_frozen(*found, memory_kept ? Adoption::run : Adoption::init_and_run);
    default:
      return Adoption::lost;
  }
}

}  // namespace atl::engine
