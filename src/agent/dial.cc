#include "agent/dial.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/steady_timer.hpp>
#include <charconv>

#include "agent/http_glue.h"

namespace atl::agent {
namespace {

constexpr std::size_t kBuffer = 64 * 1024;
constexpr std::chrono::seconds kHangUpCheck{5};

// One direction, to the end of `from`; passes the end on. When either side fails, both are closed
// and the other direction ends too.
net::Task<void> carry(net::Stream& from, net::Stream& to) {
  const auto buffer = std::make_unique<char[]>(kBuffer);
  for (;;) {
    auto read = from.read_some(std::span<char>(buffer.get(), kBuffer));
    const auto n = co_await std::move(read);
    if (n.ok() && *n == 0) {
      to.shutdown_write();
      co_return;
    }
    bool broken = !n.ok();
    if (!broken) {
      auto write = to.write_all(std::string_view(buffer.get(), *n));
      broken = !(co_await std::move(write)).ok();
    }
    if (broken) {
      from.close();
      to.close();
      co_return;
    }
  }
}

// A peer that finished sending may still listen, so the end of its bytes does not end the tunnel.
// When it has closed its socket altogether, nobody is left to carry bytes for, even if the service
// inside never says a word again.
net::Task<void> until_hung_up(net::Stream& outside) {
  net::asio::steady_timer timer(outside.executor());
  for (;;) {
    timer.expires_after(kHangUpCheck);
    co_await timer.async_wait(net::asio::use_awaitable);
    pollfd peer{outside.native_handle(), 0, 0};
    if (peer.fd < 0 || (::poll(&peer, 1, 0) > 0 && (peer.revents & (POLLHUP | POLLERR)))) co_return;
  }
}

net::Task<Result<std::unique_ptr<net::Stream>>> connect_inside(std::uint16_t port) {
  auto first = net::connect_tcp("127.0.0.1", port);
  auto v4 = co_await std::move(first);
  if (v4.ok()) co_return v4;
  auto second = net::connect_tcp("::1", port);
  auto v6 = co_await std::move(second);
  if (v6.ok()) co_return v6;
  co_return v4;  // the more telling error
}

constexpr std::string_view kOpened = "HTTP/1.1 200 OK\r\n\r\n";

// The answer with the connection itself beside it: from then on its bytes need nobody to carry
// them. False: it could not be sent.
bool send_descriptor(int outside, int inside) {
  iovec text{const_cast<char*>(kOpened.data()), kOpened.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &text;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &inside, sizeof inside);
  return ::sendmsg(outside, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == ssize_t(kOpened.size());
}

bool is_unix(int fd) {
  int domain = 0;
  socklen_t length = sizeof domain;
  return ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_UNIX;
}

}  // namespace

std::optional<std::uint16_t> parse_dial_target(std::string_view target) {
  const std::string_view text = target.substr(target.rfind(':') + 1);
  std::uint16_t port = 0;
  const auto [stop, ec] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (ec != std::errc() || stop != text.data() + text.size() || port == 0) return std::nullopt;
  return port;
}

net::Task<void> handle_dial(net::Exchange& exchange) {
  using namespace net::asio::experimental::awaitable_operators;
  const auto port = parse_dial_target(exchange.request.target);
  if (!port) {
    co_await send_plain_error(exchange, 400,
                              "CONNECT needs a port: " + exchange.request.target.substr(0, 100));
    co_return;
  }
  auto connecting = connect_inside(*port);
  auto inside = co_await std::move(connecting);
  if (!inside.ok()) {
    co_await send_plain_error(exchange, 502, "nothing listens on port " + std::to_string(*port));
    co_return;
  }
  net::Stream& outside = exchange.stream;
  const std::string early = exchange.take_over();
  if (early.empty() && exchange.request.headers.has("Atoll-Descriptor") &&
      is_unix(outside.native_handle())) {
    // Released, not closed by its stream: a closed descriptor whose connection lives on would stay
    // in epoll.
    const int given = (*inside)->release();
    (void)send_descriptor(outside.native_handle(), given);  // else the host sees the end
    ::close(given);
    co_return;
  }
  auto answer = outside.write_all(kOpened);
  if (!(co_await std::move(answer)).ok()) co_return;
  if (!early.empty()) {
    auto first = (*inside)->write_all(early);
    if (!(co_await std::move(first)).ok()) co_return;
  }
  outside.set_read_timeout(std::nullopt);
  outside.set_write_timeout(std::nullopt);
  co_await ((carry(outside, **inside) && carry(**inside, outside)) || until_hung_up(outside));
}

}  // namespace atl::agent
