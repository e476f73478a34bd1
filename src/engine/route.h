// Routes: the running sandboxes as the proxy sees them. Thread-safe and apart from the engine's own
// lock, so that traffic never waits for a command.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/ids.h"

namespace atl::engine {

// When a sandbox was last used by traffic. All its runs share one.
class LastUse {
 public:
  void touch();
  // nullopt: never.
  std::optional<std::chrono::milliseconds> ago() const;

 private:
  std::atomic<std::int64_t> at_ = 0;  // of the steady clock, in ns; 0: never
};

struct RouteSpec {
  SandboxId id;
  std::string access_token;                  // empty: the agent asks for none
  std::optional<std::string> traffic_token;  // set: ports other than the agent's need it
  std::string mask_request_host;             // empty: the client's Host goes through
  std::uint32_t max_connections = 0;         // 0: no limit
  std::vector<std::uint16_t> https_ports;    // services on these speak TLS
  std::shared_ptr<LastUse> last_use;         // null: nobody wants to know
};

// `httpsPorts` of a network object; empty if there are none.
std::vector<std::uint16_t> https_ports_of(std::string_view network);

// One run of one sandbox, frozen spells that traffic ends included. Dead for ever once it is dead:
// a sandbox that boots again, or comes back from files, gets a new route.
//
// Held: memory that goes to files must have no connection to the outside, but clients of a sandbox
// that traffic wakes must not see theirs break (they would ask for its health, which wakes it). So
// the proxy ends its connections into the sandbox and leaves those of clients standing until the
// route dies. A route that was held is never used again.
class Route {
 public:
  explicit Route(RouteSpec spec) : spec_(std::move(spec)) {}
  const RouteSpec& spec() const { return spec_; }
  const SandboxId& id() const { return spec_.id; }
  bool dead() const { return dead_.load(); }
  bool held() const { return held_.load(); }

  // A connection into the sandbox, being made or open. Counted while it lives.
  class Inside {
   public:
    Inside() = default;
    Inside(Inside&& other) noexcept : route_(std::move(other.route_)) {}
    Inside& operator=(Inside&& other) noexcept;
    ~Inside() { leave(); }
    explicit operator bool() const { return route_ != nullptr; }

   private:
    friend class Route;
    void leave();
    std::shared_ptr<Route> route_;
  };
  // Taken before dialling, kept as long as the connection. Empty: the route is held or dead, no
  // connection may be made over it; of one that is held, `Engine::wake` gives the next route.
  static Inside go_inside(const std::shared_ptr<Route>& route);
  std::uint32_t inside() const { return inside_.load(); }

  // Ends the subscription when destroyed. The callback may still run once, on another thread, while
  // or shortly after that.
  class Subscription {
   public:
    Subscription() = default;
    Subscription(Subscription&& other) noexcept
        : route_(std::move(other.route_)), key_(other.key_) {}
    Subscription& operator=(Subscription&& other) noexcept;
    ~Subscription() { drop(); }

   private:
    friend class Route;
    void drop();
    std::shared_ptr<Route> route_;
    std::uint64_t key_ = 0;
  };
  // `on_death` runs once, on any thread, when the connections of the sandbox must end; at once if
  // it is dead already. It must be short, must not throw and must hold what it touches by weak_ptr.
  // `on_hold` likewise, at most once and never after `on_death`: connections into the sandbox must
  // end, clients' stand still.
  static Subscription subscribe(const std::shared_ptr<Route>& route, std::function<void()> on_death,
                                std::function<void()> on_hold = {});
  void hold();
  // Dead from now on, but connections may still carry what the sandbox has said: what is being
  // killed ends them by itself. `die` follows.
  void condemn() { dead_.store(true); }
  void die();

  // Connections that are open now.
  std::uint32_t connections() const { return connections_.load(std::memory_order_relaxed); }
  // Counts a connection against the limit. False: too many.
  bool enter();
  void leave();

 private:
  struct Callbacks {
    std::function<void()> on_death;
    std::function<void()> on_hold;
  };
  const RouteSpec spec_;
  std::atomic<bool> dead_ = false;
  std::atomic<bool> held_ = false;
  std::atomic<std::uint32_t> connections_ = 0;
  std::atomic<std::uint32_t> inside_ = 0;
  std::mutex mutex_;  // guards the two below
  std::uint64_t next_key_ = 1;
  std::unordered_map<std::uint64_t, Callbacks> callbacks_;
};

class RouteTable {
 public:
  void add(std::shared_ptr<Route> route);
  void remove(const SandboxId& id);
  std::shared_ptr<Route> find(const SandboxId& id) const;
  std::shared_ptr<Route> find_by_access_token(std::string_view token) const;

 private:
  mutable std::shared_mutex mutex_;
  std::unordered_map<SandboxId, std::shared_ptr<Route>> by_id_;
  std::unordered_map<std::string, SandboxId>
      by_token_hash_;  // hashed, so that lookup time tells nothing of a token
};

}  // namespace atl::engine
