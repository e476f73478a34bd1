#include "api_server/decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"

namespace atl::api {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(DecodeCreate, WhatTheSdksSend) {
  auto js = decode_create(
      R"({"templateID":"base","timeout":300,"secure":true,"allow_internet_access":true,
                              "metadata":{"a":"b"},"envVars":{"X":"1"},"mcp":null})",
      ApiVersion::v1);
  ASSERT_TRUE(js.ok()) << js.error().message;
  EXPECT_EQ(js->template_reference, "base");
  EXPECT_EQ(js->timeout, seconds(300));
  EXPECT_TRUE(js->secure);
  EXPECT_EQ(js->allow_internet, true);
  EXPECT_EQ(js->metadata, (store::StringMap{{"a", "b"}}));
  EXPECT_EQ(js->envs, (store::StringMap{{"X", "1"}}));
}

TEST(DecodeCreate, DefaultsDifferByVersion) {
  auto v1 = decode_create(R"({"templateID":"base"})", ApiVersion::v1);
  ASSERT_TRUE(v1.ok());
  EXPECT_EQ(v1->timeout, seconds(15));
  EXPECT_FALSE(v1->secure);
  auto v2 = decode_create(R"({"templateID":"base","secure":false})", ApiVersion::v2);
  ASSERT_TRUE(v2.ok());
  EXPECT_EQ(v2->timeout, seconds(300));
  EXPECT_TRUE(v2->secure);
}

TEST(DecodeCreate, WrongShapesAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "body is required"},
      {"{", "malformed JSON"},
      {"[]", "must be a JSON object"},
      {"null", "must be a JSON object"},
      {"{}", "'templateID' is missing"},
      {R"({"templateID":1})", "'templateID' must be a string"},
      {R"({"templateID":"base","timeout":"300"})", "'timeout' must be an integer"},
      {R"({"templateID":"base","timeout":1.5})", "'timeout' must be"},
      {R"({"templateID":"base","timeout":-1})", "'timeout' must be at least 0"},
      {R"({"templateID":"base","timeout":99999999999})", "32-bit"},
      {R"({"templateID":"base","metadata":{"a":1}})", "'metadata.a' must be a string"},
      {R"({"templateID":"base","metadata":[]})", "'metadata' must be an object"},
      {R"({"templateID":"base","envVars":{"A=B":"x"}})", "'envVars'"},
      {R"({"templateID":"base","envVars":{"A":"x\u0000y"}})", "'envVars'"},
      {R"({"templateID":"base","envVars":{"":"x"}})", "'envVars'"},
      {R"({"templateID":"base","secure":"yes"})", "'secure' must be a boolean"},
      {R"({"templateID":"base","autoResume":{}})", "autoResume.enabled"},
      {R"({"templateID":"base","network":{"denyOut":"x"}})", "denyOut must be an array"},
      {R"({"templateID":"base","network":{"maskRequestHost":"a b"}})", "maskRequestHost"},
      {R"({"templateID":"base","network":{"maskRequestHost":"a\r\nX: y"}})", "maskRequestHost"},
      {R"({"templateID":"base","volumeMounts":{}})", "'volumeMounts' must be an array"},
      {"{\"templateID\":\"\xff\"}", "malformed JSON"},
  };
  for (const auto& [body, message] : cases) {
    auto decoded = decode_create(body, ApiVersion::v1);
    ASSERT_FALSE(decoded.ok()) << body;
    EXPECT_EQ(decoded.error().code, Errc::invalid_argument) << body;
    EXPECT_THAT(decoded.error().message, StartsWith("validation error: ")) << body;
    EXPECT_THAT(decoded.error().message, HasSubstr(message)) << body;
  }
}

