#include "engine/state_machine.h"

namespace atl::engine {
namespace {

struct Row {
  SandboxState from;
  Event event;
  SandboxState to;
};

using S = SandboxState;
using E = Event;

constexpr Row kTable[] = {
    {S::creating, E::created, S::running},       //
    {S::creating, E::create_failed, S::killed},  //
    {S::creating, E::kill, S::killing},          // shutdown; clients do not know its id yet
    {S::running, E::pause, S::pausing},          //
    {S::running, E::kill, S::killing},           //
    {S::pausing, E::paused, S::paused},          //
    {S::pausing, E::pause_failed, S::running},   //
    {S::pausing, E::kill, S::killing},           //
    {S::paused, E::resume, S::resuming},         //
    {S::paused, E::kill, S::killing},            //
    {S::resuming, E::resumed, S::running},       //
    {S::resuming, E::resume_failed, S::paused},  //
    {S::resuming, E::kill, S::killing},          //
    {S::running, E::snapshot, S::snapshotting},  //
    {S::snapshotting, E::snapshotted, S::running},
    {S::snapshotting, E::paused, S::paused},  // it could not be thawed
    {S::snapshotting, E::kill, S::killing},
    {S::killing, E::gone, S::killed},  //
};

}  // namespace

std::string_view to_string(Event event) {
  switch (event) {
    case Event::created:
      return "created";
    case Event::create_failed:
      return "create_failed";
    case Event::pause:
      return "pause";
    case Event::paused:
      return "paused";
    case Event::pause_failed:
      return "pause_failed";
    case Event::resume:
      return "resume";
    case Event::resumed:
      return "resumed";
    case Event::resume_failed:
      return "resume_failed";
    case Event::snapshot:
      return "snapshot";
    case Event::snapshotted:
      return "snapshotted";
    case Event::kill:
      return "kill";
    case Event::gone:
      return "gone";
  }
  return "unknown";
}

Result<SandboxState> next_state(SandboxState from, Event event) {
  for (const Row& row : kTable) {
    if (row.from == from && row.event == event) return row.to;
  }
  return make_error(Errc::failed_precondition,
                    "a sandbox that is " + std::string(store::to_string(from)) +
                        " cannot take the event " + std::string(to_string(event)));
}

bool is_visible(SandboxState state) {
  return state != SandboxState::creating && state != SandboxState::killing &&
         state != SandboxState::killed;
}

}  // namespace atl::engine
