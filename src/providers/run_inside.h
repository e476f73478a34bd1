// One run of code as a process of a sandbox, for the providers whose sandboxes have an agent.
//
// The code and a runner for it go into a directory of their own below the home, the process runs in
// the home, and the directory is removed afterwards. Files that the code leaves in `artifacts/` are
// part of the outcome.
#pragma once

#include "client/inside.h"
#include "providers/provider.h"

namespace atl::providers {

// Errors: deadline_exceeded (the processes were killed), invalid_argument (arguments), and those of
// the way inside.
net::Task<Result<Outcome>> run_inside(client::Inside inside, Run run);

}  // namespace atl::providers
