// The stream of one run to its client. Apart for compile time.
#pragma once

#include <memory>

#include "agent/interpreter/context.h"
#include "net/http.h"

namespace atl::agent::interpreter {

inline constexpr std::chrono::seconds kKeepalive{5};

// Head at once, then lines as they come, to the last one. A client that goes away abandons the run.
net::Task<void> stream_run(net::Exchange& exchange, std::shared_ptr<Context> context,
                           std::shared_ptr<Run> run);

net::Task<Result<void>> wait_for_kernel(std::shared_ptr<Context> context);
// False: the client went away first.
net::Task<bool> while_connected(net::Exchange& exchange, net::Task<Result<void>> part,
                                Result<void>& outcome);

}  // namespace atl::agent::interpreter
