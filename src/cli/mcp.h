// `atoll mcp`: MCP over stdin and stdout, for hosts that start their servers as programs. One
// message per line; stdout is only the protocol, everything else goes to stderr.
//
// A bridge: every message is passed to /mcp of the server, whose tools do the work. When the server
// forgot the MCP session (it was restarted) the bridge begins a new one with the same sandbox, and
// the host notices nothing.
#pragma once

#include <string>

#include "base/result.h"

namespace atl::cli {

struct McpOptions {
  std::string home;
  std::string session;  // key; empty: one of its own
  std::string template_name;
  std::string workspace;
  bool no_internet = false;
  // What becomes of the sandbox at the end of the input. Neither: it is paused.
  bool keep = false;
  bool remove = false;
};

Result<int> mcp_bridge(const McpOptions& options);

}  // namespace atl::cli
