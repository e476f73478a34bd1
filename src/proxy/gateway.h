// The one handler of a port that serves both the control plane and sandbox traffic.
#pragma once

#include "api_server/api_server.h"
#include "net/http_server.h"
#include "proxy/proxy.h"

namespace atl::proxy {

// Both outlive the handler.
net::Handler make_gateway_handler(api::ApiServer& api, Proxy& proxy);

}  // namespace atl::proxy
