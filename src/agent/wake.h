// POST /wake: what a sandbox is told after its memory came back from files, before anybody else
// talks to it (docs/memory.md).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "agent/state.h"

namespace atl::agent {

struct WakeRequest {
  bool forked = false;                  // it is a copy: another one goes on with the same memory
  std::string seed;                     // 64 hex digits; empty only if it is not forked
  std::optional<std::string> hostname;  // of a copy
  InitRequest init;
};

// Errors: invalid_argument naming the field.
Result<WakeRequest> parse_wake(std::string_view body);

// A seed for one of several who must not get the same, as 64 hex digits.
std::string derive_seed(std::string_view seed, std::string_view whose);

// /etc/hostname, the old name in /etc/hosts, and the kernel's name where that is allowed. `root` is
// where etc is.
Result<void> set_host_name(const std::string& name, const std::string& root = "");

}  // namespace atl::agent
