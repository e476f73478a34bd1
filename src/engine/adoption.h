// What becomes of a sandbox of an earlier run, from what its row says and what the runtime has: one
// pure table.
//
// Rows are written before and after each step (intent, outcome), so what the runtime has tells how
// far a cut-off transition came. A client heard of no outcome whose row is missing; whatever is
// decided here is as good as a transition that failed or succeeded a moment later.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "runtime/runtime.h"
#include "store/records.h"

namespace atl::engine {

enum class Adoption : std::uint8_t {
  run,           // it runs and knows who it is
  thaw_and_run,  // it should run and is frozen
  init_and_run,  // it runs, but may never have been told who it is: only if its agent takes that
  wake_and_run,  // its memory came back from files, but it may never have been told: if its agent
                 // does not take that, it is frozen
  rest_frozen,   // paused with its memory in RAM
  rest_dumped,   // paused with its memory in files
  freeze,        // should be frozen, is not: freeze it, then paused with its memory
  rest_disk,     // paused, only its disk is left
  stop,          // processes to end; then paused, only its disk is left
  remove,        // to be destroyed: half-made, or being killed
  lost,          // nothing that could be brought back: its row ends, what is there is destroyed
};

std::string_view to_string(Adoption adoption);

// What of a row matters here.
struct AdoptionRow {
  store::SandboxState state = store::SandboxState::running;
  bool memory_kept = true;
  store::MemoryTier tier = store::MemoryTier::none;
  bool over = false;  // its end is past and it is not to be paused then
};

// `found`: nullopt when the runtime has nothing of that id.
Adoption decide_adoption(const AdoptionRow& row, std::optional<runtime::Condition> found);

}  // namespace atl::engine
