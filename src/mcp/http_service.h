// HttpService: MCP over streamable HTTP, as a part of the API at /mcp.
//
//   POST    messages; a request is answered by JSON or, for a tool call, by a stream of events that
//           is kept alive until the answer is there. A client that goes away cancels its call.
//   DELETE  ends the MCP session. ?end=pause (default), keep or remove: what becomes of its sandbox
//   GET     405: this server starts no conversations
//
// `initialize` fixes what the session works with, by headers or parameters of the query:
//   X-Atoll-Session   ?session=    key of the session; default: one of its own
//   X-Atoll-Template  ?template=   template of a sandbox that has to be made
//   X-Atoll-Workspace ?workspace=  name of the workspace; default: "default"
//   X-Atoll-Internet  ?internet=   on or off
#pragma once

#include <string>

#include "api_server/service.h"
#include "mcp/dispatcher.h"
#include "mcp/session_table.h"

namespace atl::mcp {

struct HttpOptions {
  std::string domain;  // of the server; may be empty
  std::string version = "dev";
  SessionTable::Limits limits = {};
  std::chrono::milliseconds beat{5'000};  // between signs of life
};

class HttpService final : public api::Service {
 public:
  // Both outlive it. No workspaces: their tools say so.
  HttpService(session::Sessions& sessions, workspace::Workspaces* workspaces, HttpOptions options);

  std::span<const api::ServiceRoute> routes() const override;
  net::Task<Result<api::Reply>> answer(api::ServiceCall& call) override;

 private:
  net::Task<Result<api::Reply>> post(api::ServiceCall& call);
  net::Task<Result<api::Reply>> end(api::ServiceCall& call);
  Result<api::Reply> initialize(const api::ServiceCall& call, const Message& request);

  session::Sessions& sessions_;
  const HttpOptions options_;
  Dispatcher dispatcher_;
  SessionTable table_;
};

}  // namespace atl::mcp
