// One run of the executor. Inside of src/executor.
#pragma once

#include <atomic>
#include <optional>

#include "engine/completion.h"
#include "executor/executor.h"

namespace atl::executor {

enum class Stage : std::uint8_t { running, ended, overdue };

// `answer` belongs to the run's task until `answered` is set, to the handler afterwards.
struct Executor::Run {
  Run(RunRequest r, engine::Gate::Pass p) : request(std::move(r)), room(std::move(p)) {}

  RunRequest request;
  engine::Gate::Pass room;           // of a large body
  std::optional<SandboxId> sandbox;  // set once, with Executor::mutex_ held; then only read
  bool cancelled = false;            // guarded by Executor::mutex_
  // Of the code: whoever is first, its end or its limit of time, decides what came of it.
  std::atomic<Stage> stage = Stage::running;
  std::atomic<std::uint64_t> memory_kb = 0;  // of one that was overdue
  Answer answer;
  engine::Completion answered;
};

}  // namespace atl::executor
