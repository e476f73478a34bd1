// The workspaces of a server: their storage, and the routes that serve them.
#pragma once

#include <boost/asio/io_context.hpp>
#include <memory>

#include "cli/home.h"
#include "engine/engine.h"
#include "session/outcome.h"
#include "store/blobs/open.h"
#include "store/store.h"
#include "workspace/blob_workspaces.h"
#include "workspace/service.h"

namespace atl::cli {

// What --blobs says, or the home's own directory. Makes a directory that is missing, takes the keys
// of a bucket out of the environment. While still root.
Result<blobs::Location> find_storage(const std::string& option, const Home& home, ServerUser user);

class WorkspaceServer {
 public:
  // `io`, `engine` and `records` outlive it. As the server's own user.
  static Result<std::unique_ptr<WorkspaceServer>> create(net::asio::io_context& io,
                                                         const Home& home, blobs::Location storage,
                                                         engine::Engine& engine,
                                                         store::Store& records);

  // Removes what earlier lives left, some of it in the background. Storage that does not answer, or
  // not within a few seconds, is asked again later: sandboxes do not wait for it. An error: it
  // never will work like this. Call on a strand.
  net::Task<Result<void>> start();

  workspace::BlobWorkspaces& workspaces() { return workspaces_; }
  api::Service& service() { return service_; }

 private:
  WorkspaceServer(net::asio::io_context& io, std::unique_ptr<blobs::BlobStore> store,
                  std::string server, engine::Engine& engine, store::Store& records);
  net::Task<void> tidy(std::shared_ptr<session::Outcome<void>> first);

  net::asio::io_context& io_;
  std::unique_ptr<blobs::BlobStore> store_;
  workspace::BlobWorkspaces workspaces_;
  workspace::WorkspaceService service_;
};

}  // namespace atl::cli
