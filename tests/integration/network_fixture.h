// The world of the network tests: this process's network namespace is the host, with an address on
// a link to a namespace that plays the internet (internet.py) and servers of its own.
#pragma once

#include "jail_fixture.h"

namespace atl::testing {

class NetworkTest : public JailTest {
 protected:
  void SetUp() override;
  void TearDown() override;

  void begin(std::vector<std::string> extra = {});
  // With this policy; the address it got is in address_.
  SandboxId create_with(runtime::NetworkPolicy policy);
  void set(const SandboxId& id, runtime::NetworkPolicy policy);

  // From inside: the answer of a server, empty if there was none.
  std::string tcp(const SandboxId& id, const std::string& address, int port);
  std::string udp(const SandboxId& id, const std::string& address, int port,
                  const std::string& text = "hello");
  bool reaches(const SandboxId& id, const std::string& address, int port) {
    return !tcp(id, address, port).empty();
  }
  // The same from the host.
  std::string tcp_from_host(const std::string& address, int port);
  // What the internet's servers were sent by UDP, one "SOURCE TEXT" per line.
  std::string datagrams() const { return read_text(log_); }
  // A command without single quotes in the router of this test's warden.
  std::string in_router(const std::string& command);

  static constexpr const char* kHostAddress = "203.0.113.1";
  Ipv4 address_;

 private:
  int internet_pid_ = 0;
  int to_internet_ = -1;
  int from_internet_ = -1;
  std::string log_;
};

runtime::NetworkPolicy policy(std::vector<std::string> allow, std::vector<std::string> deny,
                              runtime::Intercept intercept = runtime::Intercept::none);

}  // namespace atl::testing
