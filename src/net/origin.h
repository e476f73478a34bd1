// Origin: what a browser says about the page that makes a request. A page of another site whose
// name leads to this machine (DNS rebinding) must not reach the server.
#pragma once

#include <string_view>

namespace atl::net {

// `origin` as in the header; empty: no browser. `domain` is the server's own; may be empty.
bool is_allowed_origin(std::string_view origin, std::string_view domain);

}  // namespace atl::net
