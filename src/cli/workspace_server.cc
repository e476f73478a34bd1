#include "cli/workspace_server.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <cerrno>
#include <cstdlib>

#include "base/ids.h"
#include "base/log.h"

namespace atl::cli {
namespace {

namespace asio = net::asio;

constexpr std::chrono::seconds kAskAgain{10};
constexpr std::chrono::seconds kFirstAnswer{4};  // of storage on another machine
constexpr std::chrono::hours kOwnDisk{24};       // no put may come before its answer

Result<std::string> storage_id(const Home& home) {
  auto known = read_file(home.storage_id_file());
  if (known.ok() && known->size() >= 8) return known->substr(0, 8);
  std::string id = random_hex(4);
  ATOLL_TRY(write_file(home.storage_id_file(), id + "\n", 0600));
  return id;
}

// Ids are this server's own; others that share the storage know the team by its name.
std::string team_name(store::Store& records, const std::string& id) {
  const auto team = records.find_team(id);
  return team.ok() && *team ? (*team)->name : id;
}

}  // namespace

Result<blobs::Location> find_storage(const std::string& option, const Home& home, ServerUser user) {
  ATOLL_TRY_ASSIGN(blobs::Location location,
                   blobs::parse_location(option.empty() ? "dir:" + home.workspaces() : option));
  if (const auto* directory = std::get_if<blobs::Directory>(&location)) {
    ATOLL_TRY(make_owned_dir(directory->path, user));
  }
  for (const char* name : {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"})
    ::unsetenv(name);
  return location;
}

WorkspaceServer::WorkspaceServer(asio::io_context& io, std::unique_ptr<blobs::BlobStore> store,
                                 std::string server, engine::Engine& engine, store::Store& records)
    : io_(io),
      store_(std::move(store)),
      workspaces_(*store_, std::move(server), {},
                  [&records](const std::string& id) { return team_name(records, id); }),
      service_(workspaces_, engine) {}

Result<std::unique_ptr<WorkspaceServer>> WorkspaceServer::create(asio::io_context& io,
                                                                 const Home& home,
                                                                 blobs::Location storage,
                                                                 engine::Engine& engine,
                                                                 store::Store& records) {
  ATOLL_TRY_ASSIGN(std::string id, storage_id(home));
  ATOLL_TRY_ASSIGN(auto store, blobs::open_store(std::move(storage)));
  return std::unique_ptr<WorkspaceServer>(
      new WorkspaceServer(io, std::move(store), std::move(id), engine, records));
}

net::Task<Result<void>> WorkspaceServer::start() {
  auto first = std::make_shared<session::Outcome<void>>();
  asio::co_spawn(asio::make_strand(io_), session::run_to(first, workspaces_.start()),
                 asio::detached);
  auto waiting = first->done.wait(store_->shared() ? kFirstAnswer : kOwnDisk);
  if (!co_await std::move(waiting)) {
    log::warn("the storage of workspaces has not answered yet; the server goes on without it",
              {{"storage", store_->describe()}});
  } else if (const auto& started = *first->result; !started.ok()) {
    if (!store_->shared() || started.error().sys_errno == EACCES)
      co_return Error(started.error()).with(store_->describe());
    log::warn("the storage of workspaces does not answer; the server goes on without it",
              {{"storage", store_->describe()}, {"error", started.error().message}});
  }
  asio::co_spawn(asio::make_strand(io_), tidy(std::move(first)), asio::detached);
  co_return Result<void>();
}

// `first` is the answer of the first try, which may still be on its way.
net::Task<void> WorkspaceServer::tidy(std::shared_ptr<session::Outcome<void>> first) {
  const bool late = !first->done.is_set();
  while (!first->done.is_set()) {
    auto waiting = first->done.wait(kAskAgain);
    co_await std::move(waiting);
  }
  bool started = first->result->ok();
  if (late && !started)
    log::warn("the storage of workspaces does not answer",
              {{"error", first->result->error().message}});
  asio::steady_timer timer(co_await asio::this_coro::executor);
  while (true) {
    if (!started) {
      auto starting = workspaces_.start();
      started = (co_await std::move(starting)).ok();
    }
    if (started) {
      auto sweeping = workspaces_.sweep();
      const auto removed = co_await std::move(sweeping);
      if (removed.ok()) {
        if (*removed > 0)
          log::info("content of workspaces that nothing names was removed",
                    {{"count", std::to_string(*removed)}});
        co_return;
      }
    }
    timer.expires_after(kAskAgain);
    auto [ec] = co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
    if (ec) co_return;
  }
}

}  // namespace atl::cli
