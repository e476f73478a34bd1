#include "egress/dns_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "egress/testing_dns.h"

namespace atl::egress::dns {
namespace {

using namespace atl::egress::testing;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(ParseQuery, ReadsOneQuestion) {
  const auto parsed = parse_query(query(0x1234, "WWW.Example.com", type::aaaa));
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->id, 0x1234);
  EXPECT_TRUE(parsed->recursion_desired);
  EXPECT_EQ(parsed->question.name, "www.example.com");
  EXPECT_EQ(parsed->question.wire, labels("WWW.Example.com"));
  EXPECT_EQ(parsed->question.type, type::aaaa);
  EXPECT_FALSE(parsed->edns);
  EXPECT_EQ(parsed->udp_size, kPlainUdp);
}

TEST(ParseQuery, EdnsSizesAreKeptInBounds) {
  EXPECT_EQ(parse_query(edns_query(1, "a.b", 1, 1))->udp_size, kPlainUdp);
  EXPECT_EQ(parse_query(edns_query(1, "a.b", 1, 800))->udp_size, 800);
  EXPECT_EQ(parse_query(edns_query(1, "a.b", 1, 65535))->udp_size, kOurUdp);
  const std::string secure = header(1, 0x0110, 1, 0, 0, 1) + question("a.b", 1) + opt(1232, 0x8000);
  EXPECT_TRUE(parse_query(secure)->dnssec_ok);
  EXPECT_TRUE(parse_query(secure)->checking_disabled);
}

TEST(ParseQuery, OddBytesNeverLookLikeAnotherName) {
  const std::string dotted =
      header(1, 0x0100, 1, 0) + "\x0b" + "example.com" + std::string(1, '\0') + u16(1) + u16(1);
  EXPECT_EQ(parse_query(dotted)->question.name, "example\\046com");
  const std::string zero = header(1, 0x0100, 1, 0) +
                           std::string(
                               "\x03"
                               "a\0b"
                               "\x00",
                               5) +
                           u16(1) + u16(1);
  EXPECT_EQ(parse_query(zero)->question.name, "a\\000b");
}

TEST(ParseQuery, NamesWhatIsNotWorthAnAnswer) {
  EXPECT_EQ(parse_query("").error().code, Errc::invalid_argument);
  EXPECT_EQ(parse_query("short").error().code, Errc::invalid_argument);
  EXPECT_EQ(parse_query(header(1, 0x8180, 1, 0) + question("a.b", 1)).error().code,
            Errc::invalid_argument);
  EXPECT_EQ(reply_to_malformed(header(1, 0x8180, 0, 0)), "");
}

TEST(ParseQuery, RefusesMalformedOnes) {
  const std::string good = query(7, "example.com");
  for (std::size_t n = 12; n < good.size(); ++n) {
    const auto parsed = parse_query(good.substr(0, n));
    ASSERT_FALSE(parsed.ok()) << n;
    EXPECT_EQ(parsed.error().code, Errc::out_of_range);
  }
  const std::vector<std::string> bad = {
      good + "x",
      header(7, 0x0100, 0, 0),
      header(7, 0x0100, 2, 0) + question("a.b", 1) + question("c.d", 1),
      header(7, 0x0100, 1, 1) + question("a.b", 1) + a_record("a.b", "1.2.3.4"),
      header(7, 0x0100, 1, 0, 0, 2) + question("a.b", 1) + opt(512) + opt(512),
      header(7, 0x0100, 1, 0, 0, 3) + question("a.b", 1) + opt(512),
      header(7, 0x0100, 1, 0) + "\xc0\x0c" + u16(1) + u16(1),  // points at itself
      header(7, 0x0100, 1, 0) + "\xc0\x0e" + u16(1) + u16(1),  // forward
      header(7, 0x0100, 1, 0) + "\xc0" + std::string(1, '\0') + u16(1) + u16(1),  // into the header
      header(7, 0x0100, 1, 0) +
          "\x01"
          "a"
          "\xc0\x0c" +
          u16(1) + u16(1),  // round
      header(7, 0x0100, 1, 0) + "\x41" + std::string(65, 'a') + std::string(1, '\0') + u16(1) +
          u16(1),
      header(7, 0x0100, 1, 0) +
          "\x81"
          "a" +
          std::string(1, '\0') + u16(1) + u16(1),
  };
  for (const std::string& message : bad) {
    EXPECT_FALSE(parse_query(message).ok());
    EXPECT_THAT(reply_to_malformed(message), SizeIs(12));
  }
  std::string longest = header(7, 0x0100, 1, 0);
  for (int i = 0; i < 5; ++i) longest += "\x3f" + std::string(63, 'a');
  EXPECT_FALSE(parse_query(longest + std::string(1, '\0') + u16(1) + u16(1)).ok());
  EXPECT_EQ(reply_to_malformed(header(7, 0x0100, 0, 0)).substr(0, 4), u16(7) + u16(0x8101));
}

// Pointers that lead to pointers, each one step back: allowed by their direction, bounded in
// number.
TEST(ParseAnswer, PointerChainsAreBounded) {
  std::string message = header(1, 0x8180, 1, 200) + question("a.b", 1);
  std::size_t last = 12;
  for (int i = 0; i < 200; ++i) {
    const std::size_t here = message.size();
    message += u16(0xc000 | unsigned(last)) + u16(1) + u16(1) + u32(1) + u16(4) + u32(0x01020304);
    last = here;
  }
  EXPECT_FALSE(parse_answer(message).ok());
}

TEST(ParseAnswer, FollowsChains) {
  const auto asked = *parse_query(query(5, "www.example.com"));
  const std::string message = DnsServer::with(
      asked,
      {cname_record("www.example.com", "Edge.cdn.net", 30),
       cname_record("edge.cdn.net", "x.cdn.net", 90), a_record("x.cdn.net", "203.0.113.5", 20),
       a_record("x.cdn.net", "203.0.113.6", 40), a_record("other.net", "203.0.113.7", 1)});
  const auto answer = parse_answer(message);
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  const Chain chain = follow(*answer, "www.example.com");
  EXPECT_THAT(chain.addresses,
              ElementsAre(*Ipv4::parse("203.0.113.5"), *Ipv4::parse("203.0.113.6")));
  EXPECT_EQ(chain.ttl, 20u);
  EXPECT_THAT(follow(*answer, "unrelated.com").addresses, IsEmpty());

  // What we write ourselves says the same.
  const auto again = parse_answer(encode_records(asked, Rcode::no_error, chain.records));
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(follow(*again, "www.example.com").addresses, chain.addresses);
  EXPECT_EQ(again->question.wire, asked.question.wire);
}

TEST(ParseAnswer, LoopsEnd) {
  const auto asked = *parse_query(query(5, "a.com"));
  const auto answer = parse_answer(
      DnsServer::with(asked, {cname_record("a.com", "b.com"), cname_record("b.com", "a.com"),
                              a_record("c.com", "1.2.3.4")}));
  ASSERT_TRUE(answer.ok());
  EXPECT_THAT(follow(*answer, "a.com").addresses, IsEmpty());
}

TEST(ParseAnswer, RefusesMalformedOnes) {
  const auto asked = *parse_query(query(5, "a.com"));
  const std::string good =
      DnsServer::with(asked, {cname_record("a.com", "b.com"), a_record("b.com", "1.2.3.4")});
  for (std::size_t n = 0; n < good.size(); ++n) EXPECT_FALSE(parse_answer(good.substr(0, n)).ok());
  EXPECT_FALSE(
      parse_answer(DnsServer::with(asked, {record(labels("a.com"), type::a, 1, "abc")})).ok());
  EXPECT_FALSE(parse_answer(DnsServer::with(asked, {record(labels("a.com"), type::cname, 1,
                                                           labels("b.com") + "x")}))
                   .ok());
  EXPECT_FALSE(parse_answer(query(5, "a.com")).ok());
}

TEST(EncodeRelayed, CutsOffWhatNobodyAskedFor) {
  const auto asked = *parse_query(edns_query(5, "a.com", 15, 1232));
  std::string message = header(99, 0x8180, 1, 1, 0, 1) + question("a.com", 15) +
                        record("\xc0\x0c", 15, 60, u16(10) + labels("mx.a.com"));
  message += a_record("mx.a.com", "10.0.0.1");
  const auto answer = parse_answer(message);
  ASSERT_TRUE(answer.ok());
  const std::string relayed = encode_relayed(asked, message, *answer);
  EXPECT_EQ(relayed.find(std::string("\x0a\0\0\x01", 4)), std::string::npos);
  const auto again = parse_answer(relayed);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->id, 5);
  EXPECT_THAT(again->records, SizeIs(1));
}

