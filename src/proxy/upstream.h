// Connections into sandboxes.
//
// The agent is reached directly; a service on any other port by a connection that the agent makes
// and hands over (service.h), with TLS on the ports that speak it. Connections that ended a request
// in order are kept for the next one. A stream belongs to the strand of the client that made it:
// the next request of the same client takes it as it is; for another client its descriptor moves to
// that one's strand. Each is counted at its route (Route::Inside) until its descriptor is closed:
// of a sandbox whose route is held or dead none is left.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "net/http.h"

namespace atl::proxy {

struct Upstream {
  engine::Route::Inside inside;  // first: it goes after the connection
  std::unique_ptr<net::HttpClient> client;
  bool reused = false;  // the other side may have closed it without our noticing
};

struct PoolLimits {
  std::size_t per_target = 64;
  std::size_t total = 4096;  // looked at once a second
  std::chrono::milliseconds idle_agent{60'000};
  std::chrono::milliseconds idle_service{4'000};
};

class Upstreams {
 public:
  Upstreams(engine::Engine& engine, PoolLimits limits);
  ~Upstreams();

  // A kept connection if there is one, else a new one.
  net::Task<Result<Upstream>> get(const std::shared_ptr<engine::Route>& route, std::uint16_t port);
  // not_found: nothing listens on the port. aborted: the route is held or dead. Other errors: the
  // agent cannot be reached.
  net::Task<Result<Upstream>> dial(const std::shared_ptr<engine::Route>& route, std::uint16_t port);
  // Keeps the connection if it can carry another request.
  void put(const std::shared_ptr<engine::Route>& route, std::uint16_t port, Upstream upstream);
  // Connections kept now; for tests and metrics.
  std::size_t idle() const;

 private:
  struct Pool;
  std::shared_ptr<Pool> pool_of(const std::shared_ptr<engine::Route>& route);

  engine::Engine& engine_;
  const PoolLimits limits_;
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace atl::proxy
