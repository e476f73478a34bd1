// The resolver over real sockets on loopback: sandboxes are 127.0.0.x, the upstream is a server of
// the test.
#include "egress/dns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "egress/testing_dns.h"
#include "runtime/spec.h"

namespace atl::egress {
namespace {

using namespace atl::egress::testing;
using dns::Rcode;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Ipv4 ip(std::string_view text) { return *Ipv4::parse(text); }
Policy policy(std::string_view text) { return *parse_policy(parse_json(text)->as_object(), {}); }

class ResolverTest : public ::testing::Test {
 protected:
  void start(std::vector<std::string> servers, ResolverOptions options = {},
             dns::UpstreamOptions timing = {.try_time = milliseconds(200),
                                            .try_time_when_down = milliseconds(50)}) {
    std::vector<dns::Server> parsed;
    for (const std::string& server : servers) parsed.push_back(*dns::parse_server(server));
    const int udp = bound(SOCK_DGRAM);
    const int tcp = bound(SOCK_STREAM);
    udp_port_ = port_of(udp);
    tcp_port_ = port_of(tcp);
    auto made = Resolver::create(io_.context, udp, tcp, table_, names_,
                                 std::make_shared<dns::Upstream>(parsed, timing), options);
    ASSERT_TRUE(made.ok()) << made.error().message;
    resolver_ = std::move(*made);
  }
  void TearDown() override { resolver_.reset(); }

  // Asks as a sandbox; nullopt: no answer.
  std::optional<dns::Answer> ask(const std::string& message, const std::string& from = "127.0.0.2",
                                 int limit_ms = 5000) {
    const auto fd = connected(SOCK_DGRAM, from, "127.0.0.1", udp_port_);
    send_all(fd.get(), message);
    raw_ = receive(fd.get(), limit_ms);
    auto answer = dns::parse_answer(raw_);
    if (!answer.ok()) return std::nullopt;
    return *answer;
  }
  std::vector<Ipv4> addresses(const dns::Answer& answer) {
    return dns::follow(answer, answer.question.name).addresses;
  }

