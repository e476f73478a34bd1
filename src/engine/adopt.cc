// Start: what an earlier run left is taken over, finished, rolled back or removed (adoption.h), a
// few at a time. The timers start afterwards, so ends that passed meanwhile take effect then. What
// may take long without harm (an agent that does not answer, remains that cannot be removed yet)
// goes on beside the first commands.
#include "base/json.h"
#include "base/log.h"
#include "engine/adoption.h"
#include "engine/sandbox.h"

namespace atl::engine {
namespace {

constexpr std::size_t kAtOnce = 16;
constexpr std::chrono::milliseconds kLimit{120'000};

// A policy that cannot be read any more lets nothing out.
egress::Policy stored_policy(const store::SandboxRecord& record) {
  auto network = parse_json(record.network);
  if (network.ok() && network->is_object()) {
    auto policy = egress::parse_policy(network->get_object(), record.allow_internet);
    if (policy.ok()) return std::move(*policy);
  }
  log::error("the network policy of a sandbox cannot be read; all traffic is denied",
             {{"sandbox", record.id.str()}});
  egress::Policy nothing;
  nothing.deny.push_back(Cidr4{Ipv4{0}, 0});
  return nothing;
}

}  // namespace

net::Task<Result<void>> Engine::adopt_all() {
  {
    std::lock_guard lock(mutex_);
    adopting_ = true;
  }
  runtime_.on_exit([this](runtime::ExitNotice notice) { on_agent_exit(notice.id); });
  ATOLL_CO_TRY_ASSIGN(auto rows, store_.live_sandboxes());
  auto listing = runtime_.list();
  auto listed = co_await std::move(listing);
  if (!listed.ok()) co_return std::move(listed).error().with("list sandboxes of an earlier run");
  std::unordered_map<SandboxId, runtime::Listed> found;
  for (runtime::Listed& one : *listed) found.emplace(one.id, std::move(one));
  if (!rows.empty() || !found.empty()) {
    log::info("looking after sandboxes of an earlier run",
              {{"recorded", std::to_string(rows.size())}, {"found", std::to_string(found.size())}});
  }
  const auto gate = std::make_shared<Gate>(kAtOnce, 2 * rows.size());
  // Set when the last task has let go of its copy.
  const auto all_done = std::make_shared<Completion>();
  auto token = std::shared_ptr<void>(all_done.get(), [all_done](void*) { all_done->set(); });
  for (store::SandboxRecord& row : rows) {
    std::optional<runtime::Listed> there;
    if (const auto entry = found.find(row.id); entry != found.end()) {
      there = std::move(entry->second);
      found.erase(entry);
    }
    tasks_.spawn("adopt", adopt(std::move(row), std::move(there), gate, token));
  }
  for (const auto& [id, one] : found) tasks_.spawn("leftover", remove_unknown(id, token));
  token.reset();
  auto wait = all_done->wait(kLimit);
  if (!co_await std::move(wait))
    log::warn("sandboxes of an earlier run are still being looked after");
  std::vector<SandboxId> exited;
  {
    std::lock_guard lock(mutex_);
    adopting_ = false;
    exited.swap(early_exits_);
  }
  for (const SandboxId& id : exited) on_agent_exit(id);
  co_return Result<void>();
}

net::Task<void> Engine::adopt(store::SandboxRecord row, std::optional<runtime::Listed> found,
                              std::shared_ptr<Gate> gate, std::shared_ptr<void> token) {
  auto entering = gate->enter(kLimit);
  auto pass = co_await std::move(entering);
  const bool over = row.end_at <= options_.clock() && !row.auto_pause;
  auto decision = decide_adoption(
      row.state, row.memory_kept,
      found ? std::optional<runtime::Condition>(found->condition) : std::nullopt, over);
  const SandboxId id = row.id;
  const Ipv4 address = found ? found->address : Ipv4{};
  log::debug("adopting", {{"sandbox", id.str()},
                          {"state", store::to_string(row.state)},
                          {"decision", to_string(decision)}});
  const auto sandbox = std::make_shared<Sandbox>(row);
  sandbox->policy = stored_policy(row);
  if (auto seq = store_.last_agent_seq(id, row.boot_id); seq.ok()) sandbox->agent_seq = *seq;

  if (decision == Adoption::thaw_and_run) {
    auto thawing = guarded(runtime_.thaw(id));
    if (auto thawed = co_await std::move(thawing); !thawed.ok()) {
      log::error("a frozen sandbox was not thawed",
                 {{"sandbox", id.str()}, {"error", thawed.error().message}});
      decision = Adoption::rest_frozen;
    } else {
      decision = Adoption::run;
    }
  }
  if (decision == Adoption::freeze) {
    auto freezing = guarded(runtime_.freeze(id));
    if (auto frozen = co_await std::move(freezing); !frozen.ok()) {
      log::error("a paused sandbox was not frozen again",
                 {{"sandbox", id.str()}, {"error", frozen.error().message}});
      decision = Adoption::stop;
    } else {
      decision = Adoption::rest_frozen;
    }
  }
  if (decision == Adoption::init_and_run) {
    auto telling = guarded(init_agent(row, options_.dial_deadline));
    if (auto told = co_await std::move(telling); !told.ok()) decision = Adoption::stop;
  }
  if (decision == Adoption::stop) {
    auto stopping = guarded(runtime_.kill(id));
    if (auto stopped = co_await std::move(stopping); !stopped.ok()) {
      log::error("a sandbox was not stopped",
                 {{"sandbox", id.str()}, {"error", stopped.error().message}});
    }
    decision = Adoption::rest_disk;
  }
  switch (decision) {
    case Adoption::run:
    case Adoption::init_and_run: {
      auto running = adopt_running(sandbox, address);
      co_await std::move(running);
      if (decision == Adoption::run) tasks_.spawn("tell", tell_again(sandbox, gate));
      break;
    }
    case Adoption::rest_frozen:
      adopt_paused(sandbox, address, true);
      break;
    case Adoption::rest_disk:
      adopt_paused(sandbox, {}, false);
      break;
    default: {
      auto burying = bury(std::move(row), decision == Adoption::lost);
      co_await std::move(burying);
    }
  }
}

// The policy first, then the route.
net::Task<void> Engine::adopt_running(SandboxPtr sandbox, Ipv4 address) {
  const SandboxId id = sandbox->record.id;
  set_address(*sandbox, address);
  auto setting = guarded(runtime_.set_network(id, egress::for_kernel(sandbox->policy)));
  if (auto set = co_await std::move(setting);
      !set.ok() && set.error().code != Errc::unimplemented) {
    // What was in force before still is.
    log::error("the network policy of a sandbox was not set again",
               {{"sandbox", id.str()}, {"error", set.error().message}});
  }
  std::lock_guard lock(mutex_);
  store::SandboxRecord& record = sandbox->record;
  if (record.state == SandboxState::pausing) set_state_locked(*sandbox, Event::pause_failed);
  if (record.state == SandboxState::resuming) {
    record.started_at = cut_to_micros(options_.clock());
    set_state_locked(*sandbox, Event::resumed);
  }
  save_locked(*sandbox);
  sandboxes_.emplace(id, sandbox);
  ++counts_.adopted;
  go_live_locked(*sandbox);
  log::info("sandbox adopted", {{"sandbox", id.str()}, {"state", "running"}});
}

// It was told before, so that it may run already; told again, it has today's certificates.
net::Task<void> Engine::tell_again(SandboxPtr sandbox, std::shared_ptr<Gate> gate) {
  auto entering = gate->enter(kLimit);
  auto pass = co_await std::move(entering);
  std::unique_lock lock(mutex_);
  store::SandboxRecord record = sandbox->record;
  lock.unlock();
  if (record.state != SandboxState::running) co_return;
  auto telling = guarded(init_agent(record, options_.dial_deadline));
  auto told = co_await std::move(telling);
  lock.lock();
  if (told.ok() || sandbox->record.state != SandboxState::running) co_return;
  // It may be busy: whoever uses it finds out, and can kill it.
  log::warn("the agent of an adopted sandbox does not answer",
            {{"sandbox", record.id.str()}, {"error", told.error().message}});
  note(*sandbox, store::LogLevel::warn, "the agent of the sandbox does not answer");
}

void Engine::adopt_paused(const SandboxPtr& sandbox, Ipv4 address, bool memory_kept) {
  if (memory_kept) set_address(*sandbox, address);
  std::lock_guard lock(mutex_);
  store::SandboxRecord& record = sandbox->record;
  if (record.state != SandboxState::paused) record.end_at = cut_to_micros(options_.clock());
  if (record.state == SandboxState::running) {
    set_state_locked(*sandbox, Event::pause);
    if (!memory_kept) {
      note(*sandbox, store::LogLevel::error,
           "the processes of the sandbox ended while the server was away; its disk is kept");
    }
  }
  if (record.state == SandboxState::pausing) set_state_locked(*sandbox, Event::paused);
  if (record.state == SandboxState::resuming) set_state_locked(*sandbox, Event::resume_failed);
  record.memory_kept = memory_kept;
  save_locked(*sandbox);
  sandboxes_.emplace(record.id, sandbox);
  ++counts_.adopted;
  log::info("sandbox adopted", {{"sandbox", record.id.str()},
                                {"state", "paused"},
                                {"kept", memory_kept ? "memory" : "disk only"}});
}

net::Task<void> Engine::bury(store::SandboxRecord row, bool lost) {
  auto destroying = destroy(row.id);
  if (auto done = co_await std::move(destroying); done.ok()) {
    record_end(std::move(row), lost);
  } else {
    log::error("a sandbox of an earlier run was not removed; trying again",
               {{"sandbox", row.id.str()}, {"error", done.error().message}});
    tasks_.spawn("bury", bury_later(std::move(row), lost));
  }
}

net::Task<void> Engine::bury_later(store::SandboxRecord row, bool lost) {
  auto again = destroy_until_gone(row.id);
  if (co_await std::move(again)) record_end(std::move(row), lost);
}

void Engine::record_end(store::SandboxRecord row, bool lost) {
  const auto sandbox = std::make_shared<Sandbox>(std::move(row));
  std::lock_guard lock(mutex_);
  const SandboxState state = sandbox->record.state;
  if (state == SandboxState::creating) {
    set_state_locked(*sandbox, Event::create_failed);
  } else {
    if (state != SandboxState::killing) set_state_locked(*sandbox, Event::kill);
    set_state_locked(*sandbox, Event::gone);
  }
  sandbox->record.end_at = options_.clock();
  save_locked(*sandbox);
  if (lost) {
    ++counts_.lost;
    log::error("a sandbox of an earlier run is lost",
               {{"sandbox", sandbox->record.id.str()}, {"state", store::to_string(state)}});
    note(*sandbox, store::LogLevel::error, "the sandbox is lost");
  } else {
    log::info("a sandbox of an earlier run was removed",
              {{"sandbox", sandbox->record.id.str()}, {"state", store::to_string(state)}});
  }
}

net::Task<void> Engine::remove_unknown(SandboxId id, std::shared_ptr<void> token) {
  log::info("removing a sandbox that no row names", {{"sandbox", id.str()}});
  auto destroying = destroy(id);
  if (auto done = co_await std::move(destroying); !done.ok()) {
    log::error("a sandbox of an earlier run was not removed",
               {{"sandbox", id.str()}, {"error", done.error().message}});
  }
}

}  // namespace atl::engine
