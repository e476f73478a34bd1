// Executor: RAGFlow's executor_manager API (GET /, GET /healthz, POST /run) over the engine.
//
// Theory of operation. A request that is well-formed becomes a *run*, a task of its own: a place of
// its language -> a fresh sandbox with the run's limit of memory -> a runner inside (runners/),
// which calls main() and leaves its value in a file -> that file and artifacts/ are read -> the
// answer. Then the sandbox is killed, and only then the place is free again. The handler waits for
// the answer; a client that goes away ends its run.
//
// Time: at the limit the sandbox is killed from outside, whatever the code or the agent inside
// think of it. What a sandbox says is untrusted and bounded.
//
// Memory: of large bodies no more are held than can run at once; others are not read yet.
//
// Sandboxes belong to one caller, marked by metadata. Those of a server that died are killed by the
// next one (sweep); failing that, they have an end of their own shortly after the limit.
//
// Threads: any. Outlives its server.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <set>

#include "client/inside.h"
#include "engine/engine.h"
#include "engine/gate.h"
#include "engine/tasks.h"
#include "executor/answer.h"
#include "executor/rate_limiter.h"
#include "executor/request.h"
#include "executor/settings.h"
#include "net/http_server.h"

namespace atl::executor {

class Executor {
 public:
  // How a sandbox of the engine is worked in.
  using Enter = std::function<client::Inside(const engine::SandboxInfo&)>;

  // `engine` outlives it. `caller` is who owns the sandboxes.
  Executor(net::asio::io_context& io, engine::Engine& engine, engine::Caller caller, Enter enter,
           Settings settings);
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Ends what an earlier server that died has left. After the engine's start, before the first
  // request.
  void sweep();
  // One request. Valid as a net::Handler.
  net::Task<void> handle(net::Exchange& exchange);
  // Refuses new runs, ends those under way with their sandboxes, waits for that.
  net::Task<void> shutdown(std::chrono::milliseconds limit);

 private:
  struct Run;
  using RunPtr = std::shared_ptr<Run>;
  // Of the runner inside.
  struct Report {
    std::uint64_t memory_kb = 0;       // the peak
    std::optional<std::string> value;  // JSON, if main() returned
  };

  bool authorized(const net::RequestHead& request) const;
  // Without a key the page of another site that a browser on this machine shows could run code.
  bool from_elsewhere(const net::RequestHead& request) const;
  net::Task<void> handle_run(net::Exchange& exchange);
  net::Task<void> health(net::Exchange& exchange);

  net::Task<void> perform(RunPtr run);
  net::Task<Answer> answer(RunPtr run);
  net::Task<Answer> in_sandbox(RunPtr run, client::Inside inside);
  net::Task<Result<std::string>> check(RunPtr run, client::Inside inside);
  net::Task<Result<Ran>> execute(RunPtr run, client::Inside inside);
  net::Task<Result<Report>> take_report(RunPtr run, client::Inside inside, std::string file);
  enum class Late : std::uint8_t { code, sandbox };
  net::Task<void> watch(RunPtr run, std::shared_ptr<engine::Completion> done,
                        std::chrono::milliseconds limit, Late late);
  net::Task<void> kill(SandboxId id);
  // Nobody wants it any more: it ends as soon as it can.
  void cancel(const RunPtr& run);
  bool is_cancelled(const RunPtr& run);
  void cancel_locked(Run& run);
  static engine::StringMap metadata_of(Language language);
  engine::CreateCommand create_command(Language language) const;
  engine::Gate& places(Language language) {
    return language == Language::python ? python_ : nodejs_;
  }

  engine::Engine& engine_;
  const engine::Caller caller_;
  const Enter enter_;
  const Settings settings_;
  engine::Gate python_;
  engine::Gate nodejs_;
  engine::Gate large_;  // requests with a large body, from its first byte to the end of the run
  std::optional<RateLimiter> limiter_;
  engine::Tasks tasks_;
  std::mutex mutex_;  // guards the runs
  std::set<RunPtr> runs_;
  bool closed_ = false;
};

}  // namespace atl::executor
