#include "agent/filesystem.h"

#include <stdio.h>
#include <sys/stat.h>

#include <cerrno>

#include "agent/agent.h"
#include "agent/entry.h"
#include "agent/filesystem_tree.h"
#include "agent/paths.h"

namespace atl::agent {
namespace {

// os.Rename of the reference refuses every existing directory as the destination, even an empty one
// that rename(2) would replace.
Result<void> rename_path(const std::string& from, const std::string& to) {
  const std::string operation = "rename " + from;
  struct stat source{};
  if (::lstat(from.c_str(), &source) != 0) return os_error(Errc::internal, operation, to, errno);
  struct stat target{};
  if (::lstat(to.c_str(), &target) == 0 && S_ISDIR(target.st_mode)) {
    return os_error(Errc::internal, operation, to, EEXIST);
  }
  if (::rename(from.c_str(), to.c_str()) != 0) {
    return os_error(Errc::internal, operation, to, errno);
  }
  return {};
}

}  // namespace

Result<User> FilesystemService::user_of(const rpc::CallContext& call) const {
  return select_user(call.exchange.request.headers.get("Authorization"), state_.default_user());
}

Result<std::string> FilesystemService::path_of(const rpc::CallContext& call,
                                               const std::string& path) const {
  ATOLL_TRY_ASSIGN(User user, user_of(call));
  return resolve_path(path, user, state_.default_workdir());
}

net::Task<Result<filesystem::StatResponse>> FilesystemService::stat(
    rpc::CallContext& call, const filesystem::StatRequest& request) {
  ATOLL_CO_TRY_ASSIGN(std::string path, path_of(call, request.path()));
  filesystem::StatResponse response;
  if (auto read = read_entry(path, system_users(), *response.mutable_entry()); !read.ok()) {
    const bool missing = read.error().code == Errc::not_found;
    co_return std::move(read).error().with(missing ? "file not found" : "error getting file info");
  }
  co_return response;
}

net::Task<Result<filesystem::MakeDirResponse>> FilesystemService::make_dir(
    rpc::CallContext& call, const filesystem::MakeDirRequest& request) {
  ATOLL_CO_TRY_ASSIGN(User user, user_of(call));
  ATOLL_CO_TRY_ASSIGN(std::string path,
                      resolve_path(request.path(), user, state_.default_workdir()));
  struct stat st{};
  if (::stat(path.c_str(), &st) == 0) {
    if (S_ISDIR(st.st_mode)) {
      co_return make_error(Errc::already_exists, "directory already exists: " + path);
    }
    co_return make_error(Errc::invalid_argument,
                         "path already exists but it is not a directory: " + path);
  }
  if (errno != ENOENT) {
    co_return os_error(Errc::internal, "stat", path, errno).with("error getting file info");
  }
  ATOLL_CO_TRY(ensure_dirs(path, user));
  filesystem::MakeDirResponse response;
  if (auto read = read_entry(path, system_users(), *response.mutable_entry()); !read.ok()) {
    co_return std::move(read).error().with("error getting file info");
  }
  co_return response;
}

net::Task<Result<filesystem::MoveResponse>> FilesystemService::move(
    rpc::CallContext& call, const filesystem::MoveRequest& request) {
  ATOLL_CO_TRY_ASSIGN(User user, user_of(call));
  ATOLL_CO_TRY_ASSIGN(std::string source,
                      resolve_path(request.source(), user, state_.default_workdir()));
  ATOLL_CO_TRY_ASSIGN(std::string destination,
                      resolve_path(request.destination(), user, state_.default_workdir()));
  struct stat st{};
  const bool there = ::lstat(source.c_str(), &st) == 0;
  // Nothing to move: do not leave new directories behind.
  if (there || errno != ENOENT) {
    ATOLL_CO_TRY(ensure_dirs(parent_path(destination), user));
  }
  if (auto renamed = rename_path(source, destination); !renamed.ok()) {
    Error error = std::move(renamed).error();
    if (error.sys_errno == ENOENT) {
      error.code = Errc::not_found;
      co_return std::move(error).with("source file not found");
    }
    co_return std::move(error).with("error renaming");
  }
  filesystem::MoveResponse response;
  if (auto read = read_entry(destination, system_users(), *response.mutable_entry()); !read.ok()) {
    co_return std::move(read).error().with("error getting file info");
  }
  co_return response;
}

net::Task<Result<filesystem::ListDirResponse>> FilesystemService::list_dir(
    rpc::CallContext& call, const filesystem::ListDirRequest& request) {
  ATOLL_CO_TRY_ASSIGN(std::string path, path_of(call, request.path()));
  filesystem::ListDirResponse response;
  const std::uint32_t depth = request.depth() == 0 ? 1 : request.depth();
  auto listing = list_tree(std::move(path), depth, system_users(), response);
  ATOLL_CO_TRY(co_await std::move(listing));
  co_return response;
}

net::Task<Result<filesystem::RemoveResponse>> FilesystemService::remove(
    rpc::CallContext& call, const filesystem::RemoveRequest& request) {
  ATOLL_CO_TRY_ASSIGN(std::string path, path_of(call, request.path()));
  auto removing = remove_tree(std::move(path));
  if (auto removed = co_await std::move(removing); !removed.ok()) {
    co_return std::move(removed).error().with("error removing file or directory");
  }
  co_return filesystem::RemoveResponse();
}

void register_filesystem(rpc::Router& router, AgentState& state) {
  using namespace filesystem;
  auto service = std::make_shared<FilesystemService>(state);
  const std::string prefix = "/filesystem.Filesystem/";
  router.unary<StatRequest, StatResponse>(
      prefix + "Stat", [service](rpc::CallContext& call, const StatRequest& request) {
        return service->stat(call, request);
      });
  router.unary<MakeDirRequest, MakeDirResponse>(
      prefix + "MakeDir", [service](rpc::CallContext& call, const MakeDirRequest& request) {
        return service->make_dir(call, request);
      });
  router.unary<MoveRequest, MoveResponse>(
      prefix + "Move", [service](rpc::CallContext& call, const MoveRequest& request) {
        return service->move(call, request);
      });
  router.unary<ListDirRequest, ListDirResponse>(
      prefix + "ListDir", [service](rpc::CallContext& call, const ListDirRequest& request) {
        return service->list_dir(call, request);
      });
  router.unary<RemoveRequest, RemoveResponse>(
      prefix + "Remove", [service](rpc::CallContext& call, const RemoveRequest& request) {
        return service->remove(call, request);
      });
  router.server_stream<WatchDirRequest>(
      prefix + "WatchDir",
      [service](rpc::CallContext& call, const WatchDirRequest& request, rpc::MessageSink& sink) {
        return service->watch_dir(call, request, sink);
      });
  router.unary<CreateWatcherRequest, CreateWatcherResponse>(
      prefix + "CreateWatcher",
      [service](rpc::CallContext& call, const CreateWatcherRequest& request) {
        return service->create_watcher(call, request);
      });
  router.unary<GetWatcherEventsRequest, GetWatcherEventsResponse>(
      prefix + "GetWatcherEvents",
      [service](rpc::CallContext& call, const GetWatcherEventsRequest& request) {
        return service->get_watcher_events(call, request);
      });
  router.unary<RemoveWatcherRequest, RemoveWatcherResponse>(
      prefix + "RemoveWatcher",
      [service](rpc::CallContext& call, const RemoveWatcherRequest& request) {
        return service->remove_watcher(call, request);
      });
}

}  // namespace atl::agent
