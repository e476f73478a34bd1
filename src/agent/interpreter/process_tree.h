// Ends everything that a kernel has started.
#pragma once

#include <sys/types.h>

namespace atl::agent::interpreter {

// SIGKILL to `root` (unless it is gone), to its descendants and to all processes of the sessions
// that it or they lead, looking again until a look finds none. Processes that made a session of
// their own *and* lost their parents are not found. Reads /proc.
void kill_tree(pid_t root);

}  // namespace atl::agent::interpreter