  Table table_;
  std::shared_ptr<Names> names_ = std::make_shared<Names>();
  Io io_;
  std::unique_ptr<Resolver> resolver_;
  std::uint16_t udp_port_ = 0, tcp_port_ = 0;
  std::string raw_;
  const SandboxId one_ = *SandboxId::parse("one");
};

DnsServer::Answer says(std::vector<std::string> records, unsigned rcode = 0) {
  return [=](const dns::Query& query, bool) { return DnsServer::with(query, records, rcode); };
}

TEST_F(ResolverTest, ForwardsAndRemembers) {
  DnsServer upstream(
      says({cname_record("www.example.com", "edge.net"), a_record("edge.net", "203.0.113.5")}));
  start({upstream.address()});
  table_.set(ip("127.0.0.2"), one_, Policy{});
  const auto answer = ask(query(77, "WWW.example.com"));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->id, 77);
  EXPECT_EQ(answer->rcode, Rcode::no_error);
  EXPECT_THAT(addresses(*answer), ElementsAre(ip("203.0.113.5")));
  EXPECT_TRUE(names_->gave(one_, "www.example.com", ip("203.0.113.5")));
  EXPECT_FALSE(names_->gave(one_, "edge.net", ip("203.0.113.5")));
  EXPECT_FALSE(names_->gave(*SandboxId::parse("two"), "www.example.com", ip("203.0.113.5")));
  EXPECT_FALSE(names_->gave(one_, "www.example.com", ip("203.0.113.6")));
}

TEST_F(ResolverTest, UnknownPeersGetNothing) {
  DnsServer upstream(says({a_record("a.com", "203.0.113.5")}));
  start({upstream.address()});
  EXPECT_FALSE(ask(query(1, "a.com"), "127.0.0.9", 300));
  EXPECT_EQ(upstream.asked(), 0);
  const auto fd = connected(SOCK_STREAM, "127.0.0.9", "127.0.0.1", tcp_port_);
  EXPECT_TRUE(read_to_end(fd.get()).ended);
}

TEST_F(ResolverTest, RefusesWhatThePolicyDoesNotResolve) {
  DnsServer upstream(says({a_record("allowed.com", "203.0.113.5")}));
  start({upstream.address()});
  table_.set(ip("127.0.0.2"), one_,
             policy(R"({"denyOut":["0.0.0.0/0"],"allowOut":["allowed.com"]})"));
  EXPECT_EQ(ask(query(1, "secret.evil.com"))->rcode, Rcode::refused);
  EXPECT_EQ(ask(query(1, "secret.evil.com", 16))->rcode, Rcode::refused);
  EXPECT_EQ(upstream.asked(), 0);
  EXPECT_EQ(ask(query(1, "allowed.com"))->rcode, Rcode::no_error);
  EXPECT_EQ(upstream.asked(), 1);
}

TEST_F(ResolverTest, NoIpv6AndNoServiceBindings) {
  DnsServer upstream(says({}));
  start({upstream.address()});
  table_.set(ip("127.0.0.2"), one_, Policy{});
  for (const unsigned type : {28u, 64u, 65u}) {
    const auto answer = ask(query(1, "a.com", type));
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->rcode, Rcode::no_error);
    EXPECT_THAT(answer->records, IsEmpty());
  }
  EXPECT_EQ(ask(query(1, "a.com", 252))->rcode, Rcode::refused);
  EXPECT_EQ(ask(query(1, "a.com", 255))->rcode, Rcode::not_implemented);
  EXPECT_EQ(ask(query(1, "1.0.0.10.in-addr.arpa", 12))->rcode, Rcode::name_error);
  EXPECT_EQ(ask(query(1, "10.in-addr.arpa", 12))->rcode, Rcode::name_error);
  EXPECT_EQ(ask(query(1, "1.0.ip6.arpa", 12))->rcode, Rcode::name_error);
  EXPECT_EQ(ask(header(1, 0x0100, 1, 0) + question("version.bind", 16, 3))->rcode, Rcode::refused);
  (void)ask(header(1, 0x2900, 1, 0) + question("a.com", 6));  // an UPDATE
  EXPECT_EQ(raw_.substr(2, 2), u16(0xa984));
  EXPECT_EQ(upstream.asked(), 0);
}

TEST_F(ResolverTest, PrivateAddressesAreTakenOut) {
  DnsServer upstream(
      says({cname_record("rebind.com", "x.com"), a_record("x.com", "10.0.0.1"),
            a_record("x.com", "203.0.113.5"), a_record("x.com", "169.254.169.254")}));
  start({upstream.address()});
  table_.set(ip("127.0.0.2"), one_, Policy{});
  const auto answer = ask(query(1, "rebind.com"));
  ASSERT_TRUE(answer);
  EXPECT_THAT(addresses(*answer), ElementsAre(ip("203.0.113.5")));
  EXPECT_EQ(raw_.find(u32(ip("10.0.0.1").value)), std::string::npos);
  EXPECT_FALSE(names_->gave(one_, "rebind.com", ip("10.0.0.1")));
  EXPECT_TRUE(names_->gave(one_, "rebind.com", ip("203.0.113.5")));
}

TEST_F(ResolverTest, AddressesInAnswersToOtherQuestionsAreRefused) {
  DnsServer upstream(says({a_record("a.com", "10.0.0.1")}));
  start({upstream.address()});
  table_.set(ip("127.0.0.2"), one_, Policy{});
  EXPECT_EQ(ask(query(1, "a.com", 16))->rcode, Rcode::server_failure);
}