TEST(DecodeCreate, RulesBetweenFields) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"templateID":"base","autoPauseMemory":false})", "autoPauseMemory"},
      {R"({"templateID":"base","autoPause":true,"autoPauseMemory":false,"autoResume":{"enabled":true}})",
       "autoResume"},
      {R"({"templateID":"base","network":{"allowPublicTraffic":false}})",
       "You cannot create a sandbox without public access unless you enable secure envd access via "
       "'secure' flag."},
      {R"({"templateID":"base","network":{"denyOut":["example.com"]}})",
       "invalid denied CIDR example.com"},
      {R"({"templateID":"base","network":{"denyOut":["0.0.0.0"]}})", "invalid denied CIDR 0.0.0.0"},
      {R"({"templateID":"base","network":{"denyOut":["1.2.3.4/33"]}})", "invalid denied CIDR"},
      {R"({"templateID":"base","network":{"allowOut":["example.com"]}})",
       "you must include 'ALL_TRAFFIC' in deny out"},
  };
  for (const auto& [body, message] : cases) {
    auto decoded = decode_create(body, ApiVersion::v1);
    ASSERT_FALSE(decoded.ok()) << body;
    EXPECT_EQ(decoded.error().code, Errc::invalid_argument) << body;
    EXPECT_THAT(decoded.error().message, HasSubstr(message)) << body;
  }
}

TEST(DecodeCreate, WhatCannotBeDoneIsSaid) {
  auto mounts = decode_create(R"({"templateID":"base","volumeMounts":[{"name":"v","path":"/v"}]})",
                              ApiVersion::v2);
  ASSERT_FALSE(mounts.ok());
  EXPECT_EQ(mounts.error().code, Errc::unimplemented);
  EXPECT_THAT(mounts.error().message, HasSubstr("volumeMounts is not supported"));
  constexpr const char* kRules =
      R"({"templateID":"base","network":{"rules":{"a.com":[{"transform":{"headers":{"X":"y"}}}]}}})";
  EXPECT_TRUE(decode_create(kRules, ApiVersion::v2).ok());
  auto rules = decode_create(kRules, ApiVersion::v2, Features{.header_rules = false});
  ASSERT_FALSE(rules.ok());
  EXPECT_EQ(rules.error().code, Errc::invalid_argument);
  EXPECT_THAT(rules.error().message,
              StartsWith("Network transform rules are not available for your team."));
}

TEST(DecodeCreate, EverythingThatClientsMaySend) {
  for (
      const char* body :
      {R"({"templateID":"base","autoPause":false,"autoPauseMemory":true,"autoResume":{"enabled":false},"volumeMounts":[]})",
       R"({"templateID":"base","iam":{"tokens":{"t":{"audience":"a","tokenType":"JWT-SVID"}}},"mcp":{"x":{}}})",
       R"({"templateID":"base","iam":{}})",
       R"({"templateID":"base","network":{"rules":{},"httpsPorts":[],"allowOut":["1.1.1.1"],"denyOut":["0.0.0.0/0"]}})",
       R"({"templateID":"base","network":{"httpsPorts":[8443,443]}})",
       R"({"templateID":"base","network":{"maskRequestHost":"${PORT}.example.com"}})",
       R"({"templateID":"base","network":{"egressProxy":{"address":"93.184.216.34:1080","username":"u","password":"p"}}})",
       R"({"templateID":"base","allow_internet_access":false,"network":{"allowOut":["example.com"]}})",
       R"({"templateID":"base","somethingNew":[1,2,3]})"}) {
    auto decoded = decode_create(body, ApiVersion::v2);
    EXPECT_TRUE(decoded.ok()) << body << ": " << (decoded.ok() ? "" : decoded.error().message);
  }
}

