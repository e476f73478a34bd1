// Against vectors that the vendor published: of its documentation (ACS3), and of its SDK
// (AGENTRUN4).
#include "providers/acs_signature.h"

#include <gtest/gtest.h>

#include "store/crypto.h"

namespace atl::providers {
namespace {

TEST(Acs3, TheDocumentedExample) {
  ToSign request;
  request.method = "POST";
  request.path = "/";
  request.query = {{"RegionId", "cn-shanghai"},
                   {"ImageId", "win2019_1809_x64_dtc_zh-cn_40G_alibase_20230811.vhd"}};
  request.payload_hash = sha256_hex("");
  request.headers = {{"host", "ecs.cn-shanghai.aliyuncs.com"},
                     {"x-acs-action", "RunInstances"},
                     {"x-acs-content-sha256", request.payload_hash},
                     {"x-acs-date", "2023-10-26T10:22:32Z"},
                     {"x-acs-signature-nonce", "3156853299f313e23d1673dc12e1703d"},
                     {"x-acs-version", "2014-05-26"}};
  EXPECT_EQ(sha256_hex(canonical_request(request)),
            "7ea06492da5221eba5297e897ce16e55f964061054b7695beedaac1145b1e259");
  EXPECT_EQ(acs3_authorization("YourAccessKeyId", "YourAccessKeySecret", request),
            "ACS3-HMAC-SHA256 Credential=YourAccessKeyId,SignedHeaders=host;x-acs-action;"
            "x-acs-content-sha256;x-acs-date;x-acs-signature-nonce;x-acs-version,Signature="
            "06563a9e1b43f5dfe96b81484da74bceab24a1d853912eee15083a6f0f3283c0");
}

std::string agentrun_signature(std::string method, std::string path,
                               std::map<std::string, std::string> query, bool with_type) {
  ToSign request;
  request.method = std::move(method);
  request.path = std::move(path);
  request.query = std::move(query);
  request.payload_hash = kUnsignedPayload;
  request.headers = {{"host", "1431999136518149-ram.agentrun-data.cn-hangzhou.aliyuncs.com"},
                     {"x-acs-content-sha256", std::string(kUnsignedPayload)},
                     {"x-acs-date", "2026-03-06T12:00:00Z"}};
  if (with_type) request.headers["content-type"] = "application/json";
  const std::string value = agentrun4_authorization("LTAI5t5opp3xMWk2B3a4gZVq", "secret",
                                                    "20260306", "cn-hangzhou", request);
  EXPECT_TRUE(
      value.starts_with("AGENTRUN4-HMAC-SHA256 Credential=LTAI5t5opp3xMWk2B3a4gZVq/20260306"
                        "/cn-hangzhou/agentrun/aliyun_v4_request,SignedHeaders="))
      << value;
  return value.substr(value.rfind('=') + 1);
}

TEST(AgentRun4, TheVectorsOfTheSdk) {
  EXPECT_EQ(agentrun_signature("GET", "/sandboxes/sbx-xxx/health", {}, false),
            "e1479ea1aec37e55f91d82b1ccc48df2feef04184a911f91a3e3fe0e27d02610");
  EXPECT_EQ(agentrun_signature("GET", "/path", {{"foo", "bar"}, {"zoo", ""}}, false),
            "2de34f2c0ef3d6f0f6460f994ee3fea8c940241fcc2ff2f008a776f1be9b4dba");
  EXPECT_EQ(agentrun_signature("POST", "/path", {{"foo", "bar"}, {"zoo", ""}}, false),
            "a0d4e04405ddf83d93cf8b30c6064c1a68a298cf95ca6ff56be04f515b98ddbe");
  EXPECT_EQ(agentrun_signature("POST", "/path", {{"foo", "bar"}, {"zoo", ""}}, true),
            "fdcde808b0dc7526d8083e681ca9a64728e5c1e67e4c92735dfb2268ecc71fb2");
}

}  // namespace
}  // namespace atl::providers
