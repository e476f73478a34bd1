#include "cli/sockets.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <charconv>
#include <cstring>

#include "base/log.h"
#include "cli/up.h"

namespace atl::cli {
namespace {

constexpr int kBacklog = 4096;

struct Endpoint {
  sockaddr_storage address{};
  socklen_t size = 0;
};

Result<Endpoint> endpoint_of(const std::string& text) {
  ATOLL_TRY_ASSIGN(const HostPort parts, split_address(text));
  Endpoint out;
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  if (::inet_pton(AF_INET, parts.host.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(parts.port);
    std::memcpy(&out.address, &v4, sizeof v4);
    out.size = sizeof v4;
    return out;
  }
  if (::inet_pton(AF_INET6, parts.host.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(parts.port);
    std::memcpy(&out.address, &v6, sizeof v6);
    out.size = sizeof v6;
    return out;
  }
  return make_error(Errc::invalid_argument, "not an IP address: " + parts.host);
}

Result<std::string> local_address(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return errno_error("ask a socket for its address");
  char host[INET6_ADDRSTRLEN] = {};
  if (address.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address);
    ::inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host);
    return std::string(host) + ":" + std::to_string(ntohs(v4->sin_port));
  }
  if (address.ss_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address);
    ::inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host);
    return "[" + std::string(host) + "]:" + std::to_string(ntohs(v6->sin6_port));
  }
  return make_error(Errc::invalid_argument, "not a socket of the internet");
}

}  // namespace

Result<HostPort> split_address(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  HostPort out;
  if (colon != std::string::npos) {
    out.host = address.substr(0, colon);
    if (out.host.size() > 2 && out.host.front() == '[' && out.host.back() == ']')
      out.host = out.host.substr(1, out.host.size() - 2);
    const char* end = address.data() + address.size();
    const auto [stop, error] = std::from_chars(address.data() + colon + 1, end, out.port);
    if (error == std::errc() && stop == end && !out.host.empty()) return out;
  }
  return make_error(Errc::invalid_argument,
                    "not an address and a port: '" + address + "' (127.0.0.1:3000, [::1]:0)");
}

std::string reachable(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  const std::string host = address.substr(0, colon);
  if (host == "0.0.0.0") return "127.0.0.1" + address.substr(colon);
  if (host == "[::]") return "[::1]" + address.substr(colon);
  return address;
}

Result<Listening> listen_on(const std::string& address) {
  ATOLL_TRY_ASSIGN(const Endpoint endpoint, endpoint_of(address));
  sys::UniqueFd fd(::socket(endpoint.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
                            IPPROTO_TCP));
  if (!fd) return errno_error("socket");
  const int on = 1;
  if (::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0)
    return errno_error("SO_REUSEADDR");
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&endpoint.address), endpoint.size) != 0 ||
      ::listen(fd.get(), kBacklog) != 0) {
    const int why = errno;
    Error error = errno_error("listen on " + address, why);
    if (why == EADDRINUSE) error.message += ". FIX: stop what uses it, or choose another address";
    return error;
  }
  return adopt_listening(fd.release());
}

Result<Listening> adopt_listening(int number) {
  Listening out;
  out.fd = sys::UniqueFd(number);
  int listening = 0;
  socklen_t size = sizeof listening;
  if (::getsockopt(number, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0)
    return errno_error("look at descriptor " + std::to_string(number));
  if (listening == 0)
    return make_error(Errc::invalid_argument,
                      "descriptor " + std::to_string(number) + " is not a listening socket");
  if (::fcntl(number, F_SETFD, FD_CLOEXEC) != 0) return errno_error("close-on-exec");
  ATOLL_TRY_ASSIGN(out.address, local_address(number));
  return out;
}

Result<Sockets> open_sockets(const ServeOptions& options) {
  Sockets out;
  ATOLL_TRY_ASSIGN(out.main, listen_on(options.listen));
  if (!options.domain.empty()) {
    ATOLL_TRY_ASSIGN(Listening tls, listen_on(options.tls_listen));
    out.tls.emplace(std::move(tls));
  }
  if (!options.executor.listen.empty()) {
    ATOLL_TRY_ASSIGN(Listening executor, listen_on(options.executor.listen));
    out.executor.emplace(std::move(executor));
  }
  if (options.metrics_listen == "off") return out;
  if (!options.metrics_listen.empty()) {
    ATOLL_TRY_ASSIGN(Listening metrics, listen_on(options.metrics_listen));
    out.metrics.emplace(std::move(metrics));
    return out;
  }
  // A server on a free port is one of several on this machine: the usual port is not for it.
  ATOLL_TRY_ASSIGN(const HostPort asked, split_address(options.listen));
  if (asked.port == 0) return out;
  auto metrics = listen_on(std::string(kMetricsAddress));
  if (metrics.ok()) {
    out.metrics.emplace(std::move(*metrics));
  } else {
    log::warn("no metrics: their port is taken; --metrics-listen chooses another",
              {{"address", kMetricsAddress}});
  }
  return out;
}

}  // namespace atl::cli
