// Which host an HTTP request is for, when a filter must be as sure of it as the server behind it.
#pragma once

#include <optional>
#include <string>

#include "net/http.h"

namespace atl::egress {

// Lower case. nullopt: the request names none (HTTP/1.0) or an IP address. invalid_argument:
// several Host fields, a target for another host than Host, a port other than `port`, CONNECT,
// anything that two readers could take in two ways. A target in absolute form becomes one in origin
// form.
Result<std::optional<std::string>> take_request_name(net::RequestHead& head, std::uint16_t port);

}  // namespace atl::egress
