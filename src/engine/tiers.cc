// When the memory of frozen sandboxes goes to files: `keep_frozen` after the pause, or at once when
// all of them together hold more than `max_frozen_memory`, the oldest first.
#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>

#include "base/log.h"
#include "engine/sandbox.h"
#include "engine/side_task.h"
#include "net/wake.h"

namespace atl::engine {
namespace {

namespace asio = net::asio;

constexpr auto kUse = asio::as_tuple(asio::use_awaitable);
constexpr std::chrono::milliseconds kClockCheck{1'000};  // the wall clock may be set while we wait
constexpr std::chrono::milliseconds kSupportLimit{60'000};
constexpr std::chrono::milliseconds kSyncLimit{60'000};

net::Task<void> ask_support(runtime::Runtime& runtime,
                            std::optional<Result<runtime::MemorySupport>>& into) {
  auto asking = guarded(runtime.memory_support());
  into.emplace(co_await std::move(asking));
}

}  // namespace

// Asked once: it takes a dump and a restore to find out.
net::Task<void> Engine::learn_memory_support() {
  std::optional<Result<runtime::MemorySupport>> answer;
  SideTask asking(co_await asio::this_coro::executor, ask_support(runtime_, answer));
  auto wait = asking.wait(kSupportLimit);
  if (!co_await std::move(wait)) {
    auto stop = asking.stop();
    co_await std::move(stop);
  }
  runtime::MemorySupport support;
  if (!answer) {
    support.reason = "the runtime did not say in time whether memory can go to files";
  } else if (!answer->ok()) {
    support.reason = answer->error().message;
  } else {
    support = std::move(**answer);
  }
  if (support.durable) {
    log::info("paused sandboxes keep their memory in files", {{"criu", support.version}});
  } else {
    log::warn("paused sandboxes keep their memory in RAM", {{"reason", support.reason}});
  }
  std::lock_guard lock(mutex_);
  memory_ = std::move(support);
}

// What the store says now survives a power cut.
net::Task<void> Engine::make_durable() {
  const auto done = std::make_shared<Completion>();
  asio::post(timers_->disk, [this, done] {
    if (auto synced = store_.sync(); !synced.ok())
      log::error("the state file was not synced", {{"error", synced.error().message}});
    done->set();
  });
  auto wait = done->wait(kSyncLimit);
  if (!co_await std::move(wait)) log::error("the state file was not synced in time");
}

void Engine::wake_tiers_locked() {
  if (timers_->tiers) net::wake(timers_->tiers);
}

bool Engine::is_frozen_locked(const Sandbox& sandbox) const {
  return sandbox.record.state == SandboxState::paused &&
         sandbox.record.memory_tier == store::MemoryTier::frozen;
}

// Those that are due, and as many of the oldest as the cap asks for.
void Engine::dump_due_locked(Timestamp current) {
  std::vector<SandboxPtr> frozen;
  std::uint64_t held = 0;
  for (const auto& [id, sandbox] : sandboxes_) {
    if (!is_frozen_locked(*sandbox)) continue;
    if (sandbox->transition && !sandbox->transition->done.is_set()) continue;  // on its way
    held += sandbox->frozen_bytes;
    if (sandbox->dump_at) frozen.push_back(sandbox);
  }
  std::sort(frozen.begin(), frozen.end(), [](const SandboxPtr& a, const SandboxPtr& b) {
    return a->frozen_at != b->frozen_at ? a->frozen_at < b->frozen_at
                                        : a->record.id.str() < b->record.id.str();
  });
  const std::uint64_t most = options_.max_frozen_memory;
  for (const SandboxPtr& sandbox : frozen) {
    const bool above = most > 0 && held > most && sandbox->dump_failures == 0;
    if (*sandbox->dump_at > current && !above) continue;
    held -= std::min(held, sandbox->frozen_bytes);
    begin_dump_locked(sandbox);
  }
}

net::Task<void> Engine::tiers_loop() {
  auto timer = std::make_shared<asio::steady_timer>(co_await asio::this_coro::executor);
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      if (timers_->stop || stopping_) co_return;
      timers_->tiers = timer;
      const Timestamp current = options_.clock();
      dump_due_locked(current);
      std::optional<Timestamp> next;
      for (const auto& [id, sandbox] : sandboxes_) {
        if (is_frozen_locked(*sandbox) && sandbox->dump_at)
          next = std::min(next.value_or(*sandbox->dump_at), *sandbox->dump_at);
      }
      if (next) {
        timer->expires_after(std::clamp<std::chrono::nanoseconds>(
            *next - current, std::chrono::milliseconds(1), kClockCheck));
      } else {
        timer->expires_at(asio::steady_timer::time_point::max());
      }
    }
    co_await timer->async_wait(kUse);
  }
}

// Gauges of /metrics.
void Engine::count_tiers_locked(Statistics& figures) const {
  for (const auto& [id, sandbox] : sandboxes_) {
    const store::SandboxRecord& record = sandbox->record;
    if (record.state != SandboxState::paused) continue;
    if (!record.memory_kept) {
      ++figures.paused_disk;
    } else if (record.memory_tier == store::MemoryTier::dumped) {
      ++figures.paused_dumped;
      figures.dumped_bytes += record.memory_bytes;
    } else {
      ++figures.paused_frozen;
      figures.frozen_bytes += sandbox->frozen_bytes;
    }
  }
}

}  // namespace atl::engine
