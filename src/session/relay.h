// One exchange with another server of the cluster: the request as it is, the answer as it comes.
#pragma once

#include <functional>

#include "net/http.h"

namespace atl::session {

using Dial = std::function<net::Task<Result<net::HttpClient>>()>;

// `head` is what is sent; the body and an upgrade are the exchange's. Always answers or breaks the
// connection, but for an error of `dial`: nothing was answered then.
net::Task<Result<void>> relay(net::Exchange& exchange, net::RequestHead head, Dial dial);

}  // namespace atl::session
