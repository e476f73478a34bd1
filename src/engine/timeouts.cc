// When sandboxes end: by whom that is moved, and the timer that acts on it.
#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/this_coro.hpp>

#include "base/log.h"
#include "engine/sandbox.h"
#include "net/wake.h"

namespace atl::engine {
namespace {

namespace asio = net::asio;

constexpr auto kUse = asio::as_tuple(asio::use_awaitable);
constexpr std::chrono::seconds kLeastRefresh{15};
constexpr std::chrono::milliseconds kClockCheck{1'000};  // the wall clock may be set while we wait
constexpr std::chrono::seconds kExpiryRetry{5};

}  // namespace

Result<void> Engine::set_timeout(const Caller& caller, const SandboxId& id,
                                 std::chrono::seconds timeout) {
  std::lock_guard lock(mutex_);
  ATOLL_TRY_ASSIGN(SandboxPtr sandbox, find_locked(caller, id));
  if (sandbox->record.state == SandboxState::paused) return no_such_sandbox(id);
  const bool still = sandbox->record.state == SandboxState::snapshotting;
  if (sandbox->record.state != SandboxState::running && !still) {
    return make_error(Errc::failed_precondition,
                      "Sandbox \"" + id.str() + "\" is changing its state; try again in a moment");
  }
  const Timestamp current = options_.clock();
  const Timestamp last = sandbox->record.started_at + options_.max_timeout;
  if (current > last) return make_error(Errc::invalid_argument, "Max instance length exceeded");
  timeout = std::clamp(timeout, std::chrono::seconds(0), options_.max_timeout);
  const Timestamp end = std::min(current + timeout, last);
  ATOLL_TRY(move_end_locked(*sandbox, end));
  audit(caller, "sandbox.timeout", id, to_rfc3339(end));
  if (timeout == std::chrono::seconds(0) && !still) {
    expiry_.remove(id);
    expire_locked(sandbox);
  }
  return {};
}

Result<void> Engine::refresh(const Caller& caller, const SandboxId& id,
                             std::chrono::seconds duration) {
  std::lock_guard lock(mutex_);
  ATOLL_TRY_ASSIGN(SandboxPtr sandbox, find_locked(caller, id));
  if (sandbox->record.state != SandboxState::running &&
      sandbox->record.state != SandboxState::snapshotting)
    return no_such_sandbox(id);
  const Timestamp last = sandbox->record.started_at + options_.max_timeout;
  const Timestamp end = std::min(options_.clock() + std::max(duration, kLeastRefresh), last);
  if (end <= sandbox->record.end_at) return {};
  ATOLL_TRY(move_end_locked(*sandbox, end));
  audit(caller, "sandbox.timeout", id, to_rfc3339(end));
  return {};
}

Result<void> Engine::move_end_locked(Sandbox& sandbox, Timestamp end) {
  store::SandboxRecord changed = sandbox.record;
  changed.end_at = end;
  ATOLL_TRY(store_.update_sandbox(changed));
  sandbox.record.end_at = end;
  if (sandbox.record.state == SandboxState::snapshotting) return {};  // set when it runs again
  expiry_.set(sandbox.record.id, end);
  wake_expiry_locked();
  return {};
}

Result<void> Engine::check_timeout(std::chrono::seconds timeout) const {
  if (timeout <= options_.max_timeout) return {};
  const auto hours = std::chrono::duration_cast<std::chrono::hours>(options_.max_timeout).count();
  return make_error(Errc::invalid_argument,
                    "Timeout cannot be greater than " + std::to_string(hours) + " hours");
}

void Engine::clock_changed() {
  std::lock_guard lock(mutex_);
  wake_expiry_locked();
}

void Engine::wake_expiry_locked() {
  if (timers_->expiry) net::wake(timers_->expiry);
}

void Engine::expire_locked(const SandboxPtr& sandbox) {
  const store::SandboxRecord& record = sandbox->record;
  const Caller timer{record.team_id, "timer", {}};
  note(*sandbox, store::LogLevel::info, "the timeout of the sandbox is over",
       {{"then", record.auto_pause ? "pause" : "kill"}});
  if (!record.auto_pause) return begin_kill_locked(sandbox, KillReason::expired, timer);
  auto begun = begin_pause_locked(sandbox, record.auto_pause_memory, timer);
  if (begun.ok()) {
    (*begun)->by_timer = true;
    return;
  }
  log::error("a sandbox was not paused at its end; trying again",
             {{"sandbox", record.id.str()}, {"error", begun.error().message}});
  expiry_.set(record.id, options_.clock() + kExpiryRetry);
}

net::Task<void> Engine::expiry_loop() {
  auto timer = std::make_shared<asio::steady_timer>(co_await asio::this_coro::executor);
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      if (timers_->stop) co_return;
      timers_->expiry = timer;
      const Timestamp current = options_.clock();
      for (const SandboxId& id : expiry_.pop_due(current)) {
        const auto found = sandboxes_.find(id);
        if (found != sandboxes_.end() && found->second->record.state == SandboxState::running) {
          expire_locked(SandboxPtr(found->second));
        }
      }
      if (const auto next = expiry_.next()) {
        timer->expires_after(std::min<std::chrono::nanoseconds>(*next - current, kClockCheck));
      } else {
        timer->expires_at(asio::steady_timer::time_point::max());
      }
    }
    co_await timer->async_wait(kUse);
  }
}

}  // namespace atl::engine
