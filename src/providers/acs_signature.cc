#include "providers/acs_signature.h"

#include "base/encoding.h"
#include "store/crypto.h"

namespace atl::providers {
namespace {

constexpr std::string_view kAcs3 = "ACS3-HMAC-SHA256";
constexpr std::string_view kAgentRun4 = "AGENTRUN4-HMAC-SHA256";
constexpr std::string_view kProduct = "agentrun";
constexpr std::string_view kScopeEnd = "aliyun_v4_request";

std::string names_of(const ToSign& request) {
  std::string names;
  for (const auto& [name, value] : request.headers) names += (names.empty() ? "" : ";") + name;
  return names;
}

std::string text_to_sign(std::string_view algorithm, const ToSign& request) {
  return std::string(algorithm) + "\n" + sha256_hex(canonical_request(request));
}

}  // namespace

std::string canonical_request(const ToSign& request) {
  std::string query;
  for (const auto& [name, value] : request.query)
    query += (query.empty() ? "" : "&") + percent_encode(name) + "=" + percent_encode(value);
  std::string headers;
  for (const auto& [name, value] : request.headers) headers += name + ":" + value + "\n";
  return request.method + "\n" + request.path + "\n" + query + "\n" + headers + "\n" +
         names_of(request) + "\n" + request.payload_hash;
}

std::string acs3_authorization(std::string_view key_id, std::string_view secret,
                               const ToSign& request) {
  return std::string(kAcs3) + " Credential=" + std::string(key_id) +
         ",SignedHeaders=" + names_of(request) +
         ",Signature=" + hmac_sha256_hex(secret, text_to_sign(kAcs3, request));
}

std::string agentrun4_authorization(std::string_view key_id, std::string_view secret,
                                    std::string_view date, std::string_view region,
                                    const ToSign& request) {
  std::string key = "aliyun_v4" + std::string(secret);
  for (const std::string_view part : {date, region, kProduct, kScopeEnd})
    key = hmac_sha256(key, part);
  const std::string scope = std::string(date) + "/" + std::string(region) + "/" +
                            std::string(kProduct) + "/" + std::string(kScopeEnd);
  return std::string(kAgentRun4) + " Credential=" + std::string(key_id) + "/" + scope +
         ",SignedHeaders=" + names_of(request) +
         ",Signature=" + hmac_sha256_hex(key, text_to_sign(kAgentRun4, request));
}

}  // namespace atl::providers
