// One exchange between a client and a sandbox, and the tunnel that an upgrade makes of it.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/route.h"
#include "net/http.h"
#include "proxy/headers.h"
#include "proxy/upstream.h"

namespace atl::proxy {

// Everything of one exchange that the death of the sandbox must reach. Lives on the client's
// strand; others post to it.
struct Flow {
  explicit Flow(std::shared_ptr<engine::Route> r) : route(std::move(r)) {}

  const std::shared_ptr<engine::Route> route;
  net::Exchange* exchange = nullptr;    // null: the exchange is over
  net::HttpClient* upstream = nullptr;  // null: none at the moment
  bool killed = false;                  // the sandbox died
  bool client_gone = false;
  bool bad_body = false;  // the client broke HTTP's framing
  bool settled = false;   // the answer is through: the uplink is being stopped, not left

  // True from the moment the sandbox stops being routed, before on_death has had its turn on the
  // strand: an end of the sandbox's stream seen after that is no orderly one.
  bool died() const { return killed || route->dead(); }
  // Both sides end at once; what waits on them fails.
  void on_death();
  void on_client_gone();
};

// Carries the request and its answer. Always answers or breaks the connection.
net::Task<void> forward(net::Exchange& exchange, std::shared_ptr<engine::Route> route,
                        std::uint16_t port, Upstreams& upstreams);

// Bytes both ways until both sides have finished. `head` is the 101 of the sandbox.
net::Task<void> run_tunnel(std::shared_ptr<Flow> flow, net::ResponseHead head);

// Sends the refusal for a sandbox that died, or for a port that does not answer.
net::Task<void> refuse_unreachable(net::Exchange& exchange, const engine::Route& route,
                                   std::uint16_t port);

}  // namespace atl::proxy
