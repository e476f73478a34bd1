#include "proxy/service.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/this_coro.hpp>
#include <cstring>
#include <thread>

#include "engine/testing/fixture.h"

namespace atl::proxy {
namespace {

using Opened = Result<std::unique_ptr<net::Stream>>;

constexpr std::string_view kOk = "HTTP/1.1 200 OK\r\n\r\n";

void send_with(int socket, std::string_view text, const std::vector<int>& fds) {
  iovec bytes{const_cast<char*>(text.data()), text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size() * sizeof(int));
  }
  ASSERT_EQ(::sendmsg(socket, &message, MSG_NOSIGNAL), ssize_t(text.size()));
}

// Two ends of a TCP connection over loopback.
std::pair<int, int> tcp_pair() {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(::bind(listener, generic, length), 0);
  EXPECT_EQ(::listen(listener, 1), 0);
  EXPECT_EQ(::getsockname(listener, generic, &length), 0);
  const int client = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(::connect(client, generic, length), 0);
  const int server = ::accept(listener, nullptr, nullptr);
  ::close(listener);
  return {client, server};
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    (void)entry;
    ++count;
  }
  return count;
}

class ServiceTest : public ::testing::Test {
 protected:
  // The agent's side is a thread that answers as `agent` says.
  Opened connect(const std::function<void(int socket)>& agent) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    std::thread inside([&] {
      char request[512] = {};
      const ssize_t n = ::read(ends[1], request, sizeof request - 1);
      asked = std::string(request, std::size_t(std::max<ssize_t>(n, 0)));
      agent(ends[1]);
    });
    Opened result = f.run(dial(ends[0]));
    inside.join();
    kept_end = ends[1];
    return result;
  }
  ~ServiceTest() override {
    if (kept_end >= 0) ::close(kept_end);
  }
  static net::Task<Opened> dial(int fd) {
    net::Socket socket(co_await net::asio::this_coro::executor,
                       net::asio::generic::stream_protocol(AF_UNIX, 0), fd);
    auto connecting = connect_service(net::make_stream(std::move(socket)), 8000);
    co_return co_await std::move(connecting);
  }
  static net::Task<std::string> read_some(net::Stream& stream) {
    std::string text(64, '\0');
    auto reading = stream.read_some(text);
    auto n = co_await std::move(reading);
    co_return n.ok() ? text.substr(0, *n) : n.error().message;
  }

  engine::testing::Fixture f;
  std::string asked;
  int kept_end = -1;
};

TEST_F(ServiceTest, TheAgentHandsTheConnectionOver) {
  const auto [client, server] = tcp_pair();
  auto opened = connect([&](int socket) { send_with(socket, kOk, {client}); });
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_THAT(asked, ::testing::StartsWith("CONNECT 8000 HTTP/1.1\r\n"));
  ::close(client);
  ASSERT_EQ(::write(server, "hello", 5), 5);
  EXPECT_EQ(f.run(read_some(**opened)), "hello");
  ::close(server);
  EXPECT_EQ(f.run(read_some(**opened)), "") << "the end";
}

TEST_F(ServiceTest, WithoutADescriptorTheStreamIsTheTunnel) {
  auto opened = connect([](int socket) { send_with(socket, std::string(kOk) + "hello", {}); });
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ(f.run(read_some(**opened)), "hello") << "what follows the head stays in the stream";
}

TEST_F(ServiceTest, OtherDescriptorsAreRefusedAndClosed) {
  int pipe_ends[2];
  int local[2];
  ASSERT_EQ(::pipe2(pipe_ends, O_CLOEXEC), 0);
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, local), 0);
  const int udp = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const std::size_t before = open_descriptors();
  for (const int fd : {pipe_ends[0], local[0], udp}) {
    auto opened = connect([&](int socket) { send_with(socket, kOk, {fd}); });
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.error().code, Errc::internal);
    ::close(std::exchange(kept_end, -1));
    EXPECT_TRUE(engine::testing::Fixture::eventually([&] { return open_descriptors() <= before; }));
  }
  // More than one: the kernel keeps no second one for us.
  auto many = connect([&](int socket) { send_with(socket, kOk, {udp, pipe_ends[0], local[0]}); });
  EXPECT_FALSE(many.ok());
  ::close(std::exchange(kept_end, -1));
  EXPECT_TRUE(engine::testing::Fixture::eventually([&] { return open_descriptors() <= before; }));
  for (const int fd : {pipe_ends[0], pipe_ends[1], local[0], local[1], udp}) ::close(fd);
}

TEST_F(ServiceTest, RefusalsAndGarbage) {
  auto closed = connect([](int socket) {
    send_with(socket, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n", {});
  });
  ASSERT_FALSE(closed.ok());
  EXPECT_EQ(closed.error().code, Errc::not_found);
  ::close(std::exchange(kept_end, -1));
  auto garbage = connect([](int socket) { send_with(socket, "SSH-2.0-x---------\r\n\r\n", {}); });
  ASSERT_FALSE(garbage.ok());
  EXPECT_EQ(garbage.error().code, Errc::internal);
  ::close(std::exchange(kept_end, -1));
  auto endless = connect([](int socket) { send_with(socket, std::string(9000, 'x'), {}); });
  EXPECT_FALSE(endless.ok());
  ::close(std::exchange(kept_end, -1));
  auto silent = connect([](int socket) { ::shutdown(socket, SHUT_RDWR); });
  ASSERT_FALSE(silent.ok());
  EXPECT_EQ(silent.error().code, Errc::unavailable);
}

}  // namespace
}  // namespace atl::proxy
