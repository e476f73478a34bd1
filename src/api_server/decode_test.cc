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
      {R"({"templateID":"base","network":{"denyOut":"x"}})", "'denyOut' must be an array"},
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
  for (
      const char* body :
      {R"({"templateID":"base","autoPause":true})",
       R"({"templateID":"base","autoResume":{"enabled":true}})",
       R"({"templateID":"base","volumeMounts":[{"name":"v","path":"/v"}]})",
       R"({"templateID":"base","network":{"egressProxy":{"address":"1.2.3.4:1080"}}})",
       R"({"templateID":"base","network":{"rules":{"a.com":[{"transform":{"headers":{"X":"y"}}}]}}})"}) {
    auto decoded = decode_create(body, ApiVersion::v2);
    ASSERT_FALSE(decoded.ok()) << body;
    EXPECT_EQ(decoded.error().code, Errc::unimplemented) << body;
    EXPECT_THAT(decoded.error().message, HasSubstr("not supported")) << body;
  }
  for (
      const char* body :
      {R"({"templateID":"base","autoPause":false,"autoPauseMemory":true,"autoResume":{"enabled":false},"volumeMounts":[]})",
       R"({"templateID":"base","iam":{"tokens":{"t":{"audience":"a","tokenType":"JWT-SVID"}}},"mcp":{"x":{}}})",
       R"({"templateID":"base","network":{"rules":{},"httpsPorts":[],"allowOut":["1.1.1.1"],"denyOut":["0.0.0.0/0"]}})",
       R"({"templateID":"base","somethingNew":[1,2,3]})"}) {
    EXPECT_TRUE(decode_create(body, ApiVersion::v2).ok()) << body;
  }
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
  EXPECT_EQ(*decode_connect(""), seconds(300));
  EXPECT_EQ(*decode_connect("{}"), seconds(300));
  EXPECT_EQ(*decode_connect("null"), seconds(300));
  EXPECT_EQ(*decode_connect(R"({"timeout":7,"memory":false})"), seconds(7));
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
