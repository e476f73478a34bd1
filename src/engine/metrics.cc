// What sandboxes use: sampled every few seconds while they run, kept in the store.
#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/this_coro.hpp>

#include "base/log.h"
#include "engine/sandbox.h"
#include "engine/thinning.h"

namespace atl::engine {
namespace {

namespace asio = net::asio;

constexpr auto kUse = asio::as_tuple(asio::use_awaitable);
constexpr std::chrono::seconds kCoarse{60};  // one sample in so long is kept for days
constexpr std::size_t kMostSamples = 50'000;
// An agent writes lines when something starts or ends, which takes at least this much CPU time.
constexpr std::chrono::microseconds kBusy{1'000};
constexpr int kPullEvery = 12;  // rounds, for the others

}  // namespace

Result<std::vector<store::MetricRecord>> Engine::metrics(const Caller& caller, const SandboxId& id,
                                                         std::optional<Timestamp> start,
                                                         std::optional<Timestamp> end) const {
  Timestamp from;
  Timestamp to;
  {
    std::lock_guard lock(mutex_);
    ATOLL_TRY_ASSIGN(const SandboxPtr sandbox, find_locked(caller, id));
    from = start.value_or(sandbox->record.created_at);
    to = end.value_or(options_.clock());
  }
  if (start && end && *start > *end)
    return make_error(Errc::invalid_argument, "Invalid time range for metrics");
  if (from > to) return std::vector<store::MetricRecord>();
  ATOLL_TRY_ASSIGN(auto samples, store_.metrics(id, from, to, kMostSamples));
  return thin(samples, from, step_for(to - from));
}

net::Task<Result<runtime::Usage>> Engine::usage(Caller caller, SandboxId id) {
  {
    std::lock_guard lock(mutex_);
    ATOLL_CO_TRY(find_locked(caller, id));
  }
  auto asking = guarded(runtime_.usage(std::move(id)));
  co_return co_await std::move(asking);
}

std::map<std::string, store::MetricRecord> Engine::last_metrics(
    const Caller& caller, const std::vector<SandboxId>& ids) const {
  std::map<std::string, store::MetricRecord> last;
  std::lock_guard lock(mutex_);
  for (const SandboxId& id : ids) {
    const auto sandbox = find_locked(caller, id);
    if (sandbox.ok() && (*sandbox)->last_metric) last.emplace(id.str(), *(*sandbox)->last_metric);
  }
  return last;
}

net::Task<void> Engine::sampler_loop() {
  auto timer = std::make_shared<asio::steady_timer>(co_await asio::this_coro::executor);
  for (int round = 1;; ++round) {
    std::vector<SandboxPtr> running;
    {
      std::lock_guard lock(mutex_);
      if (timers_->stop) co_return;
      timers_->sampler = timer;
      timer->expires_after(options_.sample_every);
    }
    co_await timer->async_wait(kUse);
    {
      std::lock_guard lock(mutex_);
      if (timers_->stop) co_return;
      for (const auto& [id, sandbox] : sandboxes_) {
        if (sandbox->record.state == SandboxState::running) running.push_back(sandbox);
      }
    }
    std::vector<store::Sample> samples;
    for (const SandboxPtr& sandbox : running) {
      std::optional<std::chrono::microseconds> before;
      std::optional<std::chrono::microseconds> after;
      {
        std::lock_guard lock(mutex_);
        before = sandbox->last_cpu;
      }
      auto sampling = sample(sandbox);
      if (auto taken = co_await std::move(sampling)) samples.push_back(std::move(*taken));
      {
        std::lock_guard lock(mutex_);
        if (timers_->stop) break;
        after = sandbox->last_cpu;
      }
      // An agent that does not answer holds up nobody but itself.
      if (round % kPullEvery == 0 || !before || !after || *after - *before >= kBusy)
        tasks_.spawn("logs", pull_logs(sandbox));
    }
    if (auto stored = store_.insert_metrics(samples); !stored.ok())
      log::warn("metrics were not kept", {{"error", stored.error().message}});
  }
}

net::Task<void> Engine::sample_first(SandboxPtr sandbox) {
  auto sampling = sample(sandbox);
  auto taken = co_await std::move(sampling);
  if (!taken) co_return;
  if (auto stored = store_.insert_metrics({std::move(*taken)}); !stored.ok())
    log::warn("metrics were not kept", {{"error", stored.error().message}});
}

net::Task<std::optional<store::Sample>> Engine::sample(SandboxPtr sandbox) {
  const SandboxId id = sandbox->record.id;
  auto asking = guarded(runtime_.usage(id));
  auto usage = co_await std::move(asking);
  std::lock_guard lock(mutex_);
  const store::SandboxRecord& record = sandbox->record;
  if (!usage.ok() || record.state != SandboxState::running) co_return std::nullopt;
  const Timestamp current = options_.clock();
  store::MetricRecord metric;
  metric.at = current;
  metric.cpu_count = record.cpu_count;
  metric.mem_used = usage->memory_bytes;
  metric.mem_total = std::uint64_t(record.memory_mb) << 20;
  metric.mem_cache = usage->memory_cache_bytes;
  metric.disk_used = usage->disk_bytes;
  metric.disk_total =
      usage->disk_total_bytes > 0 ? usage->disk_total_bytes : std::uint64_t(record.disk_mb) << 20;
  const auto elapsed = std::chrono::duration<double>(current - sandbox->last_cpu_at).count();
  if (sandbox->last_cpu && elapsed > 0 && usage->cpu >= *sandbox->last_cpu) {
    const auto used = std::chrono::duration<double>(usage->cpu - *sandbox->last_cpu).count();
    metric.cpu_used_pct =
        std::clamp(100.0 * used / elapsed / std::max(record.cpu_count, 1u), 0.0, 100.0);
  }
  sandbox->last_cpu = usage->cpu;
  sandbox->last_cpu_at = current;
  sandbox->last_metric = metric;
  const bool coarse = current - sandbox->last_coarse >= kCoarse;
  if (coarse) sandbox->last_coarse = current;
  co_return store::Sample{id, coarse, metric};
}

}  // namespace atl::engine
