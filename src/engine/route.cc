#include "engine/route.h"

#include <utility>

#include "base/json.h"
#include "store/crypto.h"

namespace atl::engine {

std::vector<std::uint16_t> https_ports_of(std::string_view network) {
  std::vector<std::uint16_t> ports;
  const auto document = parse_json(network);
  if (!document.ok() || !document->is_object()) return ports;
  const json::value* list = document->get_object().if_contains("httpsPorts");
  if (list == nullptr || !list->is_array()) return ports;
  for (const json::value& port : list->get_array()) {
    if (port.is_int64() && port.get_int64() > 0 && port.get_int64() <= 65535)
      ports.push_back(std::uint16_t(port.get_int64()));
  }
  return ports;
}

Route::Subscription& Route::Subscription::operator=(Subscription&& other) noexcept {
  if (this != &other) {
    drop();
    route_ = std::move(other.route_);
    key_ = other.key_;
  }
  return *this;
}

void Route::Subscription::drop() {
  if (auto route = std::exchange(route_, nullptr)) {
    std::lock_guard lock(route->mutex_);
    route->callbacks_.erase(key_);
  }
}

Route::Inside& Route::Inside::operator=(Inside&& other) noexcept {
  if (this != &other) {
    leave();
    route_ = std::move(other.route_);
  }
  return *this;
}

void Route::Inside::leave() {
  if (auto route = std::exchange(route_, nullptr)) route->inside_.fetch_sub(1);
}

// Counted first, looked at second: whoever holds the route and then sees nobody inside knows that
// nobody comes any more.
Route::Inside Route::go_inside(const std::shared_ptr<Route>& route) {
  Inside inside;
  inside.route_ = route;
  route->inside_.fetch_add(1);
  if (route->held() || route->dead()) inside.leave();
  return inside;
}

Route::Subscription Route::subscribe(const std::shared_ptr<Route>& route,
                                     std::function<void()> on_death,
                                     std::function<void()> on_hold) {
  Subscription subscription;
  bool dead = false;
  bool held = false;
  {
    std::lock_guard lock(route->mutex_);
    dead = route->dead();
    held = route->held();
    if (!dead) {
      subscription.route_ = route;
      subscription.key_ = route->next_key_++;
      route->callbacks_.emplace(
          subscription.key_,
          Callbacks{std::move(on_death), held ? std::function<void()>() : on_hold});
    }
  }
  if (dead) {
    on_death();
  } else if (held && on_hold) {
    on_hold();
  }
  return subscription;
}

void Route::hold() {
  std::vector<std::function<void()>> callbacks;
  {
    std::lock_guard lock(mutex_);
    if (held_.exchange(true) || dead()) return;
    for (auto& [key, callback] : callbacks_) {
      if (auto tell = std::exchange(callback.on_hold, nullptr)) callbacks.push_back(tell);
    }
  }
  for (auto& callback : callbacks) callback();
}

void Route::die() {
  std::unordered_map<std::uint64_t, Callbacks> callbacks;
  {
    std::lock_guard lock(mutex_);
    dead_.store(true);
    callbacks.swap(callbacks_);
  }
  for (auto& [key, callback] : callbacks) callback.on_death();
}

void LastUse::touch() {
  at_.store(std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count(),
            std::memory_order_relaxed);
}

std::optional<std::chrono::milliseconds> LastUse::ago() const {
  const std::int64_t at = at_.load(std::memory_order_relaxed);
  if (at == 0) return std::nullopt;
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(since -
                                                               std::chrono::nanoseconds(at));
}

void Route::leave() {
  connections_.fetch_sub(1, std::memory_order_relaxed);
  if (spec_.last_use) spec_.last_use->touch();
}

bool Route::enter() {
  if (spec_.last_use) spec_.last_use->touch();
  const std::uint32_t before = connections_.fetch_add(1, std::memory_order_relaxed);
  if (spec_.max_connections == 0 || before < spec_.max_connections) return true;
  leave();
  return false;
}

void RouteTable::add(std::shared_ptr<Route> route) {
  std::unique_lock lock(mutex_);
  if (const std::string& token = route->spec().access_token; !token.empty()) {
    by_token_hash_.insert_or_assign(sha256_hex(token), route->id());
  }
  by_id_.insert_or_assign(route->id(), std::move(route));
}

void RouteTable::remove(const SandboxId& id) {
  std::unique_lock lock(mutex_);
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return;
  if (const std::string& token = found->second->spec().access_token; !token.empty()) {
    by_token_hash_.erase(sha256_hex(token));
  }
  by_id_.erase(found);
}

std::shared_ptr<Route> RouteTable::find(const SandboxId& id) const {
  std::shared_lock lock(mutex_);
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

std::shared_ptr<Route> RouteTable::find_by_access_token(std::string_view token) const {
  if (token.empty() || token.size() > 256) return nullptr;
  const std::string hash = sha256_hex(token);
  std::shared_lock lock(mutex_);
  const auto found = by_token_hash_.find(hash);
  if (found == by_token_hash_.end()) return nullptr;
  const auto route = by_id_.find(found->second);
  return route == by_id_.end() ? nullptr : route->second;
}

}  // namespace atl::engine
