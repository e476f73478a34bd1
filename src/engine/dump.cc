// Memory that goes to files. A dump is part of a pause, or comes later to a sandbox that is paused
// and frozen (tiers.cc says when). Only so many at a time; one that waits for its turn or is being
// written is cancelled by whoever wants the sandbox, which is then frozen, as before.
//
// A later dump thaws the sandbox for a moment if its agent has not let go of its connections yet:
// its row says paused all the while, so that a restart in the middle freezes it again. So does any
// dump that is refused because somebody outside was late (try_twice).
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>

#include "base/log.h"
#include "engine/sandbox.h"

namespace atl::engine {
namespace {

namespace asio = net::asio;

constexpr std::chrono::milliseconds kTurn{100};  // then it looks whether it was cancelled
constexpr std::chrono::milliseconds kCancelRetry{100};
constexpr std::chrono::seconds kAfterCancel{5};
constexpr std::chrono::seconds kAfterFailure{60};
constexpr int kMostFailures = 3;
constexpr int kFreezeTries = 10;
constexpr std::chrono::milliseconds kFreezeRetry{50};
constexpr std::size_t kMostSeconds = 512;
constexpr std::size_t kMostReason = 500;

Error cancelled() { return make_error(Errc::aborted, "the dump was cancelled"); }

}  // namespace

void remember_seconds(std::vector<double>& last, std::uint64_t& count, double seconds) {
  if (last.size() < kMostSeconds) {
    last.push_back(seconds);
  } else {
    last[count % kMostSeconds] = seconds;
  }
  ++count;
}

bool is_no_space(const Error& error) {
  return error.code == Errc::resource_exhausted && !is_transient(error);
}

// By the names of the obstacles (snapshot/scan.h); the step that found them comes before.
bool is_outside(const Error& error) {
  if (error.code != Errc::failed_precondition) return false;
  return error.message.find("outside_socket: ") != std::string::npos ||
         error.message.find("outside_process: ") != std::string::npos;
}

// Somebody wants it now. Pauses and dumps under way end as soon as they can without harm.
void Engine::cancel_dump_locked(const SandboxPtr& sandbox) {
  const TransitionPtr transition = sandbox->transition;
  if (!transition || transition->done.is_set() || transition->cancel) return;
  if (transition->kind != Transition::Kind::pause && transition->kind != Transition::Kind::dump)
    return;
  transition->cancel = true;
  if (transition->dumping) tasks_.spawn("cancel", run_cancel(sandbox->record.id, transition));
}

// Again and again: the runtime may hear of it before it hears of the dump.
net::Task<void> Engine::run_cancel(SandboxId id, TransitionPtr transition) {
  asio::steady_timer timer(co_await asio::this_coro::executor);
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      if (!transition->dumping) co_return;
    }
    auto cancelling = guarded(runtime_.cancel_dump(id));
    auto done = co_await std::move(cancelling);
    if (!done.ok()) {
      log::warn("a dump was not cancelled",
                {{"sandbox", id.str()}, {"error", done.error().message}});
    }
    timer.expires_after(kCancelRetry);
    co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
  }
}

net::Task<Result<Gate::Pass>> Engine::dump_turn(TransitionPtr transition) {
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      if (transition->cancel) co_return cancelled();
    }
    auto entering = dumps_.enter(kTurn);
    auto pass = co_await std::move(entering);
    if (pass.ok() || !is_transient(pass.error())) co_return pass;
  }
}

net::Task<std::optional<runtime::Condition>> Engine::condition_of(SandboxId id) {
  auto listing = guarded(runtime_.list());
  auto listed = co_await std::move(listing);
  if (!listed.ok()) co_return std::nullopt;
  for (const runtime::Listed& one : *listed) {
    if (one.id == id) co_return one.condition;
  }
  co_return std::nullopt;
}

// Memory that is in files is in files, however the dump's last step ended: the tree is gone.
net::Task<Result<runtime::Written>> Engine::ask_dump(SandboxId id) {
  auto dumping = guarded(runtime_.dump(id));
  auto written = co_await std::move(dumping);
  if (written.ok() || written.error().code == Errc::aborted) co_return written;
  auto looking = condition_of(id);
  if (co_await std::move(looking) != runtime::Condition::dumped) co_return written;
  log::error("a dump was made, but did not end well",
             {{"sandbox", id.str()}, {"error", written.error().message}});
  co_return runtime::Written{};
}

net::Task<Result<runtime::Written>> Engine::write_dump(SandboxPtr sandbox,
                                                       TransitionPtr transition) {
  const SandboxId id = sandbox->record.id;
  {
    std::lock_guard lock(mutex_);
    if (transition->cancel) co_return cancelled();
    transition->dumping = true;
  }
  const auto began = std::chrono::steady_clock::now();
  auto dumping = guarded(ask_dump(id));
  auto written = co_await std::move(dumping);
  const double took =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  std::lock_guard lock(mutex_);
  transition->dumping = false;
  if (written.ok()) {
    remember_seconds(counts_.dump_seconds, counts_.dumps, took);
    log::debug("dump steps", {{"sandbox", id.str()}, {"us", step_times(written->steps)}});
  } else if (written.error().code == Errc::aborted) {
    ++counts_.dumps_cancelled;
  } else {
    ++counts_.dump_failures;
  }
  co_return written;
}

net::Task<Result<runtime::Written>> Engine::dump_frozen(SandboxPtr sandbox,
                                                        TransitionPtr transition,
                                                        std::shared_ptr<Route> route) {
  auto writing = try_twice<runtime::Written>(
      sandbox, std::move(route),
      [this, sandbox, transition] { return write_dump(sandbox, transition); });
  co_return co_await std::move(writing);
}