TEST(Names, RoundTrip) {
  EXPECT_EQ(encode_name("a.bc"), std::string("\x01"
                                             "a"
                                             "\x02"
                                             "bc\0",
                                             6));
  EXPECT_EQ(encode_name("a.bc."), encode_name("a.bc"));
  for (const char* bad : {"", ".", "a..b", ".a"}) EXPECT_FALSE(encode_name(bad)) << bad;
  EXPECT_FALSE(encode_name(std::string(64, 'a')));
}

TEST(Parsers, SurviveNoise) {
  std::mt19937 random(1);
  const auto asked = *parse_query(query(5, "www.example.com"));
  const std::string base = DnsServer::with(
      asked, {cname_record("www.example.com", "b.com"), a_record("b.com", "1.2.3.4")});
  for (int i = 0; i < 20000; ++i) {
    std::string message = base;
    for (int flips = 1 + int(random() % 4); flips > 0; --flips)
      message[random() % message.size()] = char(random());
    message.resize(random() % (message.size() + 1));
    (void)parse_query(message).ok();
    if (const auto answer = parse_answer(message); answer.ok()) {
      (void)encode_relayed(asked, message, *answer);
      (void)follow(*answer, "www.example.com");
    }
  }
}

}  // namespace
}  // namespace atl::egress::dns
