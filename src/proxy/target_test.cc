#include "proxy/target.h"

#include <gtest/gtest.h>

namespace atl::proxy {
namespace {

net::RequestHead request(std::string host, net::Headers headers = {},
                         std::string target = "/health", std::string method = "GET") {
  net::RequestHead head;
  head.method = std::move(method);
  head.target = std::move(target);
  head.headers = std::move(headers);
  if (!host.empty()) head.headers.add("Host", std::move(host));
  return head;
}

const TargetRules kRules{"", [](std::string_view path) { return path.starts_with("/sandboxes"); }};
const TargetRules kDomain{"box.example:8443", kRules.is_control_path};

// "api", "text of a refusal", "token:<t>" or "<port>-<id>".
std::string describe(const net::RequestHead& head, const TargetRules& rules = kRules) {
  const Target target = find_target(head, rules);
  if (std::holds_alternative<ToApi>(target)) return "api";
  if (const auto* bad = std::get_if<Malformed>(&target))
    return std::to_string(bad->status) + " " + bad->text;
  if (const auto* owner = std::get_if<ToTokenOwner>(&target)) return "token:" + owner->token;
  const auto& sandbox = std::get<ToSandbox>(target);
  return std::to_string(sandbox.port) + "-" + sandbox.id.str();
}

const net::Headers kSandbox{{"E2b-Sandbox-Id", "iabc"}, {"E2b-Sandbox-Port", "49983"}};

TEST(Target, HeadersOnPlainHosts) {
  for (const char* host : {"localhost:3000", "localhost", "127.0.0.1:3000", "[::1]:3000", "::1",
                           "sandbox.e2b.app", "atoll:3000", "", "atoll.example.org"}) {
    EXPECT_EQ(describe(request(host, kSandbox)), "49983-iabc") << host;
  }
  EXPECT_EQ(describe(request("localhost",
                             {{"e2b-sandbox-id", "iabc-6532622b"}, {"e2b-sandbox-port", "8000"}})),
            "8000-iabc");
}

TEST(Target, BadHeaders) {
  EXPECT_EQ(describe(request("localhost", {{"E2b-Sandbox-Id", "iabc"}})), "400 missing header");
  EXPECT_EQ(describe(request("localhost", {{"E2b-Sandbox-Port", "1"}})), "400 missing header");
  for (const char* port : {"", "0", "65536", "x", "80x", "-1", "+80", " 80", "99999999999999"}) {
    EXPECT_EQ(
        describe(request("localhost", {{"E2b-Sandbox-Id", "iabc"}, {"E2b-Sandbox-Port", port}})),
        "400 Invalid sandbox port")
        << port;
  }
  for (const char* id : {"", "IABC", "a_b", "../x", "a b", "-a"}) {
    EXPECT_EQ(describe(request("localhost", {{"E2b-Sandbox-Id", id}, {"E2b-Sandbox-Port", "80"}})),
              "400 Invalid sandbox ID")
        << id;
  }
}

TEST(Target, HostNames) {
  EXPECT_EQ(describe(request("8000-iabc.box.example")), "8000-iabc");
  EXPECT_EQ(describe(request("8000-iabc.box.example:8443")), "8000-iabc");
  EXPECT_EQ(describe(request("8000-iabc-6532622b.box.example")), "8000-iabc");
  EXPECT_EQ(describe(request("49983-IABC.Box.Example")), "49983-iabc") << "host names have no case";
  EXPECT_EQ(describe(request("8000-iabc.anything.else")), "8000-iabc")
      << "the domain is not checked";
  EXPECT_EQ(describe(request("0-iabc.box.example")), "400 Invalid sandbox port");
  EXPECT_EQ(describe(request("70000-iabc.box.example")), "400 Invalid sandbox port");
  EXPECT_EQ(describe(request("8000-.box.example")), "400 Invalid sandbox ID");
  EXPECT_EQ(describe(request("8000-a_b.box.example")), "400 Invalid sandbox ID");
}

TEST(Target, HeadersAreIgnoredOnSandboxHosts) {
  EXPECT_EQ(describe(request("8000-iother.box.example", kSandbox)), "8000-iother");
  EXPECT_EQ(describe(request("8000-iother.box.example", {{"X-API-Key", "e2b_1"}}, "/sandboxes")),
            "8000-iother")
      << "a page of a sandbox cannot call the control plane";
}

TEST(Target, HostsBelowTheDomainMustBeSandboxHosts) {
  EXPECT_EQ(describe(request("api.box.example:8443", {}, "/sandboxes"), kDomain), "api");
  EXPECT_EQ(describe(request("box.example", {}, "/sandboxes"), kDomain), "api");
  EXPECT_EQ(describe(request("nothing.box.example"), kDomain), "400 Invalid host");
  EXPECT_EQ(describe(request("abc-def.box.example"), kDomain), "400 Invalid sandbox port");
  EXPECT_EQ(describe(request("sandbox.box.example"), kDomain), "400 Invalid host");
  EXPECT_EQ(describe(request("sandbox.box.example", kSandbox), kDomain), "49983-iabc");
  EXPECT_EQ(describe(request("my-host.example.org", {}, "/sandboxes"), kDomain), "api");
}

TEST(Target, ControlPathsWithAKeyWinOverHeaders) {
  net::Headers both = kSandbox;
  both.add("X-API-KEY", "e2b_1");
  EXPECT_EQ(describe(request("localhost", both, "/sandboxes/iabc/connect", "POST")), "api");
  EXPECT_EQ(describe(request("localhost", both, "/files?path=x")), "49983-iabc")
      << "no control path";
  EXPECT_EQ(describe(request("localhost", both, "/health")), "49983-iabc");
  EXPECT_EQ(describe(request("localhost", kSandbox, "/sandboxes/iabc/connect", "POST")),
            "49983-iabc")
      << "no key";
  const net::Headers service{
      {"E2b-Sandbox-Id", "iabc"}, {"E2b-Sandbox-Port", "8000"}, {"X-API-Key", "its own"}};
  EXPECT_EQ(describe(request("localhost", service, "/sandboxes")), "8000-iabc")
      << "services keep their paths";
}

TEST(Target, TokensWhenHeadersAreMissing) {
  EXPECT_EQ(describe(request("localhost", {{"X-Access-Token", "t"}})), "token:t");
  EXPECT_EQ(describe(request("localhost", {{"X-Access-Token", "t"}, {"X-API-Key", "e2b_1"}},
                             "/sandboxes")),
            "api");
  net::Headers all = kSandbox;
  all.add("X-Access-Token", "t");
  EXPECT_EQ(describe(request("localhost", all)), "49983-iabc");
  EXPECT_EQ(describe(request("localhost", {{"X-Access-Token", ""}})), "api");
}

TEST(Target, EverythingElseIsTheControlPlane) {
  EXPECT_EQ(describe(request("localhost:3000", {}, "/sandboxes")), "api");
  EXPECT_EQ(describe(request("127.0.0.1", {}, "/health")), "api");
  EXPECT_EQ(describe(request("", {}, "/health")), "api");
  EXPECT_EQ(describe(request("localhost", {}, "*", "OPTIONS")), "api");
}

TEST(Target, RequestsThatNameAnotherHost) {
  EXPECT_EQ(describe(request("localhost", kSandbox, "49983", "CONNECT")),
            "405 CONNECT is not supported");
  EXPECT_EQ(describe(request("localhost", {}, "example.org:443", "CONNECT")),
            "405 CONNECT is not supported");
  EXPECT_EQ(describe(request("localhost", kSandbox, "http://x/init", "POST")),
            "400 Invalid request target");
  EXPECT_EQ(describe(request("localhost", kSandbox, "init")), "400 Invalid request target");
  EXPECT_EQ(describe(request("localhost", {{"Host", "8000-iabc.box.example"}})),
            "400 Invalid host");
}

TEST(CleanPath, DecodesOnceAndCleans) {
  EXPECT_EQ(clean_path("/init"), "/init");
  EXPECT_EQ(clean_path("//init"), "/init");
  EXPECT_EQ(clean_path("/init/"), "/init");
  EXPECT_EQ(clean_path("/x/../init"), "/init");
  EXPECT_EQ(clean_path("/../../init"), "/init");
  EXPECT_EQ(clean_path("/./%69nit"), "/init");
  EXPECT_EQ(clean_path("/%2e%2e/in%69t"), "/init");
  EXPECT_EQ(clean_path("/x%2f..%2finit"), "/init");
  EXPECT_EQ(clean_path("/%2569nit"), "/%69nit");
  EXPECT_EQ(clean_path("/"), "/");
  EXPECT_EQ(clean_path(""), "/");
  EXPECT_FALSE(clean_path("/%zz"));
  EXPECT_FALSE(clean_path("/%"));
}

TEST(ReservedRoutes, AllOfThemAndNoOthers) {
  for (const char* path : {"/init", "/warm", "/suspend", "/wake", "/logs", "/freeze", "/unfreeze",
                           "/collapse", "/fsfreeze", "/fsthaw", "/upgrade"}) {
    EXPECT_TRUE(is_reserved_route(path)) << path;
  }
  for (const char* path : {"/", "/health", "/files", "/initx", "/files/init", "/Init"})
    EXPECT_FALSE(is_reserved_route(path)) << path;
}

TEST(Smuggling, AmbiguousFramingIsFound) {
  const auto find = [](net::Headers headers, int version = 11) {
    net::RequestHead head;
    head.version = version;
    head.headers = std::move(headers);
    return std::string(find_smuggling(head));
  };
  EXPECT_EQ(find({}), "");
  EXPECT_EQ(find({{"Content-Length", "5"}}), "");
  EXPECT_EQ(find({{"Transfer-Encoding", "chunked"}}), "");
  EXPECT_EQ(find({{"Content-Length", "5"}, {"content-length", "5"}}), "");
  EXPECT_NE(find({{"Content-Length", "5"}, {"content-length", "6"}}), "");
  EXPECT_NE(find({{"Content-Length", "5, 5"}}), "");
  EXPECT_NE(find({{"Content-Length", "+5"}}), "");
  EXPECT_NE(find({{"Content-Length", ""}}), "");
  EXPECT_NE(find({{"Content-Length", "5"}, {"Transfer-Encoding", "chunked"}}), "");
  EXPECT_NE(find({{"Transfer-Encoding", "identity"}}), "");
  EXPECT_NE(find({{"Transfer-Encoding", "gzip, chunked"}}), "");
  EXPECT_NE(find({{"Transfer-Encoding", "chunked"}, {"Transfer-Encoding", "chunked"}}), "");
  EXPECT_NE(find({{"Transfer-Encoding", "xchunked"}}), "");
  EXPECT_NE(find({{"Transfer-Encoding", "chunked"}}, 10), "");
}

}  // namespace
}  // namespace atl::proxy
