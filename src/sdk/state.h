// SandboxState: what the handles of one sandbox share.
#pragma once

#include <memory>

#include "client/inside.h"
#include "sdk/core.h"

namespace atl::sdk {

struct SandboxState {
  std::shared_ptr<Core> core;
  client::RemoteSandbox sandbox;  // as it was made or found
  client::Inside inside;          // fixed: tokens and ways outlive pauses
};

}  // namespace atl::sdk