net::Task<Result<runtime::Written>> Engine::dump_in_turn(SandboxPtr sandbox,
                                                         TransitionPtr transition,
                                                         std::shared_ptr<Route> route) {
  auto turn = dump_turn(transition);
  ATOLL_CO_TRY_ASSIGN(const Gate::Pass pass, co_await std::move(turn));
  auto writing = dump_frozen(std::move(sandbox), std::move(transition), std::move(route));
  co_return co_await std::move(writing);
}

// What became of the memory of a frozen sandbox. An error that is not of the tree itself is worth
// another try.
Engine::Rested Engine::rested(Result<runtime::Written> written) {
  Rested rest;
  if (written.ok()) {
    rest.tier = store::MemoryTier::dumped;
    rest.bytes = written->memory_bytes;
    return rest;
  }
  rest.tier = store::MemoryTier::frozen;
  const Error& error = written.error();
  switch (error.code) {
    case Errc::aborted:
    case Errc::unavailable:
      rest.again = kAfterCancel;
      break;
    case Errc::failed_precondition:
    case Errc::unimplemented:
      rest.reason = error.message.substr(0, kMostReason);
      if (is_outside(error)) rest.again = kAfterFailure;
      break;
    default:
      rest.reason = error.message.substr(0, kMostReason);
      rest.again = kAfterFailure;
  }
  return rest;
}

// As the row and the policy see it; the caller saves.
void Engine::set_rest_locked(Sandbox& sandbox, const Rested& rest) {
  store::SandboxRecord& record = sandbox.record;
  const bool first = record.memory_tier == store::MemoryTier::none;
  record.memory_tier = rest.tier;
  record.memory_bytes = rest.bytes;
  sandbox.dump_at.reset();
  if (rest.tier == store::MemoryTier::dumped) {
    record.memory_kept = true;
    record.memory_reason.clear();
    sandbox.frozen_bytes = 0;
    sandbox.dump_failures = 0;
    log::info("the memory of a sandbox is in files",
              {{"sandbox", record.id.str()}, {"bytes", std::to_string(rest.bytes)}});
  } else if (rest.tier == store::MemoryTier::frozen) {
    record.memory_reason = rest.reason;
    sandbox.frozen_bytes = rest.bytes > 0 ? rest.bytes : sandbox.frozen_bytes;
    record.memory_bytes = 0;
    if (first) sandbox.frozen_at = options_.clock();
    if (!rest.reason.empty() && memory_.durable) {
      log::warn("the memory of a sandbox stays in RAM",
                {{"sandbox", record.id.str()}, {"reason", rest.reason}});
      note(sandbox, store::LogLevel::warn, "the memory of the sandbox stays in RAM",
           {{"reason", rest.reason}});
    }
    if (memory_.durable && rest.again &&
        (rest.reason.empty() || ++sandbox.dump_failures <= kMostFailures)) {
      sandbox.dump_at = options_.clock() + *rest.again;
    }
    wake_tiers_locked();
  } else {
    record.memory_reason.clear();
    sandbox.frozen_bytes = 0;
  }
}

// ---- a dump of a sandbox that is paused already ----

void Engine::begin_dump_locked(const SandboxPtr& sandbox) {
  const auto dump = std::make_shared<Transition>(Transition::Kind::dump);
  sandbox->transition = dump;
  sandbox->dump_at.reset();
  if (!tasks_.spawn("dump", run_dump(sandbox, dump))) dump->done.set();
}

net::Task<void> Engine::run_dump(SandboxPtr sandbox, TransitionPtr dump) {
  auto dumping = dump_paused(sandbox, dump);
  auto written = co_await std::move(dumping);
  const bool durable = written.ok();
  if (durable) clear_address(*sandbox);
  {
    std::lock_guard lock(mutex_);
    if (sandbox->record.state == SandboxState::paused && (durable || sandbox->record.memory_kept)) {
      set_rest_locked(*sandbox, rested(std::move(written)));
      save_locked(*sandbox);
    }
  }
  if (durable) {
    auto syncing = make_durable();
    co_await std::move(syncing);
  }
  dump->done.set();
}

net::Task<Result<runtime::Written>> Engine::dump_paused(SandboxPtr sandbox, TransitionPtr dump) {
  auto turn = dump_turn(dump);
  ATOLL_CO_TRY_ASSIGN(const Gate::Pass pass, co_await std::move(turn));
  bool ready = false;
  std::shared_ptr<Route> route;
  {
    std::lock_guard lock(mutex_);
    ready = sandbox->let_go;
    route = sandbox->route;
  }
  if (!ready) {
    auto leaving = let_go_frozen(sandbox, route);
    ATOLL_CO_TRY(co_await std::move(leaving));
  }
  auto writing = dump_frozen(std::move(sandbox), std::move(dump), std::move(route));
  co_return co_await std::move(writing);
}

// It is paused: it must not run on.
net::Task<Result<void>> Engine::freeze_surely(SandboxId id) {
  asio::steady_timer timer(co_await asio::this_coro::executor);
  for (int attempt = 1;; ++attempt) {
    auto freezing = guarded(runtime_.freeze(id));
    auto frozen = co_await std::move(freezing);
    if (frozen.ok()) co_return frozen;
    if (attempt == kFreezeTries) {
      log::error("a paused sandbox was not frozen again",
                 {{"sandbox", id.str()}, {"error", frozen.error().message}});
      co_return std::move(frozen).error().with("freeze sandbox " + id.str());
    }
    timer.expires_after(kFreezeRetry * attempt);
    co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
  }
}

}  // namespace atl::engine
