// For tests of the proxy: it runs over real sockets on loopback. Sandboxes are 127.0.0.x; the
// addresses of the "internet" (TEST-NET) are mapped to servers of the test; what the kernel would
// tell of the original destination is what the test says.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "egress/dial.h"
#include "egress/proxy.h"
#include "egress/testing_dns.h"
#include "egress/testing_tls.h"
#include "runtime/spec.h"

namespace atl::egress::testing {

using net::asio::ip::tcp;
using std::chrono::milliseconds;
using std::chrono::seconds;

inline Ipv4 ip(std::string_view text) { return *Ipv4::parse(text); }
inline Policy policy(std::string_view text) {
  return *parse_policy(parse_json(text)->as_object(), {});
}

constexpr const char* kOnlyAllowed =
    R"({"denyOut":["0.0.0.0/0"],"allowOut":["allowed.com","*.wild.org"]})";

// Says back what it got, with a mark; ends when the client does.
inline void echo(int fd) {
  for (;;) {
    const std::string bytes = receive(fd);
    if (bytes.empty()) break;
    if (!send_all(fd, "echo:" + bytes)) break;
  }
  ::shutdown(fd, SHUT_WR);
}

// Answers every request with the request's own head.
inline std::string mirror(const std::string& head) {
  const std::string body = "<<" + head + ">>";
  return "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}
inline void serve_http(int fd) {
  std::string buffer;
  for (;;) {
    std::size_t end = buffer.find("\r\n\r\n");
    if (end == std::string::npos) {
      const std::string more = receive(fd);
      if (more.empty()) return;
      buffer += more;
      continue;
    }
    const std::string head = buffer.substr(0, end + 4);
    buffer.erase(0, end + 4);
    send_all(fd, mirror(head));
  }
}

class ProxyTest : public ::testing::Test {
 protected:
  ProxyTest() : home_(std::filesystem::temp_directory_path() / ("atoll-egress-" + random_hex(8))) {
    std::filesystem::create_directories(home_ / "keys");
  }
  ~ProxyTest() override { std::filesystem::remove_all(home_); }

  void start(ProxyOptions options = {}, std::vector<dns::Server> resolvers = {}) {
    const int listener = bound(SOCK_STREAM);
    port_ = port_of(listener);
    options.destination_of = [this](int) -> Result<Destination> {
      std::lock_guard lock(mutex_);
      return to_;
    };
    options.connect = [this](tcp::endpoint to, milliseconds limit) {
      std::lock_guard lock(mutex_);
      dialled_.push_back(to);
      const auto found = internet_.find(to);
      return dial(found == internet_.end() ? tcp::endpoint(net::asio::ip::address_v4::loopback(), 1)
                                           : found->second,
                  limit);
    };
    std::shared_ptr<Interceptor> interceptor;
    if (intercepts_) {
      auto made = Interceptor::create(home_, extra_ca_);
      ASSERT_TRUE(made.ok()) << made.error().message;
      interceptor = *made;
    }
    auto made = EgressProxy::create(io_.context, listener, table_, names_,
                                    std::make_shared<dns::Upstream>(resolvers), interceptor,
                                    std::move(options));
    ASSERT_TRUE(made.ok()) << made.error().message;
    proxy_ = std::move(*made);
  }
  void TearDown() override { proxy_.reset(); }

  void host(const std::string& address, std::uint16_t port, std::uint16_t real) {
    std::lock_guard lock(mutex_);
    internet_[endpoint(address, port)] = tcp::endpoint(net::asio::ip::address_v4::loopback(), real);
  }
  static tcp::endpoint endpoint(const std::string& address, std::uint16_t port) {
    return {net::asio::ip::make_address(address), port};
  }
  // A connection of the sandbox that was going to address:port.
  sys::UniqueFd go(const std::string& address, std::uint16_t port,
                   const std::string& from = "127.0.0.2") {
    {
      std::lock_guard lock(mutex_);
      to_ = {ip(address), port};
    }
    return connected(SOCK_STREAM, from, "127.0.0.1", port_);
  }
  void dns(std::string_view name, std::string_view address) {
    names_->remember(one_, ip("127.0.0.2"), name, ip(address), seconds(60));
  }
  std::size_t dialled() {
    std::lock_guard lock(mutex_);
    return dialled_.size();
  }
  bool refused(const sys::UniqueFd& fd) {
    const Ending ending = read_to_end(fd.get());
    return ending.ended && ending.bytes.empty();
  }
  std::string ask(const sys::UniqueFd& fd, const std::string& request) {
    send_all(fd.get(), request);
    return receive_until(fd.get(), ">>", 3000);
  }
  bool eventually(const std::function<bool()>& condition) {
    for (int i = 0; i < 500; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(milliseconds(10));
    }
    return false;
  }

  const std::filesystem::path home_;
  std::string extra_ca_;
  bool intercepts_ = false;
  Table table_;
  std::shared_ptr<Names> names_ = std::make_shared<Names>();
  std::mutex mutex_;
  Destination to_;
  std::map<tcp::endpoint, tcp::endpoint> internet_;
  std::vector<tcp::endpoint> dialled_;
  std::uint16_t port_ = 0;
  Io io_;
  std::unique_ptr<EgressProxy> proxy_;
  const SandboxId one_ = *SandboxId::parse("one");
};

inline std::string hello_for(const std::string& name) { return openssl_client_hello(name); }
inline std::string get(const std::string& host, const std::string& more = "") {
  return "GET / HTTP/1.1\r\nHost: " + host + "\r\n" + more + "\r\n";
}

}  // namespace atl::egress::testing