TEST(DecodeCreate, Lifecycle) {
  auto plain = decode_create(R"({"templateID":"base"})", ApiVersion::v2);
  ASSERT_TRUE(plain.ok());
  EXPECT_FALSE(plain->auto_pause);
  EXPECT_TRUE(plain->auto_pause_memory);
  EXPECT_FALSE(plain->auto_resume);
  auto resumes = decode_create(
      R"({"templateID":"base","autoPause":true,"autoResume":{"enabled":true}})", ApiVersion::v1);
  ASSERT_TRUE(resumes.ok());
  EXPECT_TRUE(resumes->auto_pause && resumes->auto_resume && resumes->auto_pause_memory);
  auto disk = decode_create(R"({"templateID":"base","autoPause":true,"autoPauseMemory":false})",
                            ApiVersion::v1);
  ASSERT_TRUE(disk.ok());
  EXPECT_FALSE(disk->auto_pause_memory);
}

TEST(DecodeCreate, IamTokens) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"t":{"tokenType":"JWT-SVID"}})", "iam.tokens.t.audience: audience is required"},
      {R"({"t":{"audience":"","tokenType":"JWT-SVID"}})",
       "iam.tokens.t.audience: audience is required"},
      {R"({"t":{"audience":"a"}})", "iam.tokens.t.tokenType: must be 'JWT-SVID'"},
      {R"({"t":{"audience":"a","tokenType":"X"}})", "iam.tokens.t.tokenType: must be 'JWT-SVID'"},
      {R"({"":{"audience":"a","tokenType":"JWT-SVID"}})", "token name must not be empty"},
      {R"({"t":1})", "'iam.tokens.t' must be an object"},
      {R"([])", "'iam.tokens' must be an object"},
      {R"({"a":{},"b":{},"c":{},"d":{},"e":{},"f":{}})", "at most 5 tokens"},
  };
  for (const auto& [tokens, message] : cases) {
    auto decoded = decode_create(
        std::string(R"({"templateID":"base","iam":{"tokens":)") + tokens + "}}", ApiVersion::v2);
    ASSERT_FALSE(decoded.ok()) << tokens;
    EXPECT_EQ(decoded.error().code, Errc::invalid_argument) << tokens;
    EXPECT_THAT(decoded.error().message, HasSubstr(message)) << tokens;
  }
}

TEST(DecodeCreate, HttpsPorts) {
  for (const char* ports : {"[49983]", "[0]", "[65536]", "[\"443\"]", "443", "[1.5]"}) {
    auto decoded = decode_create(
        std::string(R"({"templateID":"base","network":{"httpsPorts":)") + ports + "}}",
        ApiVersion::v2);
    ASSERT_FALSE(decoded.ok()) << ports;
    EXPECT_EQ(decoded.error().code, Errc::invalid_argument);
    EXPECT_THAT(decoded.error().message, HasSubstr("httpsPorts"));
  }
}

TEST(DecodeCreate, Masks) {
  const auto with = [](const std::string& mask) {
    return decode_create(R"({"templateID":"base","network":{"maskRequestHost":")" + mask + "\"}}",
                         ApiVersion::v2)
        .ok();
  };
  for (const char* good : {"localhost", "custom-host.example.com:8080", "h:${PORT}", "a.b:1"})
    EXPECT_TRUE(with(good)) << good;
  for (const char* bad : {"", ":80", "h:", "h:0", "h:65536", "h:a", "h:1:2", "$PORT", "h/x",
                          "${HOST}", "\u00e4", "a b", "h\\nX: y"})
    EXPECT_FALSE(with(bad)) << bad;
}

TEST(DecodeNetworkUpdate, ReplacesTheEgressPartOnly) {
  auto update = decode_network_update(
      R"({"denyOut":["8.8.8.8"],"allowPublicTraffic":false,"maskRequestHost":"x","allow_internet_access":true})");
  ASSERT_TRUE(update.ok()) << update.error().message;
  EXPECT_EQ(update->egress, R"({"denyOut":["8.8.8.8"]})");
  EXPECT_EQ(update->allow_internet, true);
  auto empty = decode_network_update("{}");
  ASSERT_TRUE(empty.ok());
  EXPECT_EQ(empty->egress, "{}");
  EXPECT_FALSE(empty->allow_internet.has_value());
  for (const char* bad : {"", "[]", "{", R"({"denyOut":["example.com"]})", R"({"denyOut":1})",
                          R"({"allow_internet_access":"no"})"}) {
    auto refused = decode_network_update(bad);
    ASSERT_FALSE(refused.ok()) << bad;
    EXPECT_EQ(refused.error().code, Errc::invalid_argument) << bad;
  }
}

