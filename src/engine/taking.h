// Inside of the engine: one snapshot that is being made, and kept from being collected as long as
// somebody holds this.
#pragma once

#include "engine/completion.h"
#include "engine/engine.h"

namespace atl::engine {

struct Engine::Taking {
  Taking(store::SnapshotRecord r, SnapshotTable::Pin p) : record(std::move(r)), pin(std::move(p)) {}

  // Written by the task that makes it until `done`; by nobody afterwards.
  store::SnapshotRecord record;
  runtime::Written written;
  std::chrono::microseconds source_pause{0};
  std::optional<Error> failure;  // guarded by Engine::mutex_
  SnapshotTable::Pin pin;
  Completion done;
};

}  // namespace atl::engine
