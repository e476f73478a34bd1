// The filesystem service: one method per procedure of filesystem.Filesystem (wire/sandbox-agent.md
// §8, §9).
//
// Operations run with the agent's rights; the user of a call decides the home directory and the
// owner of what is made. One instance lives as long as the router that calls it.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "agent/filesystem.pb.h"
#include "agent/state.h"
#include "agent/users.h"
#include "agent/watch.h"
#include "rpc/connect.h"

namespace atl::agent {

class FilesystemService {
 public:
  explicit FilesystemService(AgentState& state) : state_(state) {}
  ~FilesystemService();

  net::Task<Result<filesystem::StatResponse>> stat(rpc::CallContext& call,
                                                   const filesystem::StatRequest& request);
  net::Task<Result<filesystem::MakeDirResponse>> make_dir(
      rpc::CallContext& call, const filesystem::MakeDirRequest& request);
  net::Task<Result<filesystem::MoveResponse>> move(rpc::CallContext& call,
                                                   const filesystem::MoveRequest& request);
  net::Task<Result<filesystem::ListDirResponse>> list_dir(
      rpc::CallContext& call, const filesystem::ListDirRequest& request);
  net::Task<Result<filesystem::RemoveResponse>> remove(rpc::CallContext& call,
                                                       const filesystem::RemoveRequest& request);

  // A stream: the watch lives as long as the call, which the router ends when the client goes away.
  net::Task<Result<void>> watch_dir(rpc::CallContext& call,
                                    const filesystem::WatchDirRequest& request,
                                    rpc::MessageSink& sink);
  // Polled watchers live until they are removed.
  net::Task<Result<filesystem::CreateWatcherResponse>> create_watcher(
      rpc::CallContext& call, const filesystem::CreateWatcherRequest& request);
  net::Task<Result<filesystem::GetWatcherEventsResponse>> get_watcher_events(
      rpc::CallContext& call, const filesystem::GetWatcherEventsRequest& request);
  net::Task<Result<filesystem::RemoveWatcherResponse>> remove_watcher(
      rpc::CallContext& call, const filesystem::RemoveWatcherRequest& request);

 private:
  struct PolledWatcher;

  Result<User> user_of(const rpc::CallContext& call) const;
  Result<std::string> path_of(const rpc::CallContext& call, const std::string& path) const;
  Result<std::shared_ptr<PolledWatcher>> find_watcher(const std::string& id) const;

  AgentState& state_;
  std::map<std::string, std::shared_ptr<PolledWatcher>, std::less<>> watchers_;
};

}  // namespace atl::agent
