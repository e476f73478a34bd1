#include "egress/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "egress/table.h"

namespace atl::egress {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Result<Policy> parse(std::string_view text, std::optional<bool> allow_internet = std::nullopt) {
  auto value = parse_json(text);
  EXPECT_TRUE(value.ok()) << text;
  return parse_policy(value->as_object(), allow_internet);
}

Policy good(std::string_view text, std::optional<bool> allow_internet = std::nullopt) {
  auto policy = parse(text, allow_internet);
  EXPECT_TRUE(policy.ok()) << policy.error().message;
  return policy.ok() ? *policy : Policy{};
}

std::string refusal(std::string_view text) {
  auto policy = parse(text);
  if (policy.ok()) return "accepted";
  EXPECT_EQ(policy.error().code, Errc::invalid_argument);
  return policy.error().message;
}

Ipv4 ip(std::string_view text) { return *Ipv4::parse(text); }

TEST(Policy, NothingSetAllowsTheInternetOnly) {
  const Policy policy = good("{}");
  EXPECT_TRUE(policy.allows(ip("1.1.1.1")));
  for (const char* never : {"10.0.0.1", "127.0.0.1", "169.254.169.254", "172.16.0.1", "192.168.1.1",
                            "100.64.0.1", "0.0.0.0", "224.0.0.1", "255.255.255.255"})
    EXPECT_FALSE(policy.allows(ip(never))) << never;
  EXPECT_TRUE(policy.resolves("example.com"));
  EXPECT_EQ(for_kernel(policy), runtime::NetworkPolicy{});
}

TEST(Policy, AllowBeatsDeny) {
  const Policy policy =
      good(R"({"denyOut":["0.0.0.0/0"],"allowOut":["1.1.1.1","203.0.113.0/24"]})");
  EXPECT_TRUE(policy.denies_everything_else());
  EXPECT_TRUE(policy.allows(ip("1.1.1.1")));
  EXPECT_TRUE(policy.allows(ip("203.0.113.77")));
  EXPECT_FALSE(policy.allows(ip("8.8.8.8")));
  EXPECT_FALSE(policy.resolves("example.com"));
}

TEST(Policy, AllowedPrivateAddressesStayUnreachable) {
  const Policy policy = good(R"({"allowOut":["10.0.0.0/8","169.254.169.254","0.0.0.0/0"]})");
  EXPECT_FALSE(policy.allows(ip("10.1.2.3")));
  EXPECT_FALSE(policy.allows(ip("169.254.169.254")));
}

TEST(Policy, InternetOffIsDenyAll) {
  const Policy policy = good("{}", false);
  EXPECT_TRUE(policy.denies_everything_else());
  EXPECT_FALSE(policy.allows(ip("1.1.1.1")));
  EXPECT_FALSE(policy.resolves("example.com"));
  EXPECT_FALSE(good("{}", true).denies_everything_else());
  EXPECT_TRUE(good(R"({"allowOut":["example.com"]})", false).resolves("example.com"));
}

TEST(Policy, DenyTakesAddressesOnly) {
  EXPECT_EQ(refusal(R"({"denyOut":["example.com"]})"), "invalid denied CIDR example.com");
  EXPECT_EQ(refusal(R"({"denyOut":["1.1.1.1/33"]})"), "invalid denied CIDR 1.1.1.1/33");
  EXPECT_EQ(refusal(R"({"denyOut":["0.0.0.0"]})"), "invalid denied CIDR 0.0.0.0");
  EXPECT_EQ(refusal(R"({"denyOut":["::/0"]})"), "invalid denied CIDR ::/0");
  EXPECT_THAT(refusal(R"({"denyOut":"0.0.0.0/0"})"), HasSubstr("must be an array of strings"));
  EXPECT_THAT(refusal(R"({"denyOut":[1]})"), HasSubstr("must be an array of strings"));
}

TEST(Policy, DomainsNeedDenyAll) {
  EXPECT_EQ(refusal(R"({"allowOut":["example.com"],"denyOut":["8.8.8.8"]})"),
            "When specifying allowed domains in allow out, you must include 'ALL_TRAFFIC' in deny "
            "out to block all other traffic.");
  const Policy policy =
      good(R"({"allowOut":["Example.COM.","*.Test.org","1.1.1.1"],"denyOut":["0.0.0.0/0"]})");
  EXPECT_THAT(policy.allow_domains, ElementsAre("example.com", "*.test.org"));
  EXPECT_TRUE(policy.allows_domain("EXAMPLE.com"));
  EXPECT_FALSE(policy.allows_domain("www.example.com"));
  EXPECT_FALSE(policy.allows_domain("notexample.com"));
  EXPECT_TRUE(policy.allows_domain("a.b.test.org"));
  EXPECT_FALSE(policy.allows_domain("test.org"));
  EXPECT_FALSE(policy.allows_domain("eviltest.org"));
  EXPECT_TRUE(policy.resolves("example.com"));
  EXPECT_FALSE(policy.resolves("other.com"));
  EXPECT_EQ(for_kernel(policy).intercept, runtime::Intercept::web);
}

TEST(Policy, RefusesWhatIsNeitherAddressNorName) {
  for (const char* item :
       {"", " ", "exa mple.com", "-a.com", "a-.com", "a..com", ".com", "*", "*.", "*.*.com",
        "a.*.com", "1.2.3", "10.0.0.300", "::1", "http://example.com", "example.com:443",
        "example.com/24", "0.0.0.0", "b\\u00fccher.example"}) {
    const std::string text =
        std::string(R"({"denyOut":["0.0.0.0/0"],"allowOut":[")") + item + "\"]}";
    EXPECT_THAT(refusal(text), HasSubstr("invalid allowed address or domain")) << item;
  }
  const std::string long_label(64, 'a');
  EXPECT_THAT(refusal(R"({"denyOut":["0.0.0.0/0"],"allowOut":[")" + long_label + ".com\"]}"),
              HasSubstr("invalid allowed"));
}

