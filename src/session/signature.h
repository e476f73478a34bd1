// How servers that share a table know one another: each request between them is signed with a
// secret that only those have who may read the table.
//
//   X-Atoll-Node, X-Atoll-Team (percent-encoded), X-Atoll-Time (seconds of Unix)
//   X-Atoll-Signature: HMAC-SHA256 of method, target and those three, in hex
//
// A signature counts for a minute. It does not cover the body: the network between the servers has
// to be theirs alone.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "net/http.h"
#include "store/timestamp.h"

namespace atl::session {

struct Signed {
  std::string node;  // that sent it
  std::string team;  // that it speaks for; empty: for nobody
};

void sign(net::RequestHead& head, const Signed& by, std::string_view secret, Timestamp now);
// nullopt: not signed, or not by one who knows the secret, or too long ago. No secret: nobody is
// believed.
std::optional<Signed> verify(const net::RequestHead& head, std::string_view secret, Timestamp now);
// What nobody but a server may say.
void erase_signature(net::Headers& headers);

}  // namespace atl::session
