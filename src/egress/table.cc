#include "egress/table.h"

#include <mutex>

namespace atl::egress {

void Table::set(Ipv4 address, SandboxId sandbox, Policy policy) {
  auto entry = std::make_shared<const Entry>(Entry{std::move(sandbox), std::move(policy)});
  std::unique_lock lock(mutex_);
  entries_[address.value] = std::move(entry);
}

void Table::remove(Ipv4 address, const SandboxId& sandbox) {
  std::unique_lock lock(mutex_);
  const auto found = entries_.find(address.value);
  if (found != entries_.end() && found->second->sandbox == sandbox) entries_.erase(found);
}

std::shared_ptr<const Entry> Table::find(Ipv4 address) const {
  std::shared_lock lock(mutex_);
  const auto found = entries_.find(address.value);
  return found == entries_.end() ? nullptr : found->second;
}

}  // namespace atl::egress
