// What a connection speaks and for whom, from the first bytes that its client sends.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "net/stream.h"

namespace atl::egress {

struct FirstBytes {
  enum class Kind {
    tls,    // a whole, well-formed ClientHello
    http,   // a method and a space
    other,  // nothing in time, something else, or a ClientHello that is broken
  };
  Kind kind = Kind::other;
  std::optional<std::string> server_name;  // of a ClientHello
  std::string bytes;                       // all that was read
};

// An error is the connection's: it ended or broke.
net::Task<Result<FirstBytes>> read_first_bytes(net::Stream& stream,
                                               std::chrono::milliseconds limit);

}  // namespace atl::egress
