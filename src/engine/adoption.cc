#include "engine/adoption.h"

namespace atl::engine {
namespace {

using runtime::Condition;
using store::SandboxState;

// Memory in files is always what is kept, whatever the row says: it is written whole or not at all,
// and used up by a restore before the first process runs; a row may be older after a power cut.

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
    case Condition::dumped:
      return Adoption::rest_dumped;
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
    case Condition::dumped:
      return Adoption::rest_dumped;
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
    case Condition::dumped:
      return Adoption::rest_dumped;
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
    case Adoption::wake_and_run:
      return "wake_and_run";
    case Adoption::rest_frozen:
      return "rest_frozen";
    case Adoption::rest_dumped:
      return "rest_dumped";
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

Adoption decide_adoption(const AdoptionRow& row, std::optional<Condition> found) {
  if (row.state == SandboxState::creating || row.state == SandboxState::killing ||
      row.state == SandboxState::killed)
    return Adoption::remove;
  if (!found) return Adoption::lost;
  switch (row.state) {
    case SandboxState::running:
    case SandboxState::snapshotting:
      return of_running(*found, row.over);
    case SandboxState::pausing:
      return row.memory_kept ? of_frozen(*found, Adoption::run) : of_stopped(*found);
    case SandboxState::paused:
      return row.memory_kept ? of_frozen(*found, Adoption::freeze) : of_stopped(*found);
    case SandboxState::resuming:
      if (!row.memory_kept) return of_frozen(*found, Adoption::init_and_run);
      return of_frozen(
          *found, row.tier == store::MemoryTier::dumped ? Adoption::wake_and_run : Adoption::run);
    default:
      return Adoption::lost;
  }
}

}  // namespace atl::engine