TEST_F(ResolverTest, OwnDomainLeadsToTheProxy) {
  DnsServer upstream(says({a_record("x", "203.0.113.5")}));
  ResolverOptions options;
  options.own_domain = "sandbox.test";
  start({upstream.address()}, options);
  table_.set(ip("127.0.0.2"), one_, Policy{});
  const auto answer = ask(query(1, "8080-abc.Sandbox.test"));
  ASSERT_TRUE(answer);
  EXPECT_THAT(addresses(*answer), ElementsAre(runtime::kOwnIngressAddress));
  EXPECT_THAT(ask(query(1, "8080-abc.sandbox.test", 28))->records, IsEmpty());
  EXPECT_EQ(upstream.asked(), 0);
  table_.set(ip("127.0.0.3"), *SandboxId::parse("two"), policy(R"({"denyOut":["0.0.0.0/0"]})"));
  EXPECT_EQ(ask(query(1, "8080-abc.sandbox.test"), "127.0.0.3")->rcode, Rcode::refused);
}

TEST_F(ResolverTest, ForgedAnswersAreIgnored) {
  DnsServer upstream([](const dns::Query& query, bool) {
    // The first three bytes of luck a forger may have: wrong id, wrong name, then the true answer.
    static int count = 0;
    dns::Query wrong = query;
    if (count++ % 2 == 0) {
      wrong.id ^= 1;
      return DnsServer::with(wrong, {a_record("a.com", "203.0.113.66")});
    }
    return DnsServer::with(query, {a_record("a.com", "203.0.113.5")});
  });
  start({upstream.address()});
  table_.set(ip("127.0.0.2"), one_, Policy{});
  const auto answer = ask(query(1, "a.com"));  // the second try
  ASSERT_TRUE(answer);
  EXPECT_THAT(addresses(*answer), ElementsAre(ip("203.0.113.5")));
  EXPECT_FALSE(names_->gave(one_, "a.com", ip("203.0.113.66")));
}

TEST_F(ResolverTest, AsksTheSecondServer) {
  DnsServer silent([](const dns::Query&, bool) { return std::string(); });
  DnsServer good(says({a_record("a.com", "203.0.113.5")}));
  start({silent.address(), good.address()});
  table_.set(ip("127.0.0.2"), one_, Policy{});
  EXPECT_THAT(addresses(*ask(query(1, "a.com"))), ElementsAre(ip("203.0.113.5")));
  EXPECT_THAT(addresses(*ask(query(2, "a.com"))), ElementsAre(ip("203.0.113.5")));
  EXPECT_EQ(silent.asked(), 1);  // the one that answered is asked first from then on
}

TEST_F(ResolverTest, TruncatedAnswersComeOverTcp) {
  DnsServer upstream([](const dns::Query& query, bool tcp) {
    std::vector<std::string> many;
    for (int i = 1; i <= 100; ++i)
      many.push_back(a_record("a.com", "203.0.113." + std::to_string(i)));
    if (tcp) return DnsServer::with(query, many);
    return header(query.id, 0x8380, 1, 0) + query.question.wire + u16(1) + u16(1);
  });
  start({upstream.address()});
  table_.set(ip("127.0.0.2"), one_, Policy{});
  const auto answer = ask(query(1, "a.com"));
  ASSERT_TRUE(answer);
  EXPECT_TRUE(answer->truncated);
  EXPECT_LE(raw_.size(), dns::kPlainUdp);

  const auto fd = connected(SOCK_STREAM, "127.0.0.2", "127.0.0.1", tcp_port_);
  const std::string message = query(9, "a.com");
  const std::string framed = u16(unsigned(message.size())) + message;
  send_all(fd.get(), framed.substr(0, 5));  // in two pieces
  send_all(fd.get(), framed.substr(5));
  std::string got;
  while (got.size() < 1000) {
    const std::string more = receive(fd.get());
    if (more.empty()) break;
    got += more;
  }
  const auto whole = dns::parse_answer(std::string_view(got).substr(2));
  ASSERT_TRUE(whole.ok());
  EXPECT_THAT(whole->records, SizeIs(100));
}

TEST_F(ResolverTest, NoUpstreamFailsAtOnce) {
  start({});
  table_.set(ip("127.0.0.2"), one_, Policy{});
  const auto before = std::chrono::steady_clock::now();
  EXPECT_EQ(ask(query(1, "a.com"))->rcode, Rcode::server_failure);
  EXPECT_LT(std::chrono::steady_clock::now() - before, milliseconds(500));
}

