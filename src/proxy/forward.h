// One exchange between a client and a sandbox, and the tunnel that an upgrade makes of it.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <memory>

#include "engine/route.h"
#include "net/http.h"
#include "proxy/headers.h"
#include "proxy/upstream.h"

namespace atl::proxy {

// Everything of one exchange that the death of the sandbox must reach. Lives on the client's
// strand; others post to it.
//
// A route that is held (engine/route.h) ends the connection to the sandbox and nothing else: the
// exchange stands still until the route dies or the client goes away.
struct Flow {
  Flow(std::shared_ptr<engine::Route> r, const net::asio::any_io_executor& strand)
      : route(std::move(r)), released(strand, net::asio::steady_timer::time_point::max()) {}

  const std::shared_ptr<engine::Route> route;
  net::Exchange* exchange = nullptr;    // null: the exchange is over
  net::HttpClient* upstream = nullptr;  // null: none at the moment
  engine::Route::Inside inside;         // of `upstream`, while that is open
  bool killed = false;                  // the sandbox died
  bool client_gone = false;
  bool bad_body = false;             // the client broke HTTP's framing
  bool settled = false;              // the answer is through: the uplink is being stopped, not left
  net::asio::steady_timer released;  // cancelled: there is nothing to stand still for any more

  // True from the moment the sandbox stops being routed, before on_death has had its turn on the
  // strand: an end of the sandbox's stream seen after that is no orderly one.
  bool died() const { return killed || route->dead(); }
  // Whether what ended on the sandbox's side is to be kept from the client.
  bool stands() const { return route->held() && !died() && !client_gone; }
  // Until it no longer does. Somebody has to watch the client meanwhile.
  net::Task<void> stand_still();
  // Both sides end at once; what waits on them fails.
  void on_death();
  // The side of the sandbox ends.
  void on_hold();
  void on_client_gone();

 private:
  void close_upstream();
};

// The next run of a sandbox whose route cannot be used any more.
using Wake = std::function<net::Task<Result<std::shared_ptr<engine::Route>>>()>;

// Carries the request and its answer. Always answers or breaks the connection, but for an error of
// `wake`, which is asked when the route is held or dead before the request was sent: nothing was
// answered then.
net::Task<Result<void>> forward(net::Exchange& exchange, std::shared_ptr<engine::Route> route,
                                std::uint16_t port, Upstreams& upstreams, Wake wake);

// Bytes both ways until both sides have finished. `head` is the 101 of the sandbox.
net::Task<void> run_tunnel(std::shared_ptr<Flow> flow, net::ResponseHead head);

// Sends the refusal for a sandbox that died, or for a port that does not answer.
net::Task<void> refuse_unreachable(net::Exchange& exchange, const engine::Route& route,
                                   std::uint16_t port);

}  // namespace atl::proxy
