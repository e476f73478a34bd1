// Versions of MCP. They differ, for this server, in batches alone.
#pragma once

#include <span>
#include <string_view>

namespace atl::mcp {

// The newest first.
std::span<const std::string_view> protocol_versions();
bool is_protocol_version(std::string_view version);
// What `initialize` answers: the version that was asked for if it is known, else the newest; the
// client goes on or leaves.
std::string_view negotiate_version(std::string_view asked);
// Came with 2025-03-26 and went with the next one.
bool allows_batches(std::string_view version);

// Of a client over HTTP that sends no MCP-Protocol-Version.
inline constexpr std::string_view kAssumedVersion = "2025-03-26";

}  // namespace atl::mcp
