// Signatures of Alibaba Cloud's APIs, as its public documentation and SDKs define them.
//
// ACS3-HMAC-SHA256 is that of the OpenAPI gateways (header Authorization). AGENTRUN4-HMAC-SHA256 is
// that of AgentRun's data plane (header Agentrun-Authorization): the same canonical request with an
// unsigned payload, under a key that is derived from date, region and product.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace atl::providers {

struct ToSign {
  std::string method;
  std::string path;                            // as on the wire
  std::map<std::string, std::string> query;    // decoded; sorted by name
  std::map<std::string, std::string> headers;  // those that are signed; lower-case names
  std::string payload_hash;                    // hex of SHA-256, or kUnsignedPayload
};

inline constexpr std::string_view kUnsignedPayload = "UNSIGNED-PAYLOAD";

std::string canonical_request(const ToSign& request);
// Values of the headers.
std::string acs3_authorization(std::string_view key_id, std::string_view secret,
                               const ToSign& request);
// `date` is the day of x-acs-date: "20260306".
std::string agentrun4_authorization(std::string_view key_id, std::string_view secret,
                                    std::string_view date, std::string_view region,
                                    const ToSign& request);

}  // namespace atl::providers
