#include "client/inside.h"

#include "client/interpreter.h"

namespace atl::client {

net::Headers headers_for(std::string host, const std::string& id, std::uint16_t port,
                         const std::string& token, const std::string& traffic_token) {
  net::Headers headers;
  headers.add("Host", std::move(host));
  headers.add("E2b-Sandbox-Id", id);
  headers.add("E2b-Sandbox-Port", std::to_string(port));
  const bool ours = port == kAgentPort || port == kInterpreterPort;
  if (ours && !token.empty()) headers.add("X-Access-Token", token);
  if (!traffic_token.empty()) headers.add("E2B-Traffic-Access-Token", traffic_token);
  return headers;
}

}  // namespace atl::client
