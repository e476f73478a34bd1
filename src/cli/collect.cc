#include "cli/collect.h"

#include <boost/asio/co_spawn.hpp>
#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/log.h"
#include "cli/instance.h"
#include "store/store.h"

namespace atl::cli {
namespace {

constexpr std::chrono::minutes kDeadline{5};

bool of_nobody(const store::SnapshotRecord& row, const std::set<std::string>& used) {
  if (row.state != store::SnapshotState::ready) return true;
  return row.internal && !used.contains(row.id);
}

net::Task<void> store_into(net::Task<Result<Removed>> task, std::optional<Result<Removed>>& into) {
  into.emplace(co_await std::move(task));
}

}  // namespace

net::Task<Result<Removed>> remove_snapshots(
    runtime::Runtime& runtime, std::function<bool(const runtime::ListedSnapshot&)> unwanted) {
  Removed out;
  auto listing = runtime.list_snapshots();
  auto listed = co_await std::move(listing);
  if (!listed.ok() && listed.error().code == Errc::unimplemented) co_return out;
  if (!listed.ok()) co_return std::move(listed).error().with("list snapshots");
  std::vector<runtime::ListedSnapshot> left;
  for (runtime::ListedSnapshot& one : *listed) {
    if (!one.whole || unwanted(one)) left.push_back(std::move(one));
  }
  for (bool progress = true; progress && !left.empty();) {
    progress = false;
    std::vector<runtime::ListedSnapshot> in_use;
    for (runtime::ListedSnapshot& one : left) {
      auto removing = runtime.remove_snapshot(one.id);
      auto removed = co_await std::move(removing);
      if (removed.ok()) {
        progress = true;
        out.bytes += one.memory_bytes + one.disk_bytes;
        out.snapshots.push_back(std::move(one.id));
      } else if (removed.error().code == Errc::failed_precondition) {
        in_use.push_back(std::move(one));
      } else if (removed.error().code != Errc::not_found) {
        log::warn("a snapshot was not removed",
                  {{"snapshot", one.id}, {"error", removed.error().message}});
        ++out.failed;
      }
    }
    left = std::move(in_use);
  }
  co_return out;
}

Result<Removed> collect_without_server(const Home& home, ServerUser user) {
  ATOLL_TRY_ASSIGN(const Instance instance,
                   Instance::claim(home, std::string(kMainInstance), user));
  std::error_code ignored;
  if (!std::filesystem::exists(home.state_db(), ignored)) {
    ATOLL_TRY(become(user));
    return Removed{};
  }
  boost::asio::io_context io;
  ATOLL_TRY_ASSIGN(auto runtime, start_runtime(io, home, instance.name(), user));
  ATOLL_TRY(become(user));  // the store's files are the server's
  ATOLL_TRY_ASSIGN(auto store, store::Store::open(home.state_db()));
  ATOLL_TRY_ASSIGN(const std::vector<store::SandboxRecord> sandboxes, store->live_sandboxes());
  ATOLL_TRY_ASSIGN(const std::vector<store::SnapshotRecord> rows, store->list_snapshots());
  std::set<std::string> used;
  for (const store::SandboxRecord& sandbox : sandboxes) {
    used.insert(sandbox.snapshot_id);
    used.insert(sandbox.rollback_id);
  }
  std::set<std::string> wanted;
  for (const store::SnapshotRecord& row : rows) {
    if (!of_nobody(row, used)) wanted.insert(row.id);
  }
  std::optional<Result<Removed>> removed;
  boost::asio::co_spawn(io,
                        store_into(remove_snapshots(*runtime,
                                                    [&wanted](const runtime::ListedSnapshot& one) {
                                                      return !wanted.contains(one.id);
                                                    }),
                                   removed),
                        [&io](std::exception_ptr) { io.stop(); });
  io.run_for(kDeadline);
  if (!removed)
    return make_error(Errc::deadline_exceeded, "removing snapshots takes too long; try again");
  if (removed->ok()) {
    for (const runtime::SnapshotId& id : (*removed)->snapshots) {
      ATOLL_TRY(store->delete_snapshot(id));
    }
  }
  return std::move(*removed);
}

}  // namespace atl::cli
