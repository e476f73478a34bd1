// The REST routes of workspaces:
//
//   GET    /workspaces?limit=&nextToken=           names, with their settings
//   GET    /workspaces/{name}                      settings and what is used
//   PUT    /workspaces/{name}                      makes it, sets quotas {maxBytes?, maxFiles?,
//                                                  keepVersions?}
//   DELETE /workspaces/{name}                      with all that is in it
//   GET    /workspaces/{name}/entries?prefix=&versions=true&limit=&nextToken=
//   GET    /workspaces/{name}/files?path=&version= content
//   PUT    /workspaces/{name}/files?path=          the body becomes a new version
//   DELETE /workspaces/{name}/files?path=&recursive=true
//   POST   /workspaces/{name}/restore              {path, version}
//   POST   /workspaces/{name}/save                 {sandboxID, sandboxPath, workspacePath?}
//   POST   /workspaces/{name}/load                 {sandboxID, workspacePath, sandboxPath?,
//   version?}
//
// Content is streamed in both directions. A save or load keeps its sandbox, and resumes one that is
// paused, as by a connect with 300 seconds. The sandbox is one of this server.
#pragma once

#include "api_server/service.h"
#include "engine/engine.h"
#include "workspace/blob_workspaces.h"

namespace atl::workspace {

class WorkspaceService final : public api::Service {
 public:
  // Both outlive it.
  WorkspaceService(BlobWorkspaces& workspaces, engine::Engine& engine)
      : workspaces_(workspaces), engine_(engine) {}

  std::span<const api::ServiceRoute> routes() const override;
  net::Task<Result<api::Reply>> answer(api::ServiceCall& call) override;

 private:
  using Answer = net::Task<Result<api::Reply>>;

  Answer list_workspaces(api::ServiceCall& call);
  Answer show(api::ServiceCall& call);
  Answer configure(api::ServiceCall& call);
  Answer remove_workspace(api::ServiceCall& call);
  Answer entries(api::ServiceCall& call);
  Answer read(api::ServiceCall& call);
  Answer write(api::ServiceCall& call);
  Answer remove(api::ServiceCall& call);
  Answer restore(api::ServiceCall& call);
  Answer save(api::ServiceCall& call);
  Answer load(api::ServiceCall& call);
  // The sandbox of the caller's team, running. not_found: also when another server has it.
  net::Task<Result<client::Inside>> sandbox(engine::Caller caller, std::string id);

  BlobWorkspaces& workspaces_;
  engine::Engine& engine_;
};

}  // namespace atl::workspace
