// What is done now and then: checkpoints of the store, and forgetting what is old.
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>

#include "base/log.h"
#include "engine/sandbox.h"

namespace atl::engine {
namespace {

namespace asio = net::asio;

constexpr auto kUse = asio::as_tuple(asio::use_awaitable);
constexpr std::chrono::seconds kCheckpointEvery{5};
constexpr int kPurgeEvery = 60;  // checkpoints: five minutes
constexpr std::chrono::hours kKeepAudit{90 * 24};
constexpr std::chrono::hours kKeepFineMetrics{2};

void warn_unless(const char* what, const Result<std::int64_t>& done) {
  if (!done.ok()) log::warn(what, {{"error", done.error().message}});
}

}  // namespace

net::Task<void> Engine::housekeeping_loop() {
  auto timer = std::make_shared<asio::steady_timer>(co_await asio::this_coro::executor);
  for (int round = 0;; ++round) {
    {
      std::lock_guard lock(mutex_);
      if (timers_->stop) co_return;
      timers_->housekeeping = timer;
      timer->expires_after(kCheckpointEvery);
    }
    co_await timer->async_wait(kUse);
    const bool purge = round % kPurgeEvery == 0;
    if (purge) collect_later();
    asio::post(timers_->disk, [this, purge] {
      if (purge) {
        const Timestamp current = options_.clock();
        warn_unless("old rows were not removed",
                    store_.purge_killed(current - options_.keep_killed_rows));
        warn_unless(
            "old metrics were not removed",
            store_.purge_metrics(current - kKeepFineMetrics, current - options_.keep_metrics));
        warn_unless("old rows of the audit log were not removed",
                    store_.purge_audit(current - kKeepAudit));
      }
      if (auto done = store_.checkpoint(); !done.ok()) {
        log::warn("the state file was not checkpointed", {{"error", done.error().message}});
      }
    });
  }
}

}  // namespace atl::engine
