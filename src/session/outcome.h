// Outcome: what a task will answer, for somebody who may stop waiting for it.
#pragma once

#include <memory>
#include <optional>

#include "engine/completion.h"
#include "engine/tasks.h"

namespace atl::session {

template <class T>
struct Outcome {
  std::optional<Result<T>> result;  // set before `done`
  engine::Completion done;
};

template <class T>
net::Task<void> run_to(std::shared_ptr<Outcome<T>> outcome, net::Task<Result<T>> work) {
  try {
    outcome->result.emplace(co_await std::move(work));
  } catch (const std::exception& e) {
    outcome->result.emplace(make_error(Errc::internal, e.what()));
  }
  outcome->done.set();
}

// Runs the work as a task of its own: a caller that goes away neither stops nor loses it. nullopt:
// it goes on after `limit`.
template <class T>
net::Task<std::optional<Result<T>>> run_apart(engine::Tasks& tasks, net::Task<Result<T>> work,
                                              std::chrono::milliseconds limit) {
  auto outcome = std::make_shared<Outcome<T>>();
  if (!tasks.spawn("session", run_to(outcome, std::move(work)))) {
    co_return std::optional<Result<T>>(
        make_error(Errc::unavailable, "the server is shutting down"));
  }
  auto waiting = outcome->done.wait(limit);
  if (!co_await std::move(waiting)) co_return std::nullopt;
  co_return std::move(outcome->result);
}

}  // namespace atl::session
