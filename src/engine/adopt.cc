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
  const AdoptionRow facts{row.state, row.memory_kept, row.memory_tier,
                          row.end_at <= options_.clock() && !row.auto_pause};
  auto decision = decide_adoption(
      facts, found ? std::optional<runtime::Condition>(found->condition) : std::nullopt);
  const SandboxId id = row.id;
  const Ipv4 address = found ? found->address : Ipv4{};
  log::debug("adopting", {{"sandbox", id.str()},
                          {"state", store::to_string(row.state)},
                          {"decision", to_string(decision)}});
  const auto sandbox = std::make_shared<Sandbox>(row);
  sandbox->policy = stored_policy(row);
  if (auto seq = store_.last_agent_seq(id, row.boot_id); seq.ok()) sandbox->agent_seq = *seq;
  auto settling = settle(decision, row);
  decision = co_await std::move(settling);
  switch (decision) {
    case Adoption::run:
    case Adoption::init_and_run:
    case Adoption::wake_and_run: {
      auto running = adopt_running(sandbox, address);
      co_await std::move(running);
      if (decision == Adoption::run) tasks_.spawn("tell", tell_again(sandbox, gate));
      break;
    }
    case Adoption::rest_frozen: {
      auto asking = guarded(runtime_.usage(id));
      if (auto usage = co_await std::move(asking); usage.ok())
        sandbox->frozen_bytes = usage->memory_bytes;
      adopt_paused(sandbox, address, store::MemoryTier::frozen);
      break;
    }
    case Adoption::rest_dumped:
      adopt_paused(sandbox, {}, store::MemoryTier::dumped);
      break;
    case Adoption::rest_disk:
      adopt_paused(sandbox, {}, store::MemoryTier::none);
      break;
    default: {
      auto burying = bury(std::move(row), decision == Adoption::lost);
      co_await std::move(burying);
    }
  }
}

net::Task<Adoption> Engine::settle(Adoption decision, store::SandboxRecord row) {
  const SandboxId id = row.id;
  if (decision == Adoption::thaw_and_run) {
    auto thawing = guarded(runtime_.thaw(id));
    auto thawed = co_await std::move(thawing);
    if (thawed.ok()) co_return Adoption::run;
    log::error("a frozen sandbox was not thawed",
               {{"sandbox", id.str()}, {"error", thawed.error().message}});
    co_return Adoption::rest_frozen;
  }
  if (decision == Adoption::wake_and_run) {
    auto waking = guarded(wake_agent(row, false, options_.dial_deadline));
    auto woken = co_await std::move(waking);
    if (woken.ok()) co_return decision;
    log::error("a sandbox whose memory came from files does not answer; it is paused",
               {{"sandbox", id.str()}, {"error", woken.error().message}});
    decision = Adoption::freeze;
  }
  if (decision == Adoption::freeze) {
    auto freezing = guarded(runtime_.freeze(id));
    auto frozen = co_await std::move(freezing);
    if (frozen.ok()) co_return Adoption::rest_frozen;
    log::error("a paused sandbox was not frozen again",
               {{"sandbox", id.str()}, {"error", frozen.error().message}});
    decision = Adoption::stop;
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
  co_return decision;
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
  if (record.state == SandboxState::snapshotting) set_state_locked(*sandbox, Event::snapshotted);
  if (record.state == SandboxState::resuming) {
    record.started_at = cut_to_micros(options_.clock());
    set_state_locked(*sandbox, Event::resumed);
  }
  set_rest_locked(*sandbox, Rested{});
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
  if (record.state != SandboxState::running) co_return;
  ++sandbox->talks;
  lock.unlock();
  auto telling = guarded(init_agent(record, options_.dial_deadline));
  auto told = co_await std::move(telling);
  lock.lock();
  --sandbox->talks;
  if (told.ok() || sandbox->record.state != SandboxState::running) co_return;
  // It may be busy: whoever uses it finds out, and can kill it.
  log::warn("the agent of an adopted sandbox does not answer",
            {{"sandbox", record.id.str()}, {"error", told.error().message}});
  note(*sandbox, store::LogLevel::warn, "the agent of the sandbox does not answer");
}

void Engine::adopt_paused(const SandboxPtr& sandbox, Ipv4 address, store::MemoryTier tier) {
  const bool memory_kept = tier != store::MemoryTier::none;
  if (tier == store::MemoryTier::frozen) set_address(*sandbox, address);
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
  if (record.state == SandboxState::pausing || record.state == SandboxState::snapshotting)
    set_state_locked(*sandbox, Event::paused);
  if (record.state == SandboxState::resuming) set_state_locked(*sandbox, Event::resume_failed);
  record.memory_kept = memory_kept;
  if (tier == store::MemoryTier::frozen) {
    // What was refused before is tried again: this program or CRIU may be another.
    set_rest_locked(*sandbox, {tier, memory_.durable ? std::string() : memory_.reason, 0,
                               options_.keep_frozen});
    sandbox->frozen_at = record.end_at;
  } else {
    if (tier != record.memory_tier) record.memory_bytes = 0;
    record.memory_tier = tier;
    record.memory_reason.clear();
  }
  save_locked(*sandbox);
  sandboxes_.emplace(record.id, sandbox);
  ++counts_.adopted;
  log::info("sandbox adopted", {{"sandbox", record.id.str()},
                                {"state", "paused"},
                                {"kept", memory_kept ? store::to_string(tier) : "disk only"}});
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
