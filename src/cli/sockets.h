// The listening sockets of a server: made once, as root, by the supervisor (or by a lone `atoll
// serve`), and handed to every server process that follows, so that clients wait in the kernel's
// queue while one is replaced by the next.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "sys/fd.h"

namespace atl::cli {

struct Listening {
  sys::UniqueFd fd;
  std::string address;  // "127.0.0.1:3000", the port as bound
};

// "127.0.0.1:3000", "[::1]:0". IPv4 and IPv6 literals only.
Result<Listening> listen_on(const std::string& address);
// A socket that somebody else made.
Result<Listening> adopt_listening(int fd);

// "127.0.0.1:80" and "[::1]:80" as host and port; invalid_argument with the text otherwise.
struct HostPort {
  std::string host;  // without brackets
  std::uint16_t port = 0;
};
Result<HostPort> split_address(const std::string& address);
// An address to connect to: the wildcard becomes loopback.
std::string reachable(const std::string& address);

struct Sockets {
  Listening main;
  std::optional<Listening> tls;
  std::optional<Listening> metrics;
  std::optional<Listening> executor;
};

struct ServeOptions;
// As the options say; metrics that nobody asked for are left out, with a warning, when their port
// is taken.
Result<Sockets> open_sockets(const ServeOptions& options);

}  // namespace atl::cli
