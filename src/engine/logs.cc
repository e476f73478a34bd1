// The log of a sandbox: what happened to it, written by the engine, and what its agent tells,
// pulled now and then and when somebody looks. Bounded, kept for a while after the kill.
#include "base/log.h"
#include "engine/agent_client.h"
#include "engine/sandbox.h"

namespace atl::engine {
namespace {

constexpr std::size_t kKeepLines = 5'000;  // of one sandbox
constexpr std::size_t kTrimEvery = 500;
constexpr std::chrono::milliseconds kPullLimit{1'000};

// Nobody talks to an agent whose memory is about to be kept.
bool may_ask_for_logs(const store::SandboxRecord& record) {
  return record.state == SandboxState::running ||
         (record.state == SandboxState::pausing && !record.memory_kept);
}

}  // namespace

net::Task<Result<std::vector<store::LogRecord>>> Engine::logs(Caller caller, SandboxId id,
                                                              LogQuery query) {
  SandboxPtr sandbox;
  {
    std::lock_guard lock(mutex_);
    if (auto found = find_locked(caller, id); found.ok()) sandbox = std::move(*found);
  }
  if (sandbox) {
    auto pulling = pull_logs(sandbox);
    co_await std::move(pulling);
  } else {
    // One that was killed a while ago.
    ATOLL_CO_TRY_ASSIGN(const auto row, store_.find_sandbox(id));
    if (!row || row->team_id != caller.team_id || row->started_at == Timestamp())
      co_return no_such_sandbox(id);
  }
  co_return store_.logs(id, {.from = query.from,
                             .to = query.to,
                             .limit = query.limit,
                             .newest_first = query.newest_first,
                             .least = query.least,
                             .search = query.search});
}

void Engine::note(const Sandbox& sandbox, store::LogLevel level, std::string message,
                  StringMap fields) {
  store::LogRecord record{options_.clock(), level, std::move(message), std::move(fields)};
  if (auto kept = store_.append_logs(sandbox.record.id, {{std::move(record), {}, 0}}); !kept.ok())
    log::warn("a line of a sandbox's log was not kept", {{"error", kept.error().message}});
}

net::Task<void> Engine::pull_logs(SandboxPtr sandbox) {
  {
    std::lock_guard lock(mutex_);
    if (!may_ask_for_logs(sandbox->record)) co_return;
    if (sandbox->pulling || !sandbox->agent_has_logs) co_return;
    sandbox->pulling = true;
  }
  try {
    auto pulling = pull_logs_once(sandbox);
    co_await std::move(pulling);
  } catch (const std::exception& e) {
    log::debug("the log of an agent was not read", {{"error", e.what()}});
  }
  std::lock_guard lock(mutex_);
  sandbox->pulling = false;
}

net::Task<void> Engine::pull_logs_once(SandboxPtr sandbox) {
  const SandboxId id = sandbox->record.id;
  std::string token;
  std::string boot_id;
  std::int64_t after = 0;
  {
    std::lock_guard lock(mutex_);
    if (sandbox->record.secure) token = tokens_.access_token(id);
    boot_id = sandbox->record.boot_id;
    after = sandbox->agent_seq;
  }
  auto entering = pulls_.enter(kPullLimit);
  auto pass = co_await std::move(entering);
  if (!pass.ok()) co_return;
  {
    std::lock_guard lock(mutex_);
    if (!may_ask_for_logs(sandbox->record)) co_return;
  }
  auto dial = dial_agent(id);
  auto stream = co_await std::move(dial);
  if (!stream.ok()) co_return;
  auto asking = ask_logs(std::move(*stream), std::move(token), after, kPullLimit);
  auto answer = co_await std::move(asking);
  if (!answer.ok()) {
    if (answer.error().code == Errc::not_found) {
      std::lock_guard lock(mutex_);
      sandbox->agent_has_logs = false;
    }
    co_return;
  }
  if (answer->entries.empty()) co_return;
  std::vector<store::LogLine> lines;
  for (auto& [seq, record] : answer->entries) lines.push_back({std::move(record), boot_id, seq});
  const std::size_t count = lines.size();
  if (auto kept = store_.append_logs(id, lines); !kept.ok()) {
    log::warn("the log of an agent was not kept", {{"error", kept.error().message}});
    co_return;
  }
  bool trim = false;
  {
    std::lock_guard lock(mutex_);
    if (sandbox->record.boot_id == boot_id) sandbox->agent_seq = answer->entries.back().seq;
    sandbox->lines_since_trim += count;
    trim = sandbox->lines_since_trim >= kTrimEvery;
    if (trim) sandbox->lines_since_trim = 0;
  }
  if (!trim) co_return;
  if (auto done = store_.trim_logs(id, kKeepLines); !done.ok())
    log::warn("the log of a sandbox was not trimmed", {{"error", done.error().message}});
}

}  // namespace atl::engine
