// `atoll repl`: one sandbox, one context, cell after cell.
//
// The engine runs on a thread of its own; this one waits for lines. Ctrl-C gives up the line that
// is being typed, or interrupts the cell that runs and keeps its state; Ctrl-D ends everything.
#pragma once

#include "cli/run.h"

namespace atl::cli {

// `options.code`, `file`, `json` and `keep` mean nothing here; `timeout_seconds` is the life of the
// sandbox.
Result<int> repl(const RunOptions& options);

}  // namespace atl::cli