TEST(DecodePause, MemoryIsKeptUnlessSaidOtherwise) {
  EXPECT_TRUE(*decode_pause(""));
  EXPECT_TRUE(*decode_pause("{}"));
  EXPECT_TRUE(*decode_pause(R"({"memory":null})"));
  EXPECT_FALSE(*decode_pause(R"({"memory":false})"));
  EXPECT_FALSE(decode_pause(R"({"memory":0})").ok());
}

TEST(DecodeResume, Defaults) {
  auto none = decode_resume("");
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->timeout, seconds(15));
  EXPECT_FALSE(none->auto_pause.has_value());
  auto both = decode_resume(R"({"timeout":60,"autoPause":true})");
  ASSERT_TRUE(both.ok());
  EXPECT_EQ(both->timeout, seconds(60));
  EXPECT_EQ(both->auto_pause, true);
  EXPECT_FALSE(decode_resume(R"({"timeout":-1})").ok());
}

TEST(DecodeCreate, PrivateTrafficAndMask) {
  auto decoded = decode_create(
      R"({"templateID":"base","network":{"allowPublicTraffic":false,"maskRequestHost":"h.example.com:${PORT}"}})",
      ApiVersion::v2);
  ASSERT_TRUE(decoded.ok());
  EXPECT_FALSE(decoded->allow_public_traffic);
  EXPECT_EQ(decoded->mask_request_host, "h.example.com:${PORT}");
  EXPECT_EQ(parse_json(decoded->network).value().at("allowPublicTraffic").as_bool(), false);
}

TEST(DecodeTimeout, Bounds) {
  EXPECT_EQ(*decode_timeout(R"({"timeout":0})"), seconds(0));
  EXPECT_EQ(*decode_timeout(R"({"timeout":-5})"), seconds(0));
  EXPECT_EQ(*decode_timeout(R"({"timeout":60.0})"), seconds(60));
  EXPECT_FALSE(decode_timeout("").ok());
  EXPECT_FALSE(decode_timeout("{}").ok());
  EXPECT_FALSE(decode_timeout(R"({"timeout":"1"})").ok());
  EXPECT_FALSE(decode_timeout(R"({"timeout":1e300})").ok());
}

TEST(DecodeConnect, BodyIsOptional) {
  for (const char* body : {"", "{}", "null"}) {
    auto decoded = decode_connect(body);
    ASSERT_TRUE(decoded.ok()) << body;
    EXPECT_EQ(decoded->timeout, seconds(300)) << body;
    EXPECT_EQ(decoded->revive, engine::Revive::as_paused) << body;
  }
  auto cold = decode_connect(R"({"timeout":7,"memory":false})");
  ASSERT_TRUE(cold.ok());
  EXPECT_EQ(cold->timeout, seconds(7));
  EXPECT_EQ(cold->revive, engine::Revive::cold);
  EXPECT_FALSE(decode_connect(R"({"timeout":-1})").ok());
  EXPECT_FALSE(decode_connect(R"({"memory":"x"})").ok());
}

TEST(DecodeRefresh, Bounds) {
  EXPECT_EQ(*decode_refresh(""), seconds(0));
  EXPECT_EQ(*decode_refresh(R"({"duration":3600})"), seconds(3600));
  EXPECT_FALSE(decode_refresh(R"({"duration":3601})").ok());
  EXPECT_FALSE(decode_refresh(R"({"duration":-1})").ok());
}

}  // namespace
}  // namespace atl::api
