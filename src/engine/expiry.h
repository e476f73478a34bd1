// ExpiryQueue: which sandbox ends next. Pure data over given instants; the engine owns it, its
// clock and its timer.
#pragma once

#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "store/timestamp.h"

namespace atl::engine {

class ExpiryQueue {
 public:
  // Sets or moves the end of one sandbox.
  void set(const SandboxId& id, Timestamp when);
  void remove(const SandboxId& id);
  // Takes out all whose end is not after `now`, earliest first.
  std::vector<SandboxId> pop_due(Timestamp now);
  std::optional<Timestamp> next() const;
  std::size_t size() const { return when_.size(); }

 private:
  std::set<std::pair<Timestamp, SandboxId>> order_;
  std::unordered_map<SandboxId, Timestamp> when_;
};

}  // namespace atl::engine
