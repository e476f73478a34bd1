#include "engine/expiry.h"

namespace atl::engine {

void ExpiryQueue::set(const SandboxId& id, Timestamp when) {
  remove(id);
  when_.emplace(id, when);
  order_.emplace(when, id);
}

void ExpiryQueue::remove(const SandboxId& id) {
  const auto found = when_.find(id);
  if (found == when_.end()) return;
  order_.erase({found->second, id});
  when_.erase(found);
}

std::vector<SandboxId> ExpiryQueue::pop_due(Timestamp now) {
  std::vector<SandboxId> due;
  while (!order_.empty() && order_.begin()->first <= now) {
    due.push_back(order_.begin()->second);
    when_.erase(due.back());
    order_.erase(order_.begin());
  }
  return due;
}

std::optional<Timestamp> ExpiryQueue::next() const {
  if (order_.empty()) return std::nullopt;
  return order_.begin()->first;
}

}  // namespace atl::engine
