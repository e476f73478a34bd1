#include "egress/client_hello.h"

#include <gtest/gtest.h>

#include <random>

#include "egress/testing_tls.h"

namespace atl::egress {
namespace {

using namespace atl::egress::testing;

TEST(ClientHello, NameOfARealOne) {
  const std::string bytes = openssl_client_hello("WWW.Example.com");
  const auto hello = parse_client_hello(bytes);
  ASSERT_TRUE(hello.ok()) << hello.error().message;
  ASSERT_TRUE(*hello);
  EXPECT_EQ((*hello)->server_name, "www.example.com");
  const auto nameless = parse_client_hello(openssl_client_hello(""));
  ASSERT_TRUE(nameless.ok() && *nameless);
  EXPECT_FALSE((*nameless)->server_name);
}

TEST(ClientHello, NeedsAllOfIt) {
  const std::string bytes = openssl_client_hello("example.com");
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    const auto part = parse_client_hello(std::string_view(bytes).substr(0, n));
    ASSERT_TRUE(part.ok()) << n << " " << part.error().message;
    ASSERT_FALSE(*part) << n;
  }
}

TEST(ClientHello, MayBeCutIntoRecords) {
  const std::string body = client_hello_body({server_name_extension({"example.com"})});
  for (std::size_t size = 1; size <= body.size(); size += 7) {
    const auto hello = parse_client_hello(in_records(body, size));
    ASSERT_TRUE(hello.ok()) << hello.error().message;
    ASSERT_TRUE(*hello);
    EXPECT_EQ((*hello)->server_name, "example.com");
  }
}

TEST(ClientHello, RefusesTricks) {
  const auto refused = [](const std::string& bytes) { return !parse_client_hello(bytes).ok(); };
  const auto hello = [](const std::vector<std::string>& extensions) {
    return in_records(client_hello_body(extensions), 16000);
  };
  EXPECT_FALSE(refused(hello({server_name_extension({"a.com"})})));
  EXPECT_TRUE(refused(hello({server_name_extension({"a.com"}), server_name_extension({"b.com"})})));
  EXPECT_TRUE(refused(hello({server_name_extension({"a.com", "b.com"})})));
  EXPECT_TRUE(refused(hello({server_name_extension({})})));
  EXPECT_TRUE(refused(hello({server_name_extension({""})})));
  EXPECT_TRUE(refused(hello({server_name_extension({"203.0.113.5"})})));
  EXPECT_TRUE(refused(hello({server_name_extension({"::1"})})));
  EXPECT_TRUE(refused(hello({server_name_extension({std::string("a.com\0.evil.com", 15)})})));
  EXPECT_TRUE(refused(hello({server_name_extension({"a b.com"})})));
  EXPECT_TRUE(refused(hello({server_name_extension({"*.a.com"})})));
  EXPECT_TRUE(
      refused(in_records(client_hello_body({server_name_extension({"a.com"})}) + "x", 999)));
  // Early data comes in records of its own.
  EXPECT_FALSE(refused(hello({server_name_extension({"a.com"})}) + "\x17\x03\x03"));
  EXPECT_TRUE(refused("GET / HTTP/1.1\r\n"));
  EXPECT_TRUE(refused(std::string("\x16\x02\x00\x00\x05hello", 10)));
  EXPECT_TRUE(refused(std::string("\x16\x03\x01\x00\x00", 5)));
  EXPECT_TRUE(refused(std::string("\x16\x03\x01\xff\xff", 5)));
  EXPECT_TRUE(refused(std::string("\x16\x03\x01\x00\x04\x02\x00\x00\x00", 9)));  // a ServerHello
}

TEST(ClientHello, IsBounded) {
  const std::string huge(60'000, 'x');
  const std::string body = client_hello_body({extension(0x1234, huge)});
  EXPECT_FALSE(parse_client_hello(in_records(body, 16000)).ok());
  // One that says it is small and never ends, in records of one byte.
  std::string endless = in_records(std::string("\x01\x00\x7f\xff", 4) + std::string(9000, 'a'), 1);
  EXPECT_FALSE(parse_client_hello(endless).ok());
}

TEST(ClientHello, SurvivesNoise) {
  std::mt19937 random(7);
  const std::string base = openssl_client_hello("example.com");
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = base;
    for (int flips = 1 + int(random() % 5); flips > 0; --flips)
      bytes[random() % bytes.size()] = char(random());
    bytes.resize(random() % (bytes.size() + 1));
    (void)parse_client_hello(bytes).ok();
  }
}

}  // namespace
}  // namespace atl::egress
