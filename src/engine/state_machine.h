// The life of a sandbox: which event is legal in which state, in one table.
//
//                         ┌───── pause_failed ────┐
//             created     ▼         pause         │      paused
//   creating ─────────► running ──────────────► pausing ─────────► paused
//      │                  ▲                                        │  ▲
//      │                  └───── resumed ───── resuming ◄─ resume ─┘  │
//      │ create_failed                             └── resume_failed ─┘
//      ▼
//   killed ◄── gone ── killing ◄── kill ── creating, running, pausing, paused, resuming,
//   snapshotting
//
//   running ── snapshot ──► snapshotting ── snapshotted ──► running
//                                └── paused (it could not be thawed again) ──► paused
//
// Running and paused are states of rest. The others belong to the task that performs the
// transition; a kill takes any of them over and waits for that task first.
#pragma once

#include <string_view>

#include "base/result.h"
#include "store/records.h"

namespace atl::engine {

using store::SandboxState;

enum class Event : std::uint8_t {
  created,
  create_failed,
  pause,
  paused,
  pause_failed,
  resume,
  resumed,
  resume_failed,
  snapshot,
  snapshotted,  // whatever came of the snapshot
  kill,
  gone,  // nothing of it is left
};

std::string_view to_string(Event event);

// failed_precondition: the event is not legal in this state.
Result<SandboxState> next_state(SandboxState from, Event event);

// What clients may know of a state: killing and killed do not exist for them, creating not yet.
bool is_visible(SandboxState state);

}  // namespace atl::engine
