// The life of a sandbox: which event is legal in which state, in one table.
//
//            created            paused             resumed
//   creating ───────► running ──pause──► pausing ───────► paused ──resume──► resuming ───► running
//      │ create_failed   │  ▲               │ pause_failed   │                  │ resume_failed
//      ▼                 │  └───────────────┘                │                  └────────────►
//      paused
//   killed ◄──gone── killing ◄──────────── kill ─────────────┘   (kill: from running, paused,
//   pausing, resuming)
//
// pausing, paused and resuming are part of the table; the commands that lead there come with
// snapshots.
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
  kill,
  gone,  // nothing of it is left
};

std::string_view to_string(Event event);

// failed_precondition: the event is not legal in this state.
Result<SandboxState> next_state(SandboxState from, Event event);

// What clients may know of a state: killing and killed do not exist for them, creating not yet.
bool is_visible(SandboxState state);

}  // namespace atl::engine