TEST(Policy, ListsAreBoundedAndDeduplicated) {
  json::object network;
  json::array many;
  for (std::size_t i = 0; i <= runtime::kMaxNetworkEntries; ++i)
    many.emplace_back("1.1." + std::to_string(i / 256) + "." + std::to_string(i % 256));
  network["denyOut"] = many;
  auto refused = parse_policy(network, std::nullopt);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("at most 200 entries"));
  many.pop_back();
  network["denyOut"] = many;
  EXPECT_TRUE(parse_policy(network, std::nullopt).ok());
  EXPECT_EQ(good(R"({"denyOut":["1.1.1.1","1.1.1.1/32","1.1.1.0/24","1.1.1.7/24"]})").deny.size(),
            2u);
}

TEST(Policy, NullsAndOtherFieldsAreIgnored) {
  const Policy policy =
      good(R"({"allowOut":null,"denyOut":null,"rules":null,"egressProxy":null,)"
           R"("allowPublicTraffic":false,"maskRequestHost":"a:${PORT}","httpsPorts":[443]})");
  EXPECT_THAT(policy.allow, IsEmpty());
  EXPECT_FALSE(policy.upstream);
}

TEST(Rules, AreParsedAndLookedUp) {
  const Policy policy = good(
      R"({"rules":{"API.example.com":[{"transform":{"headers":{"X-Token":"abc","x-other":"d"}}}],)"
      R"("*.example.com":[{"transform":{"headers":{"X-Wild":"1"}}}],)"
      R"("*.b.example.com":[{"transform":{"headers":{"X-Longer":"1"}}}],)"
      R"("empty.org":[],"none.org":[{}],"bare.org":[{"transform":{}}]}})");
  ASSERT_EQ(policy.rules.size(), 3u);
  ASSERT_NE(policy.rule_for("api.EXAMPLE.com"), nullptr);
  EXPECT_EQ(policy.rule_for("api.example.com")->headers.at("X-Token"), "abc");
  EXPECT_EQ(policy.rule_for("c.example.com")->domain, "*.example.com");
  EXPECT_EQ(policy.rule_for("c.b.example.com")->domain, "*.b.example.com");
  EXPECT_EQ(policy.rule_for("example.com"), nullptr);
  EXPECT_EQ(for_kernel(policy).intercept, runtime::Intercept::web);
  // A rule is no permission.
  EXPECT_FALSE(policy.allows_domain("api.example.com"));
}

std::string rule(std::string_view headers) {
  return R"({"rules":{"a.com":[{"transform":{"headers":{)" + std::string(headers) + "}}}]}}";
}

TEST(Rules, AreChecked) {
  json::object network;
  json::object rules;
  for (int i = 0; i < 11; ++i) rules["d" + std::to_string(i) + ".com"] = json::array();
  network["rules"] = rules;
  EXPECT_EQ(parse_policy(network, {}).error().message,
            "Network rules can have at most 10 domains.");

  EXPECT_EQ(refusal(R"({"rules":{"x y":[]}})"), "Rule domain \"x y\" is not a valid domain name.");
  EXPECT_EQ(refusal(R"({"rules":{"1.1.1.1":[]}})"),
            "Rule domain \"1.1.1.1\" is not a valid domain name.");
  EXPECT_EQ(refusal(R"({"rules":{"":[]}})"), "Rule domain cannot be empty.");
  EXPECT_THAT(refusal(R"({"rules":{")" + std::string(129, 'a') + R"(":[]}})"),
              HasSubstr("longer than 128"));
  EXPECT_THAT(refusal(R"({"rules":{"a.com":[{},{}]}})"), HasSubstr("one rule per domain"));
  EXPECT_THAT(refusal(R"({"rules":{"a.com":[],"A.com":[]}})"), HasSubstr("more than once"));
  EXPECT_THAT(refusal(R"({"rules":[]})"), HasSubstr("must be an object"));
  EXPECT_THAT(refusal(R"({"rules":{"a.com":{}}})"), HasSubstr("to an array"));

  EXPECT_THAT(refusal(rule(R"("a b":"c")")), HasSubstr("not a valid header name"));
  EXPECT_THAT(refusal(rule(R"("":"c")")), HasSubstr("not a valid header name"));
  EXPECT_THAT(refusal(rule("\"" + std::string(65, 'a') + "\":\"c\"")),
              HasSubstr("not a valid header name"));
  EXPECT_EQ(good(rule("\"" + std::string(64, 'a') + "\":\"c\"")).rules.size(), 1u);
  EXPECT_THAT(refusal(rule("\"a\":\"" + std::string(2049, 'a') + "\"")), HasSubstr("longer than"));
  EXPECT_THAT(refusal(rule(R"("a":"x\r\ny: z")")), HasSubstr("characters that no header has"));
  EXPECT_THAT(refusal(rule(R"("a":"x\u0000")")), HasSubstr("characters that no header has"));
  EXPECT_THAT(refusal(rule(R"("a":1)")), HasSubstr("must be strings"));
  EXPECT_THAT(refusal(rule(R"("a":"1","A":"2")")), HasSubstr("more than once"));
  for (const char* name : {"Host", "content-length", "Transfer-Encoding", "Connection", "Upgrade"})
    EXPECT_THAT(refusal(rule("\"" + std::string(name) + "\":\"x\"")), HasSubstr("cannot be set"));
  std::string many;
  for (int i = 0; i < 21; ++i) many += (i ? ",\"h" : "\"h") + std::to_string(i) + "\":\"\"";
  EXPECT_THAT(refusal(rule(many)), HasSubstr("at most 20 headers"));
}

