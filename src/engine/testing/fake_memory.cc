// Memory in files, as FakeRuntime has it: a note that a sandbox, or a snapshot, has some.
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>

#include "engine/testing/fake_runtime.h"

namespace atl::engine::testing {

namespace asio = net::asio;

net::Task<Result<runtime::MemorySupport>> FakeRuntime::memory_support() {
  std::lock_guard lock(mutex_);
  co_return durable ? runtime::MemorySupport{true, "", "4.2"}
                    : runtime::MemorySupport{false, "there is no CRIU", ""};
}

net::Task<Result<void>> FakeRuntime::write_memory(SandboxId id, std::string name) {
  const auto agent = find(id);
  if (!agent) co_return make_error(Errc::not_found, "no sandbox " + id.str());
  {
    std::lock_guard lock(mutex_);
    if (agent->condition != runtime::Condition::frozen)
      co_return make_error(Errc::internal, name + ": it is not frozen");
    if (!agent->let_go)
      co_return make_error(
          Errc::failed_precondition,
          "outside_socket: process 1 (agent) has a connection to somebody outside");
  }
  auto begin = step(name);
  ATOLL_CO_TRY(co_await std::move(begin));
  {
    std::lock_guard lock(mutex_);
    agent->dumping = true;
    agent->cancelled = false;
    ++dumping_;
    most_dumping_ = std::max(most_dumping_, dumping_);
  }
  auto working = write_until_done(agent, std::move(name));
  auto done = co_await std::move(working);
  std::lock_guard lock(mutex_);
  agent->dumping = false;
  --dumping_;
  co_return done;
}

net::Task<Result<void>> FakeRuntime::write_until_done(std::shared_ptr<Agent> agent,
                                                      std::string name) {
  asio::steady_timer timer(co_await asio::this_coro::executor);
  for (std::chrono::milliseconds gone{0}; gone < dump_takes; ++gone) {
    {
      std::lock_guard lock(mutex_);
      if (agent->cancelled) {
        calls_.push_back(name + " cancelled");
        co_return make_error(Errc::aborted, "it was cancelled");
      }
    }
    timer.expires_after(std::chrono::milliseconds(1));
    co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
  }
  co_return Result<void>();
}

net::Task<Result<runtime::Written>> FakeRuntime::dump(SandboxId id) {
  auto writing = write_memory(id, "dump");
  ATOLL_CO_TRY(co_await std::move(writing));
  const auto agent = find(id);
  if (!agent) co_return make_error(Errc::not_found, "no sandbox " + id.str());
  {
    std::lock_guard lock(mutex_);
    agent->condition = runtime::Condition::dumped;
    agent->address = Ipv4{};
  }
  auto stop = stop_agent(agent);
  co_await std::move(stop);
  auto end = after("dump");
  co_await std::move(end);
  if (fails_after == "dump") co_return make_error(Errc::internal, "the disk was not flushed");
  co_return runtime::Written{kMemoryBytes, 0, {}};
}

net::Task<Result<void>> FakeRuntime::cancel_dump(SandboxId id) {
  {
    std::lock_guard lock(mutex_);
    calls_.push_back("cancel_dump");
  }
  const auto agent = find(id);
  asio::steady_timer timer(co_await asio::this_coro::executor);
  while (agent) {
    {
      std::lock_guard lock(mutex_);
      if (!agent->dumping) break;
      agent->cancelled = true;
    }
    timer.expires_after(std::chrono::milliseconds(1));
    co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
  }
  co_return Result<void>();
}

net::Task<Result<runtime::Written>> FakeRuntime::snapshot(SandboxId id,
                                                          runtime::SnapshotId snapshot) {
  auto writing = write_memory(id, "snapshot");
  ATOLL_CO_TRY(co_await std::move(writing));
  {
    std::lock_guard lock(mutex_);
    snapshots_[snapshot] = {snapshot, true, {}, kMemoryBytes, 1 << 20};
  }
  auto end = after("snapshot");
  co_await std::move(end);
  co_return runtime::Written{kMemoryBytes, 1 << 20, {}};
}

net::Task<Result<runtime::Written>> FakeRuntime::snapshot_disk(SandboxId id,
                                                               runtime::SnapshotId snapshot) {
  auto begin = step("snapshot_disk");
  ATOLL_CO_TRY(co_await std::move(begin));
  if (!find(id)) co_return make_error(Errc::not_found, "no sandbox " + id.str());
  std::lock_guard lock(mutex_);
  snapshots_[snapshot] = {snapshot, true, {}, 0, 1 << 20};
  co_return runtime::Written{0, 1 << 20, {}};
}

net::Task<Result<void>> FakeRuntime::remove_snapshot(runtime::SnapshotId snapshot) {
  auto begin = step("remove_snapshot");
  ATOLL_CO_TRY(co_await std::move(begin));
  std::lock_guard lock(mutex_);
  for (const auto& [id, agent] : agents_) {
    if (agent->snapshot == snapshot)
      co_return make_error(Errc::failed_precondition, "a sandbox lies over it");
  }
  if (snapshots_.erase(snapshot) == 0) co_return make_error(Errc::not_found, "no such snapshot");
  co_return Result<void>();
}

net::Task<Result<std::vector<runtime::ListedSnapshot>>> FakeRuntime::list_snapshots() {
  std::lock_guard lock(mutex_);
  std::vector<runtime::ListedSnapshot> all;
  for (const auto& [id, one] : snapshots_) all.push_back(one);
  co_return all;
}

// What of a create concerns memory and snapshots, under the mutex.
Result<void> FakeRuntime::check_memory_locked(const runtime::SandboxSpec& spec) {
  const auto kept = agents_.find(spec.id);
  if (spec.memory == runtime::Memory::kept) {
    if (spec.disk != runtime::Disk::kept)
      return make_error(Errc::invalid_argument, "kept memory wants its disk");
    if (kept == agents_.end() || kept->second->condition != runtime::Condition::dumped)
      return make_error(Errc::not_found, "there is no such memory");
    return {};
  }
  if (spec.disk == runtime::Disk::kept) return {};
  if (!spec.snapshot.empty()) {
    const auto from = snapshots_.find(spec.snapshot);
    if (from == snapshots_.end()) return make_error(Errc::not_found, "no such snapshot");
    if (spec.memory == runtime::Memory::snapshot && from->second.memory_bytes == 0)
      return make_error(Errc::not_found, "it has no memory");
    if (spec.replace && kept != agents_.end() &&
        (kept->second->condition == runtime::Condition::dumped ||
         kept->second->condition == runtime::Condition::dead)) {
      agents_.erase(kept);
    }
  } else if (spec.memory == runtime::Memory::snapshot) {
    return make_error(Errc::invalid_argument, "no snapshot is named");
  }
  return {};
}

int FakeRuntime::suspends() const {
  std::lock_guard lock(mutex_);
  return suspends_;
}

std::vector<std::string> FakeRuntime::wakes() const {
  std::lock_guard lock(mutex_);
  return wakes_;
}

int FakeRuntime::dumping() const {
  std::lock_guard lock(mutex_);
  return dumping_;
}

int FakeRuntime::most_dumping() const {
  std::lock_guard lock(mutex_);
  return most_dumping_;
}

std::size_t FakeRuntime::snapshots() const {
  std::lock_guard lock(mutex_);
  return snapshots_.size();
}

}  // namespace atl::engine::testing
