// Dispatcher: MCP requests to answers. Knows the protocol's methods and the tools, no transport.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "mcp/edit_locks.h"
#include "mcp/protocol/message.h"
#include "mcp/session_table.h"
#include "session/sessions.h"
#include "workspace/workspaces.h"

namespace atl::mcp {

class Dispatcher {
 public:
  // Both outlive it. No workspaces: their tools say so.
  Dispatcher(session::Sessions& sessions, workspace::Workspaces* workspaces, std::string version)
      : sessions_(sessions), workspaces_(workspaces), version_(std::move(version)) {}

  // The answer to `initialize` for a client that speaks `version` from now on.
  json::object initialize(const std::string& version) const;

  // The answer to any other request; nothing when it was cancelled. On the strand of `stop`.
  net::Task<std::optional<json::object>> answer(std::shared_ptr<McpSession> session,
                                                Message request, std::shared_ptr<Stop> stop);
  void notify(McpSession& session, const Message& notification) const;

 private:
  net::Task<std::optional<json::object>> call(std::shared_ptr<McpSession> session, Message request,
                                              std::shared_ptr<Stop> stop);

  session::Sessions& sessions_;
  workspace::Workspaces* workspaces_;
  std::string version_;
  EditLocks locks_;
};

// The version that an `initialize` asks for; empty if it names none.
std::string asked_version(const Message& request);

}  // namespace atl::mcp
