#include "engine/testing/http.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace atl::engine::testing {
namespace {

net::Task<Got> fetch_task(std::uint16_t port, net::RequestHead head, std::string body) {
  auto dial = net::connect_tcp("127.0.0.1", port);
  auto stream = co_await std::move(dial);
  if (!stream.ok()) co_return Got{};
  (*stream)->set_read_timeout(std::chrono::milliseconds(10'000));
  net::HttpClient client(std::move(*stream));
  auto request = client.request(std::move(head), std::move(body), 64 << 20);
  auto answer = co_await std::move(request);
  if (!answer.ok()) co_return Got{};
  co_return Got{answer->head.status, answer->head.headers, answer->body};
}

}  // namespace

Got fetch(Fixture& f, std::uint16_t port, std::string method, std::string target,
          net::Headers headers, std::string body) {
  net::RequestHead head;
  head.method = std::move(method);
  head.target = std::move(target);
  head.headers = std::move(headers);
  return f.run(fetch_task(port, std::move(head), std::move(body)));
}

RawClient::RawClient(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const timeval limit{10, 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
}

RawClient::~RawClient() { close(); }

void RawClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return;
    bytes.remove_prefix(std::size_t(n));
  }
}

bool RawClient::read_more() {
  char buffer[4096];
  const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
  if (n > 0) {
    seen_.append(buffer, std::size_t(n));
    return true;
  }
  ended_ = n == 0;
  reset_ = n < 0 && errno == ECONNRESET;
  return false;
}

std::string RawClient::read_until(std::string_view mark) {
  while (seen_.find(mark) == std::string::npos) {
    if (!read_more()) return std::exchange(seen_, {});
  }
  const std::size_t end = seen_.find(mark) + mark.size();
  std::string out = seen_.substr(0, end);
  seen_.erase(0, end);
  return out;
}

std::string RawClient::read_all() {
  while (read_more()) {
  }
  return std::exchange(seen_, {});
}

void RawClient::shutdown_write() { ::shutdown(fd_, SHUT_WR); }

void RawClient::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

}  // namespace atl::engine::testing
