// Fork: one snapshot of the source that nobody lists, then so many creates from it side by side, as
// far as the gate lets them. Each succeeds or fails by itself. The snapshot goes with the last
// sandbox that lies over it.
#include "base/log.h"
#include "engine/sandbox.h"
#include "engine/taking.h"

namespace atl::engine {
namespace {

constexpr std::chrono::milliseconds kMargin{5'000};  // each ends by itself before

}  // namespace

struct Engine::Forking {
  explicit Forking(const SandboxId& id) : source{.id = id} {}
  TakingPtr taken;
  store::SandboxRecord source;
  egress::Policy policy;
  std::vector<std::optional<Result<SandboxInfo>>> answers;  // guarded by Engine::mutex_
  std::size_t left = 0;                                     // likewise
  Completion done;
};

Result<void> Engine::check_fork(const ForkCommand& command) const {
  if (command.count < 1 || command.count > kMaxForks) {
    return make_error(Errc::invalid_argument,
                      "count must be from 1 to " + std::to_string(kMaxForks));
  }
  if (command.timeout <= std::chrono::seconds(0))
    return make_error(Errc::invalid_argument, "Timeout must be greater than 0");
  ATOLL_TRY(check_timeout(command.timeout));
  // The source takes a place too.
  for (const std::size_t limit :
       {options_.max_sandboxes, options_.max_per_team, options_.max_per_key}) {
    if (limit > 0 && std::size_t(command.count) >= limit) {
      return make_error(Errc::invalid_argument,
                        "count must be less than the maximum number of concurrent sandboxes (" +
                            std::to_string(limit) + ")");
    }
  }
  return {};
}

net::Task<Result<std::vector<Result<SandboxInfo>>>> Engine::fork(ForkCommand command) {
  {
    std::lock_guard lock(mutex_);
    ATOLL_CO_TRY(find_locked(command.caller, command.id));
  }
  ATOLL_CO_TRY(check_fork(command));
  const auto forking = std::make_shared<Forking>(command.id);
  {
    std::lock_guard lock(mutex_);
    ATOLL_CO_TRY_ASSIGN(const SandboxPtr source,
                        find_source_locked(command.caller, command.id, SnapshotFor::forks));
    forking->source = source->record;
    forking->policy = source->policy;
  }
  auto taking = take(command.caller, command.id, {}, true, SnapshotFor::forks);
  ATOLL_CO_TRY_ASSIGN(forking->taken, co_await std::move(taking));
  audit(command.caller, "sandbox.fork", command.id, std::to_string(command.count));
  const auto count = std::size_t(command.count);
  forking->answers.resize(count);
  forking->left = count;
  for (std::size_t i = 0; i < count; ++i) {
    if (!tasks_.spawn("fork", make_fork(forking, command, i)))
      answer_fork(*forking, i, make_error(Errc::unavailable, "the server is shutting down"));
  }
  auto wait = forking->done.wait(options_.queue_deadline + options_.create_deadline + kMargin);
  co_await std::move(wait);
  std::vector<Result<SandboxInfo>> answers;
  std::lock_guard lock(mutex_);
  for (auto& answer : forking->answers) {
    if (answer) {
      answers.push_back(std::move(*answer));
      answer.reset();
    } else {
      answers.push_back(make_error(Errc::deadline_exceeded, "the fork was not ready in time"));
    }
  }
  co_return answers;
}

net::Task<void> Engine::make_fork(std::shared_ptr<Forking> forking, ForkCommand command,
                                  std::size_t index) {
  Result<SandboxInfo> answer = make_error(Errc::internal, "the fork was not made");
  auto reserved = reserve_fork(command, *forking);
  if (reserved.ok()) {
    auto making = make(*reserved);
    answer = co_await std::move(making);
  } else {
    answer = std::move(reserved).error();
  }
  answer_fork(*forking, index, std::move(answer));
}

void Engine::answer_fork(Forking& forking, std::size_t index, Result<SandboxInfo> answer) {
  {
    std::lock_guard lock(mutex_);
    ++(answer.ok() ? counts_.forks_total : counts_.fork_failures);
    forking.answers[index] = std::move(answer);
    if (--forking.left > 0) return;
    forking.taken->pin.reset();
  }
  forking.done.set();
  collect_later();  // if none was made
}

// What the source is, under a new id, with an end and an owner of its own.
Result<Engine::SandboxPtr> Engine::reserve_fork(const ForkCommand& command,
                                                const Forking& forking) {
  const store::SandboxRecord& source = forking.source;
  store::SandboxRecord record = source;
  record.id = SandboxId::generate();
  record.hostname = hostname_of_copy(record.id);
  record.key_id = command.caller.key_id;
  record.state = SandboxState::creating;
  record.created_at = options_.clock();
  record.started_at = record.end_at = {};
  record.timeout = command.timeout;
  record.memory_kept = true;
  record.memory_tier = store::MemoryTier::none;
  record.memory_reason.clear();
  record.memory_bytes = 0;
  record.snapshot_id = forking.taken->record.id;
  record.rollback_id.clear();
  std::lock_guard lock(mutex_);
  ATOLL_TRY(check_room_locked(command.caller));
  const SandboxPtr sandbox = admit_locked(std::move(record), command.caller, forking.policy);
  sandbox->agent_seq = forking.taken->record.agent_seq;
  return sandbox;
}

}  // namespace atl::engine
