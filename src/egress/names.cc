#include "egress/names.h"

#include <algorithm>

namespace atl::egress {

void Names::remember(const SandboxId& sandbox, Ipv4 peer, std::string_view name, Ipv4 address,
                     std::chrono::seconds ttl, Clock::time_point now) {
  const auto end =
      now + std::clamp<std::chrono::seconds>(ttl, std::chrono::seconds(0), kMaxTtl) + kGrace;
  auto pair = std::make_pair(std::string(name), address.value);
  std::lock_guard lock(mutex_);
  Known& known = sandboxes_[sandbox];
  known.peer = peer;
  const auto drop = [&](auto entry) {
    const auto [first, last] = known.by_end.equal_range(entry->second);
    const auto found =
        std::find_if(first, last, [&](const auto& item) { return item.second == entry->first; });
    known.by_end.erase(found);
    known.until.erase(entry);
  };
  if (const auto old = known.until.find(pair); old != known.until.end()) {
    if (old->second >= end) return;
    drop(old);
  }
  while (!known.by_end.empty() &&
         (known.until.size() >= most_ || known.by_end.begin()->first <= now)) {
    drop(known.until.find(known.by_end.begin()->second));
  }
  known.by_end.emplace(end, pair);
  known.until.emplace(std::move(pair), end);
}

bool Names::gave(const SandboxId& sandbox, std::string_view name, Ipv4 address,
                 Clock::time_point now) const {
  std::lock_guard lock(mutex_);
  const auto known = sandboxes_.find(sandbox);
  if (known == sandboxes_.end()) return false;
  const auto found = known->second.until.find({std::string(name), address.value});
  return found != known->second.until.end() && found->second > now;
}

void Names::forget_if(const std::function<bool(const SandboxId&, Ipv4 peer)>& gone) {
  std::lock_guard lock(mutex_);
  std::erase_if(sandboxes_, [&](const auto& item) { return gone(item.first, item.second.peer); });
}

std::size_t Names::size(const SandboxId& sandbox) const {
  std::lock_guard lock(mutex_);
  const auto known = sandboxes_.find(sandbox);
  return known == sandboxes_.end() ? 0 : known->second.until.size();
}

}  // namespace atl::egress
