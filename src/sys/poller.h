// Poller: epoll(7) for a plain blocking event loop. Single thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "sys/fd.h"

namespace atl::sys {

class Poller {
 public:
  static Result<Poller> create();
  // Reports `token` whenever `fd` is readable or hung up. Closing every copy of the descriptor
  // removes it; a descriptor that a child may have inherited must be removed by hand.
  Result<void> add(const UniqueFd& fd, std::uint64_t token);
  void remove(const UniqueFd& fd);
  // Tokens that are ready; empty when the time has passed. nullopt waits for ever.
  Result<std::vector<std::uint64_t>> wait(std::optional<std::chrono::milliseconds> at_most);

 private:
  explicit Poller(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace atl::sys
