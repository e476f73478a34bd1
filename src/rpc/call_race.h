// Runs a call until it finishes, its client goes away or its deadline passes. Inside of src/rpc,
// apart for compile time.
#pragma once

#include <chrono>
#include <optional>

#include "net/http.h"

namespace atl::rpc {

enum class Ended { finished, peer_closed, deadline };

// Whether the connection is watched while the call runs. It must not be when the call still reads
// its request.
enum class WatchPeer { yes, no };

// `result` is set when the call finished. A call that loses is cancelled and has ended when this
// returns: its coroutine unwinds at the suspension point it is in. An exception of the call becomes
// Errc::internal.
net::Task<Ended> race(net::Task<Result<void>> call, Result<void>& result, net::Stream& stream,
                      WatchPeer watch,
                      std::optional<std::chrono::steady_clock::time_point> deadline);

}  // namespace atl::rpc
