// Pseudo-terminals: the agent keeps the master, the child gets the slave.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "agent/file_io.h"
#include "base/result.h"

namespace atl::agent {

struct WindowSize {
  std::uint16_t cols = 0;
  std::uint16_t rows = 0;
};

struct PtyPair {
  Fd master;  // non-blocking
  Fd slave;
};

// A new pair of the given size. `owner` gets the slave's device node, so that programs can open
// their terminal by name.
Result<PtyPair> open_pty(WindowSize size, std::optional<uid_t> owner);
// The kernel tells the foreground process group with SIGWINCH.
Result<void> resize_pty(int master, WindowSize size);

}  // namespace atl::agent
