// The first message of a TLS connection (RFC 8446 §4.1.2), read without answering it: which name
// does the client ask for? The bytes are a sandbox's: hostile.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace atl::egress {

inline constexpr std::size_t kMaxClientHello = 32 * 1024;

struct ClientHello {
  // Lower case, without its last dot. nullopt: no name was sent.
  std::optional<std::string> server_name;
};

// From the first bytes of a connection, which may be cut into records and segments anywhere.
// nullopt: more bytes are needed. invalid_argument: not a well-formed ClientHello within the limit,
// or a name that is none (an address, two names).
Result<std::optional<ClientHello>> parse_client_hello(std::string_view bytes);

}  // namespace atl::egress
