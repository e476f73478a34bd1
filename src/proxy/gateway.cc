#include "proxy/gateway.h"

namespace atl::proxy {
namespace {

net::Task<void> serve(api::ApiServer& api, Proxy& proxy, net::Exchange& exchange) {
  auto carrying = proxy.handle(exchange);
  if (co_await std::move(carrying)) co_return;
  auto answering = api.handle(exchange);
  co_await std::move(answering);
}

}  // namespace

net::Handler make_gateway_handler(api::ApiServer& api, Proxy& proxy) {
  return [&api, &proxy](net::Exchange& exchange) { return serve(api, proxy, exchange); };
}

}  // namespace atl::proxy
