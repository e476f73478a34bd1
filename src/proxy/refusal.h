// What a client is told when its request cannot be carried to a sandbox: exact bodies that SDKs
// compare, as JSON or, for a browser that navigates, as a page.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "net/http.h"

namespace atl::proxy {

struct Refusal {
  int status = 502;
  std::string json;   // the body
  std::string title;  // of the page
  std::string text;
};

Refusal reserved_route(std::string_view path);
Refusal sandbox_not_found(std::string_view id);
// Of a paused sandbox that traffic would wake.
Refusal resume_denied(std::string_view id);
Refusal still_transitioning(std::string_view id);
Refusal resume_refused(std::string_view id, std::string_view reason);
Refusal traffic_token_missing(std::string_view id);
Refusal traffic_token_wrong(std::string_view id);
Refusal too_many_connections(std::string_view id, std::uint32_t limit);
Refusal port_not_open(std::string_view id, std::uint16_t port);

// A browser that navigates, as opposed to a program or a script on a page.
bool wants_page(const net::RequestHead& request);

struct Rendered {
  net::Headers headers;
  std::string body;
};
Rendered render(const Refusal& refusal, const net::RequestHead& request);

}  // namespace atl::proxy