TEST(Rules, PlaceholdersMustNameSomethingThatExists) {
  EXPECT_EQ(refusal(rule(R"("a":"Bearer ${e2b.secrets.KEY}")")), "Secret \"KEY\" not found.");
  EXPECT_THAT(refusal(rule(R"("a":"${e2b.identity.tokens.T}")")), HasSubstr("not configured"));
  for (const char* value :
       {"${e2b.secrets.}", "${e2b.secrets.KEY", "${e2b.}", "${e2b.other.X}", "${e2b.secrets.a b}"})
    EXPECT_THAT(refusal(rule("\"a\":\"" + std::string(value) + "\"")), HasSubstr("Malformed"));
  EXPECT_EQ(good(rule(R"("a":"${other} costs $5")")).rules[0].headers.at("a"), "${other} costs $5");
}

TEST(UpstreamProxy, IsParsedAndChecked) {
  const Policy policy =
      good(R"({"egressProxy":{"address":"Proxy.example.com:1080","username":"u","password":"p"}})");
  ASSERT_TRUE(policy.upstream);
  EXPECT_EQ(policy.upstream->host, "proxy.example.com");
  EXPECT_EQ(policy.upstream->port, 1080);
  EXPECT_EQ(policy.upstream->username, "u");
  EXPECT_EQ(for_kernel(policy).intercept, runtime::Intercept::tcp);
  EXPECT_EQ(good(R"({"egressProxy":{"address":"203.0.113.7:1080"}})").upstream->host,
            "203.0.113.7");
  for (const char* address : {"", "host", "host:", ":1", "host:0", "host:65536", "host:1x", "a b:1",
                              "[::1]:1080", "1.2.3:80"})
    EXPECT_THAT(refusal(R"({"egressProxy":{"address":")" + std::string(address) + "\"}}"),
                HasSubstr("must be host:port"))
        << address;
  for (const char* host : {"127.0.0.1", "10.1.1.1", "169.254.169.254", "192.168.0.1", "0.0.0.0"})
    EXPECT_THAT(refusal(R"({"egressProxy":{"address":")" + std::string(host) + ":1\"}}"),
                HasSubstr("not a public address"));
  EXPECT_THAT(refusal(R"({"egressProxy":{"address":"h:1","password":"p"}})"),
              HasSubstr("requires a username"));
  EXPECT_THAT(
      refusal(R"({"egressProxy":{"address":"h:1","username":")" + std::string(256, 'u') + "\"}}"),
      HasSubstr("at most 255"));
  EXPECT_THAT(refusal(R"({"egressProxy":{}})"), HasSubstr("address is required"));
  EXPECT_THAT(refusal(R"({"egressProxy":"h:1"})"), HasSubstr("must be an object"));
}

TEST(Table, AnEntryBelongsToOneSandbox) {
  Table table;
  const auto first = *SandboxId::parse("one");
  const auto second = *SandboxId::parse("two");
  EXPECT_EQ(table.find(ip("10.0.0.1")), nullptr);
  table.set(ip("10.0.0.1"), first, Policy{});
  table.set(ip("10.0.0.1"), second, Policy{});
  table.remove(ip("10.0.0.1"), first);  // late: the address already has another owner
  ASSERT_NE(table.find(ip("10.0.0.1")), nullptr);
  EXPECT_EQ(table.find(ip("10.0.0.1"))->sandbox, second);
  table.remove(ip("10.0.0.1"), second);
  EXPECT_EQ(table.find(ip("10.0.0.1")), nullptr);
}

}  // namespace
}  // namespace atl::egress
