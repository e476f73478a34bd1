#include "egress/http_name.h"

#include <gtest/gtest.h>

namespace atl::egress {
namespace {

net::RequestHead request(std::string target, std::vector<std::string> hosts,
                         std::string method = "GET", int version = 11) {
  net::RequestHead head;
  head.method = std::move(method);
  head.target = std::move(target);
  head.version = version;
  for (std::string& host : hosts) head.headers.add("hOsT", std::move(host));
  return head;
}

std::string name_of(net::RequestHead head, std::uint16_t port = 80) {
  const auto name = take_request_name(head, port);
  if (!name.ok()) return "refused";
  return name->value_or("none") + " " + head.target;
}

TEST(RequestName, IsTheHost) {
  EXPECT_EQ(name_of(request("/x", {"Example.COM"})), "example.com /x");
  EXPECT_EQ(name_of(request("/x", {"example.com."})), "example.com /x");
  EXPECT_EQ(name_of(request("/x", {"example.com:80"})), "example.com /x");
  EXPECT_EQ(name_of(request("/x", {"example.com:8443"}), 8443), "example.com /x");
  EXPECT_EQ(name_of(request("*", {"example.com"}, "OPTIONS")), "example.com *");
}

TEST(RequestName, AddressesAndOldClientsNameNone) {
  EXPECT_EQ(name_of(request("/", {"203.0.113.5"})), "none /");
  EXPECT_EQ(name_of(request("/", {"203.0.113.5:80"})), "none /");
  EXPECT_EQ(name_of(request("/", {"[2001:db8::1]:80"})), "none /");
  EXPECT_EQ(name_of(request("/", {}, "GET", 10)), "none /");
}

TEST(RequestName, AbsoluteTargetsMustAgree) {
  EXPECT_EQ(name_of(request("http://Example.com/a?b", {"example.com"})), "example.com /a?b");
  EXPECT_EQ(name_of(request("HTTP://example.com:80?q", {"example.com"})), "example.com /?q");
  EXPECT_EQ(name_of(request("http://example.com", {"example.com:80"})), "example.com /");
  EXPECT_EQ(name_of(request("http://evil.com/", {"example.com"})), "refused");
  EXPECT_EQ(name_of(request("http://example.com@evil.com/", {"example.com"})), "refused");
  EXPECT_EQ(name_of(request("http://evil.com#@example.com/", {"example.com"})), "refused");
  EXPECT_EQ(name_of(request("https://example.com/", {"example.com"})), "refused");
  EXPECT_EQ(name_of(request("http://203.0.113.5/", {"203.0.113.5"})), "refused");
  EXPECT_EQ(name_of(request("http://example.com/", {}, "GET", 10)), "refused");
}

TEST(RequestName, RefusesWhatTwoReadersCouldTakeInTwoWays) {
  EXPECT_EQ(name_of(request("/", {"a.com", "b.com"})), "refused");
  EXPECT_EQ(name_of(request("/", {"a.com", "a.com"})), "refused");
  EXPECT_EQ(name_of(request("/", {})), "refused");
  EXPECT_EQ(name_of(request("/", {""})), "refused");
  EXPECT_EQ(name_of(request("/", {"a.com, b.com"})), "refused");
  EXPECT_EQ(name_of(request("/", {"a.com b.com"})), "refused");
  EXPECT_EQ(name_of(request("/", {"a.com:81"})), "refused");
  EXPECT_EQ(name_of(request("/", {"a.com:"})), "refused");
  EXPECT_EQ(name_of(request("/", {"a.com:80:80"})), "refused");
  EXPECT_EQ(name_of(request("/", {"user@a.com"})), "refused");
  EXPECT_EQ(name_of(request("a.com:80", {"a.com"}, "CONNECT")), "refused");
  EXPECT_EQ(name_of(request("a.com", {"a.com"})), "refused");
  EXPECT_EQ(name_of(request("*", {"a.com"})), "refused");
}

}  // namespace
}  // namespace atl::egress
