// For the tests of this folder: an io context on threads, sockets on loopback, a DNS server that
// says what the test wants, a plain TCP server.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/ipv4.h"
#include "sys/fd.h"

namespace atl::egress::testing {

class Io {
 public:
  Io() : work_(context.get_executor()) {
    for (int i = 0; i < 2; ++i) threads_.emplace_back([this] { context.run(); });
  }
  ~Io() {
    context.stop();
    for (std::thread& thread : threads_) thread.join();
  }
  boost::asio::io_context context;

 private:
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  std::vector<std::thread> threads_;
};

inline sockaddr_in at(const std::string& ip, std::uint16_t port) {
  sockaddr_in out{};
  out.sin_family = AF_INET;
  out.sin_port = htons(port);
  ::inet_pton(AF_INET, ip.c_str(), &out.sin_addr);
  return out;
}

inline std::uint16_t port_of(int fd) {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.sin_port);
}

// A bound socket; a TCP one listens.
inline int bound(int kind, const std::string& ip = "127.0.0.1", std::uint16_t port = 0) {
  const int fd = ::socket(AF_INET, kind | SOCK_CLOEXEC, 0);
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const sockaddr_in address = at(ip, port);
  EXPECT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  if (kind == SOCK_STREAM) EXPECT_EQ(::listen(fd, 64), 0);
  return fd;
}

// A connection from one loopback address (the "sandbox") to another.
inline sys::UniqueFd connected(int kind, const std::string& from, const std::string& to,
                               std::uint16_t port) {
  sys::UniqueFd fd(::socket(AF_INET, kind | SOCK_CLOEXEC, 0));
  const sockaddr_in source = at(from, 0);
  const sockaddr_in target = at(to, port);
  EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&source), sizeof source), 0);
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&target), sizeof target), 0);
  timeval limit{10, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  return fd;
}

inline bool send_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(std::size_t(n));
  }
  return true;
}

// One datagram, or what one read gives; empty after `limit`, at the end or on an error.
inline std::string receive(int fd, int limit_ms = 10'000) {
  pollfd state{fd, POLLIN, 0};
  if (::poll(&state, 1, limit_ms) <= 0) return {};
  std::string out(70'000, '\0');
  const ssize_t n = ::recv(fd, out.data(), out.size(), 0);
  out.resize(n > 0 ? std::size_t(n) : 0);
  return out;
}

// Reads until `until` is there or nothing more comes.
inline std::string receive_until(int fd, std::string_view until, int limit_ms = 10'000) {
  std::string out;
  while (out.find(until) == std::string::npos) {
    const std::string more = receive(fd, limit_ms);
    if (more.empty()) break;
    out += more;
  }
  return out;
}

// How a connection ended: what was left of it, and whether by a reset.
struct Ending {
  std::string bytes;
  bool reset = false;
  bool ended = false;
};
inline Ending read_to_end(int fd, int limit_ms = 10'000) {
  Ending out;
  for (;;) {
    pollfd state{fd, POLLIN, 0};
    if (::poll(&state, 1, limit_ms) <= 0) return out;
    char buffer[4096];
    const ssize_t n = ::recv(fd, buffer, sizeof buffer, 0);
    if (n > 0) {
      out.bytes.append(buffer, std::size_t(n));
      continue;
    }
    out.ended = true;
    out.reset = n < 0;
    return out;
  }
}

// Runs a function in a thread for every connection or datagram, until it is destroyed.
class TcpServer {
 public:
  using Talk = std::function<void(int fd)>;
  explicit TcpServer(Talk talk, const std::string& ip = "127.0.0.1", std::uint16_t port = 0)
      : fd_(bound(SOCK_STREAM, ip, port)), talk_(std::move(talk)), thread_([this] { run(); }) {}
  ~TcpServer() {
    ::shutdown(fd_.get(), SHUT_RDWR);
    thread_.join();
    {
      std::lock_guard lock(mutex_);
      for (const int fd : open_) ::shutdown(fd, SHUT_RDWR);
    }
    for (std::thread& thread : talks_) thread.join();
  }
  std::uint16_t port() const { return port_of(fd_.get()); }
  int accepted() const { return accepted_; }

 private:
  void run() {
    for (;;) {
      const int fd = ::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) return;
      ++accepted_;
      std::lock_guard lock(mutex_);
      open_.push_back(fd);
      talks_.emplace_back([this, fd] {
        talk_(fd);
        std::lock_guard inner(mutex_);
        std::erase(open_, fd);
        ::close(fd);
      });
    }
  }
  sys::UniqueFd fd_;
  Talk talk_;
  std::atomic<int> accepted_ = 0;
  std::mutex mutex_;
  std::vector<int> open_;
  std::vector<std::thread> talks_;
  std::thread thread_;
};

}  // namespace atl::egress::testing
