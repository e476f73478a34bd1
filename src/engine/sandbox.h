// Inside of the engine: one sandbox, one transition of it, the timers.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <optional>

#include "engine/completion.h"
#include "engine/engine.h"

namespace atl::engine {

// One way from a state at rest to the next. The task that performs it sets `done` exactly once,
// after `failure`; others wait.
struct Engine::Transition {
  enum class Kind : std::uint8_t { create, pause, resume, kill, network };
  explicit Transition(Kind k) : kind(k) {}

  const Kind kind;
  std::optional<Error> failure;  // guarded by Engine::mutex_
  Completion done;               // thread-safe by itself
};

// All of it is guarded by Engine::mutex_.
struct Engine::Sandbox {
  explicit Sandbox(store::SandboxRecord r) : record(std::move(r)) {}

  store::SandboxRecord record;
  Caller asked_by;                    // of the create
  std::optional<Pool::Entry> pooled;  // made ahead; it has no row until it runs
  TransitionPtr transition;           // the present or the last one
  std::shared_ptr<Route> route;       // while it runs, or is frozen and traffic may wake it
  bool abandoned = false;             // nobody waits for it any more: kill it as soon as it is made
  KillReason reason = KillReason::request;

  egress::Policy policy;
  Ipv4 address;                  // 0: none
  TransitionPtr network_change;  // one at a time

  // Metrics.
  std::optional<std::chrono::microseconds> last_cpu;
  Timestamp last_cpu_at{};
  Timestamp last_coarse{};
  std::optional<store::MetricRecord> last_metric;
  // Logs that come from the agent.
  bool pulling = false;
  bool agent_has_logs = true;
  std::int64_t agent_seq = 0;
  std::size_t lines_since_trim = 0;
};

struct Engine::Timers {
  // Made by the loops on their own strands; touch by posting to their executors.
  std::shared_ptr<net::asio::steady_timer> expiry;
  std::shared_ptr<net::asio::steady_timer> housekeeping;
  std::shared_ptr<net::asio::steady_timer> sampler;
  bool stop = false;
  net::asio::thread_pool disk{1};  // checkpoints wait for the disk
};

Error no_such_sandbox(const SandboxId& id);
// A client asked for a sandbox, not for a cgroup: what the runtime or the store could not find or
// do is our failure. Only being too busy or too slow stays what it is.
Error start_failure(Error error);
std::string milliseconds_between(Timestamp from, Timestamp to);
// Runs a call of the runtime; an exception is an internal error.
template <class T>
net::Task<Result<T>> guarded(net::Task<Result<T>> call) {
  std::optional<Result<T>> result;
  try {
    result.emplace(co_await std::move(call));
  } catch (const std::exception& e) {
    result.emplace(make_error(Errc::internal, e.what()));
  }
  co_return std::move(*result);
}

}  // namespace atl::engine
