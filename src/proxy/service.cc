#include "proxy/service.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

namespace atl::proxy {
namespace {

namespace asio = net::asio;

constexpr std::size_t kMaxAnswer = 4096;
constexpr std::size_t kShortestAnswer = 17;  // "HTTP/1.1 200 " and two line ends
constexpr std::string_view kEnd = "\r\n\r\n";
constexpr std::chrono::milliseconds kTime{10'000};

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// What the agent said so far, and what came with it.
struct Answer {
  std::string head;
  Fd descriptor;
};

int option_of(int fd, int name) {
  int value = -1;
  socklen_t length = sizeof value;
  return ::getsockopt(fd, SOL_SOCKET, name, &value, &length) == 0 ? value : -1;
}

// The agent is not trusted: anything but a TCP connection is refused.
bool is_tcp(int fd) {
  const int domain = option_of(fd, SO_DOMAIN);
  return (domain == AF_INET || domain == AF_INET6) && option_of(fd, SO_TYPE) == SOCK_STREAM &&
         option_of(fd, SO_PROTOCOL) == IPPROTO_TCP;
}

// Up to `count` bytes and at most one descriptor. 0: the agent hung up; -1 with errno.
ssize_t receive(int fd, std::span<char> bytes, Answer& answer) {
  iovec text{bytes.data(), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &text;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = CMSG_LEN(sizeof(int));  // room for one; the kernel drops more
  const ssize_t n = ::recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n < 0) return n;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS ||
        header->cmsg_len != CMSG_LEN(sizeof(int)))
      continue;
    int got = -1;
    std::memcpy(&got, CMSG_DATA(header), sizeof got);
    answer.descriptor = Fd(got);
  }
  answer.head.append(bytes.data(), std::size_t(n));
  return n;
}

// The same, never past the end of the head: what follows it in a tunnel is the service's.
ssize_t receive_head(int fd, Answer& answer) {
  char bytes[512];
  const ssize_t there = ::recv(fd, bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);
  if (there <= 0) return there;
  const std::string all = answer.head + std::string(bytes, std::size_t(there));
  const std::size_t end = all.find(kEnd, answer.head.size() < 3 ? 0 : answer.head.size() - 3);
  const std::size_t wanted =
      end == std::string::npos ? std::size_t(there) : end + kEnd.size() - answer.head.size();
  return receive(fd, std::span<char>(bytes, wanted), answer);
}

// Status of the answer once its head is whole. 0: not yet.
Result<int> status_of(std::string_view head) {
  if (!head.ends_with(kEnd)) return 0;
  if (!head.starts_with("HTTP/1.") || head.size() < kShortestAnswer)
    return make_error(Errc::internal, "the agent speaks no HTTP");
  int status = 0;
  for (const char c : head.substr(9, 3)) {
    if (c < '0' || c > '9') return make_error(Errc::internal, "the agent speaks no HTTP");
    status = status * 10 + (c - '0');
  }
  return status;
}

Result<net::Socket> adopt(Fd fd, const asio::any_io_executor& strand) {
  const int domain = option_of(fd.get(), SO_DOMAIN);
  net::Socket socket(strand);
  boost::system::error_code ec;
  socket.assign(asio::generic::stream_protocol(domain, 0), fd.get(), ec);
  if (ec) return net::to_error(ec, "connection to a service");
  fd.release();
  return socket;
}

net::Task<Result<int>> read_answer(net::Socket& socket, Answer& answer) {
  for (;;) {
    const ssize_t n = receive_head(socket.native_handle(), answer);
    if (n == 0) co_return make_error(Errc::unavailable, "the agent ended the connection");
    if (n > 0) {
      ATOLL_CO_TRY_ASSIGN(const int status, status_of(answer.head));
      if (status != 0) co_return status;
      if (answer.head.size() > kMaxAnswer)
        co_return make_error(Errc::internal, "the agent's answer is too long");
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) co_return errno_error("ask the agent");
    auto [ec] =
        co_await socket.async_wait(net::Socket::wait_read, asio::as_tuple(asio::use_awaitable));
    if (ec) co_return net::to_error(ec, "ask the agent");
  }
}

}  // namespace

net::Task<Result<std::unique_ptr<net::Stream>>> connect_service(std::unique_ptr<net::Stream> agent,
                                                                std::uint16_t port) {
  const auto strand = co_await asio::this_coro::executor;
  const std::string number = std::to_string(port);
  const std::string request = "CONNECT " + number + " HTTP/1.1\r\nHost: localhost:" + number +
                              "\r\nAtoll-Descriptor: 1\r\n\r\n";
  agent->set_write_timeout(kTime);
  auto asking = agent->write_all(request);
  ATOLL_CO_TRY(co_await std::move(asking));
  Fd plain(agent->release());
  agent.reset();
  if (plain.get() < 0) co_return make_error(Errc::internal, "the agent's connection cannot move");
  ATOLL_CO_TRY_ASSIGN(net::Socket opened, adopt(std::move(plain), strand));
  auto socket = std::make_shared<net::Socket>(std::move(opened));
  asio::steady_timer deadline(strand, kTime);
  deadline.async_wait([weak = std::weak_ptr<net::Socket>(socket)](boost::system::error_code ec) {
    auto waiting = weak.lock();
    boost::system::error_code ignored;
    if (!ec && waiting) waiting->cancel(ignored);
  });
  Answer answer;
  auto reading = read_answer(*socket, answer);
  ATOLL_CO_TRY_ASSIGN(const int status, co_await std::move(reading));
  deadline.cancel();
  if (status == 502) co_return make_error(Errc::not_found, "nothing listens on port " + number);
  if (status != 200) {
    co_return make_error(Errc::internal,
                         "the agent answered " + std::to_string(status) + " to CONNECT");
  }
  if (answer.descriptor.get() < 0) co_return net::make_stream(std::move(*socket));
  if (!is_tcp(answer.descriptor.get()))
    co_return make_error(Errc::internal, "the agent gave something else than a connection");
  ATOLL_CO_TRY_ASSIGN(net::Socket inside, adopt(std::move(answer.descriptor), strand));
  co_return net::make_stream(std::move(inside));
}

}  // namespace atl::proxy