TEST_F(ResolverTest, ClosedPortFailsAtOnce) {
  const int unused = bound(SOCK_DGRAM);
  const std::string address = "127.0.0.1:" + std::to_string(port_of(unused));
  ::close(unused);
  start({address}, {}, {.try_time = seconds(5)});
  table_.set(ip("127.0.0.2"), one_, Policy{});
  const auto before = std::chrono::steady_clock::now();
  EXPECT_EQ(ask(query(1, "a.com"))->rcode, Rcode::server_failure);
  EXPECT_LT(std::chrono::steady_clock::now() - before, seconds(2));
}

TEST_F(ResolverTest, InFlightIsBounded) {
  DnsServer silent([](const dns::Query&, bool) { return std::string(); });
  ResolverOptions options;
  options.in_flight_per_sandbox = 4;
  start({silent.address()}, options, {.try_time = seconds(5)});
  table_.set(ip("127.0.0.2"), one_, Policy{});
  const auto fd = connected(SOCK_DGRAM, "127.0.0.2", "127.0.0.1", udp_port_);
  for (unsigned i = 0; i < 5; ++i) send_all(fd.get(), query(i, "a.com"));
  const auto answer = dns::parse_answer(receive(fd.get(), 2000));
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->id, 4);
  EXPECT_EQ(answer->rcode, Rcode::server_failure);
}

TEST_F(ResolverTest, AFloodIsDropped) {
  ResolverOptions options;
  options.queries_per_second = 5;
  start({}, options);
  table_.set(ip("127.0.0.2"), one_, Policy{});
  table_.set(ip("127.0.0.3"), *SandboxId::parse("two"), Policy{});
  const auto fd = connected(SOCK_DGRAM, "127.0.0.2", "127.0.0.1", udp_port_);
  for (unsigned i = 0; i < 20; ++i) send_all(fd.get(), query(i, "a.com", 28));
  int answers = 0;
  while (!receive(fd.get(), 100).empty()) ++answers;
  EXPECT_EQ(answers, 5);
  EXPECT_TRUE(ask(query(1, "a.com", 28), "127.0.0.3"));  // the neighbour does not notice
  std::this_thread::sleep_for(milliseconds(1000));
  EXPECT_TRUE(ask(query(1, "a.com", 28)));
}

TEST_F(ResolverTest, AnAnswerThatComesAfterTheSandboxIsDropped) {
  std::atomic<bool> go = false;
  DnsServer slow([&](const dns::Query& query, bool) {
    while (!go) std::this_thread::sleep_for(milliseconds(1));
    return DnsServer::with(query, {a_record("a.com", "203.0.113.5")});
  });
  start({slow.address()}, {}, {.try_time = seconds(5)});
  table_.set(ip("127.0.0.2"), one_, Policy{});
  const auto fd = connected(SOCK_DGRAM, "127.0.0.2", "127.0.0.1", udp_port_);
  send_all(fd.get(), query(1, "a.com"));
  while (slow.asked() == 0) std::this_thread::sleep_for(milliseconds(1));
  table_.set(ip("127.0.0.2"), *SandboxId::parse("next"), Policy{});
  go = true;
  EXPECT_EQ(receive(fd.get(), 300), "");
  EXPECT_EQ(names_->size(*SandboxId::parse("next")), 0u);
}

TEST_F(ResolverTest, MalformedQueries) {
  start({});
  table_.set(ip("127.0.0.2"), one_, Policy{});
  const auto fd = connected(SOCK_DGRAM, "127.0.0.2", "127.0.0.1", udp_port_);
  send_all(fd.get(), header(3, 0x0100, 1, 0) + "\xc0\x0c" + u16(1) + u16(1));
  EXPECT_EQ(receive(fd.get()).substr(0, 4), u16(3) + u16(0x8101));
  send_all(fd.get(), "x");
  send_all(fd.get(), header(4, 0x8180, 1, 0) + question("a.com", 1));
  send_all(fd.get(), std::string(5000, 'x'));
  EXPECT_EQ(receive(fd.get(), 200), "");
  EXPECT_EQ(ask(query(1, "a.com"))->rcode, Rcode::server_failure);  // still there

  const auto tcp = connected(SOCK_STREAM, "127.0.0.2", "127.0.0.1", tcp_port_);
  send_all(tcp.get(), std::string("\xff\xff", 2) + std::string(100, 'x'));
  EXPECT_TRUE(read_to_end(tcp.get()).ended);
}

