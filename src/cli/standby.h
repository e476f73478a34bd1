// A standby: a second `atoll up` on the same home, with addresses of its own.
//
// Theory of operation. While another process has the lock of the home, the standby serves nothing
// itself. Its parent, root, waits for the lock; a child of it, the user atoll, carries connections
// as raw bytes to the server that runs (its addresses are in server.json). The child takes a
// connection out of a socket's queue only when it has one to the server: what comes while that is
// away waits in the queue. When the lock is free (the other supervisor and its server are gone,
// however they ended) the child is ended, and the parent goes on as a supervisor on the same
// sockets: its server adopts the sandboxes, as after any restart, and answers what waits.
#pragma once

#include <optional>

#include "cli/instance.h"
#include "cli/sockets.h"
#include "cli/up.h"

namespace atl::cli {

// Until the lock is ours; nullopt: we were told to stop. Preconditions: one thread, root; `signals`
// has SIGINT, SIGTERM, SIGHUP and SIGCHLD. `program` and `arguments` are those of a server.
Result<std::optional<Instance>> stand_by(const ServeOptions& options, const Home& home,
                                         ServerUser user, const Sockets& sockets,
                                         const sys::UniqueFd& signals, const std::string& program,
                                         const std::vector<std::string>& arguments);

// The child: until it is killed. Its sockets are those that a server inherits (supervisor.h).
Result<int> relay_connections(const ServeOptions& options);

}  // namespace atl::cli
