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
  enum class Kind : std::uint8_t { create, pause, resume, kill, network, snapshot, dump, rollback };
  explicit Transition(Kind k) : kind(k) {}

  const Kind kind;
  bool by_timer = false;         // nobody asked: a pause at the end of the timeout
  bool cancel = false;           // a dump shall end, or not begin; this and the next two are
  bool dumping = false;          // it is being written
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
  const std::shared_ptr<LastUse> last_use = std::make_shared<LastUse>();
  bool abandoned = false;  // to be killed as soon as its transition is over
  KillReason reason = KillReason::request;

  egress::Policy policy;
  Ipv4 address;                  // 0: none
  TransitionPtr network_change;  // one at a time

  // Its agent has no connection to the outside and no nursery (POST /suspend). Not known of one
  // that was adopted.
  bool let_go = false;
  // Of one that is frozen: since when, what it holds in RAM, when that goes to files (unset:
  // never).
  Timestamp frozen_at{};
  std::uint64_t frozen_bytes = 0;
  std::optional<Timestamp> dump_at;
  int dump_failures = 0;
  std::shared_ptr<Completion> warming;  // a nursery is on its way
  int talks = 0;                        // requests to its agent under way, logs apart

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
  std::shared_ptr<net::asio::steady_timer> tiers;
  bool stop = false;
  net::asio::thread_pool disk{1};  // checkpoints wait for the disk
};

Error no_such_sandbox(const SandboxId& id);
// A client asked for a sandbox, not for a cgroup: what the runtime or the store could not find or
// do is our failure. Only being too busy or too slow stays what it is.
Error start_failure(Error error);
// Processes that go on as a copy can tell by it that they are one.
std::string hostname_of_copy(const SandboxId& id);
// "range=40 disk.image=120 …": where the time of a launch went, in microseconds.
std::string step_times(const std::vector<runtime::StepTime>& steps);
// A runtime's refusal because the disk is full.
bool is_no_space(const Error& error);
// One because of a connection to the outside, or a process from there: not of the tree itself,
// whoever has it lets go of it a little later.
bool is_outside(const Error& error);
// Keeps the last ones; `count` is how many there were.
void remember_seconds(std::vector<double>& last, std::uint64_t& count, double seconds);
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

template <class T>
net::Task<Result<T>> Engine::try_twice(SandboxPtr sandbox, std::shared_ptr<Route> route,
                                       std::function<net::Task<Result<T>>()> work) {
  auto working = guarded(work());
  auto done = co_await std::move(working);
  if (done.ok()) co_return done;
  auto telling = let_go_again(std::move(sandbox), std::move(route), done.error());
  ATOLL_CO_TRY_ASSIGN(const bool again, co_await std::move(telling));
  if (!again) co_return done;
  auto trying = guarded(work());
  co_return co_await std::move(trying);
}

}  // namespace atl::engine