TEST(NamesMemory, IsBoundedAndExpires) {
  Names names(3);
  const auto sandbox = *SandboxId::parse("one");
  const auto now = Names::Clock::now();
  names.remember(sandbox, Ipv4{9}, "a", Ipv4{1}, seconds(10), now);
  names.remember(sandbox, Ipv4{9}, "b", Ipv4{2}, seconds(30), now);
  names.remember(sandbox, Ipv4{9}, "c", Ipv4{3}, seconds(20), now);
  names.remember(sandbox, Ipv4{9}, "d", Ipv4{4}, seconds(40), now);
  EXPECT_EQ(names.size(sandbox), 3u);
  EXPECT_FALSE(names.gave(sandbox, "a", Ipv4{1}, now));
  EXPECT_TRUE(names.gave(sandbox, "b", Ipv4{2}, now));
  EXPECT_TRUE(names.gave(sandbox, "b", Ipv4{2}, now + seconds(29) + Names::kGrace));
  EXPECT_FALSE(names.gave(sandbox, "b", Ipv4{2}, now + seconds(30) + Names::kGrace));
  names.remember(sandbox, Ipv4{9}, "b", Ipv4{2}, seconds(1), now);  // never shortens
  EXPECT_TRUE(names.gave(sandbox, "b", Ipv4{2}, now + seconds(29) + Names::kGrace));
  names.remember(sandbox, Ipv4{9}, "e", Ipv4{5}, std::chrono::hours(999), now);
  EXPECT_FALSE(names.gave(sandbox, "e", Ipv4{5}, now + Names::kMaxTtl + Names::kGrace));
  names.forget_if([](const SandboxId&, Ipv4 peer) { return peer == Ipv4{8}; });
  EXPECT_TRUE(names.gave(sandbox, "b", Ipv4{2}, now));
  names.forget_if([](const SandboxId&, Ipv4 peer) { return peer == Ipv4{9}; });
  EXPECT_FALSE(names.gave(sandbox, "b", Ipv4{2}, now));
}

TEST(ResolvConf, IsRead) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("atoll-resolv-" + std::to_string(::getpid()) + ".conf");
  std::ofstream(path) << "# a comment\nnameserver 192.0.2.1\nnameserver\t2001:db8::1 # six\n"
                         "nameserverx 1.1.1.1\nsearch x\nnameserver junk\nnameserver 192.0.2.2\n"
                         "nameserver 192.0.2.3\n";
  const auto servers = dns::servers_from_resolv_conf(path);
  std::filesystem::remove(path);
  ASSERT_THAT(servers, SizeIs(3));
  EXPECT_EQ(servers[0].address().to_string(), "192.0.2.1");
  EXPECT_EQ(servers[1].address().to_string(), "2001:db8::1");
  EXPECT_EQ(servers[2].address().to_string(), "192.0.2.2");
  EXPECT_THAT(dns::servers_from_resolv_conf("/nonexistent"), IsEmpty());
}

TEST(ParseServer, Forms) {
  EXPECT_EQ(dns::parse_server("192.0.2.1")->port(), 53);
  EXPECT_EQ(dns::parse_server("192.0.2.1:5353")->port(), 5353);
  EXPECT_EQ(dns::parse_server("[2001:db8::1]:54")->port(), 54);
  EXPECT_EQ(dns::parse_server("2001:db8::1")->port(), 53);
  for (const char* bad : {"", "dns.google", "192.0.2.1:", "192.0.2.1:0", "192.0.2.1:70000", "[::1"})
    EXPECT_FALSE(dns::parse_server(bad).ok()) << bad;
}

}  // namespace
}  // namespace atl::egress
