// Egress as the server makes it: from sockets and options.
#include "egress/egress.h"

#include <filesystem>

#include "egress/testing_proxy.h"

namespace atl::egress {
namespace {

using namespace atl::egress::testing;
using ::testing::HasSubstr;

class EgressTest : public ::testing::Test {
 protected:
  EgressTest() : home_(std::filesystem::temp_directory_path() / ("atoll-egress-" + random_hex(8))) {
    std::filesystem::create_directories(home_ / "keys");
  }
  ~EgressTest() override { std::filesystem::remove_all(home_); }
  Result<std::unique_ptr<Egress>> make(EgressOptions options, runtime::EgressSockets sockets = {}) {
    return Egress::create(io_.context, sockets, table_, std::move(options));
  }
  const std::filesystem::path home_;
  Table table_;
  Io io_;
};

TEST_F(EgressTest, ServesDnsAndConnectionsAndStops) {
  DnsServer upstream([](const dns::Query& query, bool) {
    return DnsServer::with(query, {a_record("a.com", "203.0.113.5")});
  });
  runtime::EgressSockets sockets{bound(SOCK_DGRAM), bound(SOCK_STREAM), bound(SOCK_STREAM)};
  const std::uint16_t udp = port_of(sockets.dns_udp);
  const std::uint16_t proxy = port_of(sockets.proxy);
  EgressOptions options;
  options.resolvers = {upstream.address()};
  options.own_domain = "Sandbox.test:3443";
  options.own_ingress = "0.0.0.0:3443";
  options.home = home_;
  auto egress = make(std::move(options), sockets);
  ASSERT_TRUE(egress.ok()) << egress.error().message;
  table_.set(ip("127.0.0.2"), *SandboxId::parse("one"), Policy{});

  const auto fd = connected(SOCK_DGRAM, "127.0.0.2", "127.0.0.1", udp);
  send_all(fd.get(), query(5, "a.com"));
  EXPECT_EQ(dns::parse_answer(receive(fd.get()))->records.size(), 1u);
  send_all(fd.get(), query(6, "1-x.sandbox.test"));
  EXPECT_EQ(dns::parse_answer(receive(fd.get()))->records.at(0).address,
            runtime::kOwnIngressAddress);
  // Nobody redirected this connection, so its destination is the proxy itself or unknown.
  const auto direct = connected(SOCK_STREAM, "127.0.0.2", "127.0.0.1", proxy);
  send_all(direct.get(), get("a.com"));
  EXPECT_TRUE(read_to_end(direct.get()).ended);
  EXPECT_EQ(ca_pem(home_)->substr(0, 10), "-----BEGIN");

  (*egress)->stop();
  const auto gone = [&] {
    sys::UniqueFd probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in target = at("127.0.0.1", proxy);
    return ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&target), sizeof target) != 0;
  };
  for (int i = 0; i < 500 && !gone(); ++i) std::this_thread::sleep_for(milliseconds(10));
  EXPECT_TRUE(gone());
}

TEST_F(EgressTest, ChecksItsOptions) {
  EXPECT_TRUE(make({.resolvers = {"192.0.2.1"}}).ok());
  const auto refusal = [&](EgressOptions options) {
    auto made = make(std::move(options));
    return made.ok() ? std::string("accepted") : made.error().message;
  };
  EXPECT_THAT(refusal({.resolvers = {"dns.example"}}), HasSubstr("not a DNS server"));
  EXPECT_THAT(refusal({.own_domain = "a b"}), HasSubstr("not a domain name"));
  EXPECT_THAT(refusal({.own_ingress = "127.0.0.1"}), HasSubstr("address:port"));
  EXPECT_THAT(refusal({.home = "/nonexistent"}), HasSubstr("egress-ca"));
  EXPECT_THAT(refusal({.extra_ca = "/nonexistent", .home = home_}), HasSubstr("CA file"));
}

}  // namespace
}  // namespace atl::egress
