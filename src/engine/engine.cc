#include "engine/engine.h"

#include <algorithm>
#include <boost/asio/this_coro.hpp>

#include "base/log.h"
#include "engine/sandbox.h"
#include "engine/side_task.h"
#include "net/wake.h"

namespace atl::engine {
namespace {

namespace asio = net::asio;

constexpr std::size_t kPullsAtOnce = 16;
constexpr std::size_t kPullsWaiting = 1000;

net::Task<void> dial_into(runtime::Runtime& runtime, SandboxId id,
                          std::optional<Result<std::unique_ptr<net::Stream>>>& into) {
  auto dial = runtime.connect_agent(std::move(id));
  into.emplace(co_await std::move(dial));
}

// The order of lists. Newest first, equal ones by id ascending; oldest first is its exact reverse.
bool comes_before(const Cursor& a, const Cursor& b, Order order) {
  if (order == Order::oldest_first) return comes_before(b, a, Order::newest_first);
  if (a.started_at != b.started_at) return a.started_at > b.started_at;
  return a.id < b.id;
}

// As clients see it: pausing is paused already, resuming runs again.
bool runs(const store::SandboxRecord& record) {
  return record.state == SandboxState::running || record.state == SandboxState::resuming ||
         record.state == SandboxState::snapshotting;
}

bool matches(const store::SandboxRecord& record, const ListQuery& query) {
  if (record.team_id != query.team_id || !is_visible(record.state)) return false;
  if (runs(record) ? !query.running : !query.paused) return false;
  if (query.template_id && record.template_id != *query.template_id) return false;
  if (query.started_after && record.started_at < cut_to_micros(*query.started_after)) return false;
  return std::all_of(query.metadata.begin(), query.metadata.end(), [&](const auto& wanted) {
    const auto found = record.metadata.find(wanted.first);
    return found != record.metadata.end() && found->second == wanted.second;
  });
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(asio::io_context& io, store::Store& store,
                                               runtime::Runtime& runtime, EngineOptions options) {
  ATOLL_TRY_ASSIGN(Tokens tokens, Tokens::load((options.home / "keys").string()));
  return std::unique_ptr<Engine>(
      new Engine(io, store, runtime, std::move(options), std::move(tokens)));
}

Engine::Engine(asio::io_context& io, store::Store& store, runtime::Runtime& runtime,
               EngineOptions options, Tokens tokens)
    : io_(io),
      store_(store),
      runtime_(runtime),
      options_(std::move(options)),
      tokens_(std::move(tokens)),
      templates_(options_.templates.empty() ? options_.home / "templates" : options_.templates),
      gate_(options_.max_creates_in_flight, options_.max_creates_waiting),
      dumps_(options_.max_dumps_in_flight, options_.max_sandboxes + kPullsWaiting),
      pulls_(kPullsAtOnce, kPullsWaiting),
      tasks_(io),
      loops_(io),
      pool_({.runtime = runtime_,
             .templates = templates_,
             .gate = gate_,
             .tasks = tasks_,
             .max_sandboxes = options_.max_sandboxes,
             .max_pids = options_.max_pids,
             .others = [this] { return live(); },
             .dial = [this](SandboxId id) { return dial_agent(std::move(id)); },
             .destroy = [this](SandboxId id) { return remove_unowned(std::move(id)); }},
            options_.pool),
      timers_(std::make_unique<Timers>()) {}

Engine::~Engine() {
  runtime_.on_exit({});
  timers_->disk.join();
}

net::Task<Result<void>> Engine::start() {
  auto learning = learn_memory_support();
  co_await std::move(learning);
  auto adopting = adopt_all();
  ATOLL_CO_TRY(co_await std::move(adopting));
  auto adopting_snapshots = adopt_snapshots();
  ATOLL_CO_TRY(co_await std::move(adopting_snapshots));
  loops_.spawn("expiry", expiry_loop());
  loops_.spawn("housekeeping", housekeeping_loop());
  loops_.spawn("sampler", sampler_loop());
  loops_.spawn("tiers", tiers_loop());
  if (pool_.enabled()) loops_.spawn("pool", pool_.run());
  co_return Result<void>();
}

net::Task<void> Engine::shutdown(std::chrono::milliseconds limit, AtShutdown others) {
  std::size_t left = 0;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    std::vector<SandboxPtr> all;
    for (const auto& [id, sandbox] : sandboxes_) all.push_back(sandbox);
    for (const SandboxPtr& sandbox : all) {
      if (sandbox->record.state == SandboxState::creating) {
        sandbox->abandoned = true;
      } else if (others == AtShutdown::kill_sandboxes && is_visible(sandbox->record.state)) {
        begin_kill_locked(sandbox, KillReason::shutdown, {sandbox->record.team_id, "server", {}});
      }
    }
    left = all.size();
  }
  pool_.stop();
  gate_.close();
  dumps_.close();
  if (left > 0) log::info("shutting down", {{"sandboxes", std::to_string(left)}});
  auto drain = tasks_.drain(limit);
  if (!co_await std::move(drain)) {
    log::warn("some sandboxes could not be removed in time; the next start removes them",
              {{"tasks", std::to_string(tasks_.running())}});
  }
  tasks_.close();
  {
    std::lock_guard lock(mutex_);
    timers_->stop = true;
    for (const auto& timer :
         {timers_->expiry, timers_->housekeeping, timers_->sampler, timers_->tiers}) {
      if (timer) net::wake(timer);
    }
  }
  loops_.close();
  auto stop = loops_.drain(std::chrono::milliseconds(1'000));
  co_await std::move(stop);
}

Result<SandboxInfo> Engine::info(const Caller& caller, const SandboxId& id) const {
  std::lock_guard lock(mutex_);
  ATOLL_TRY_ASSIGN(SandboxPtr sandbox, find_locked(caller, id));
  return describe(sandbox->record);
}

ListPage Engine::list(const ListQuery& query) const {
  std::vector<store::SandboxRecord> records;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, sandbox] : sandboxes_) {
      if (matches(sandbox->record, query)) records.push_back(sandbox->record);
    }
  }
  ListPage page;
  page.total_running = std::size_t(std::count_if(records.begin(), records.end(), runs));
  const auto place = [](const store::SandboxRecord& record) {
    return Cursor{record.started_at, record.id.str()};
  };
  if (query.after) {
    std::erase_if(records, [&](const auto& record) {
      return !comes_before(*query.after, place(record), query.order);
    });
  }
  std::sort(records.begin(), records.end(), [&](const auto& a, const auto& b) {
    return comes_before(place(a), place(b), query.order);
  });
  if (query.limit > 0 && records.size() > query.limit) {
    page.more = true;
    records.erase(records.begin() + std::ptrdiff_t(query.limit), records.end());
  }
  for (const auto& record : records) page.items.push_back(describe(record));
  return page;
}

net::Task<Result<std::unique_ptr<net::Stream>>> Engine::dial_agent(SandboxId id) {
  std::optional<Result<std::unique_ptr<net::Stream>>> answer;
  SideTask dial(co_await asio::this_coro::executor, dial_into(runtime_, std::move(id), answer));
  auto wait = dial.wait(options_.dial_deadline);
  if (!co_await std::move(wait)) {
    auto stop = dial.stop();
    co_await std::move(stop);
  }
  if (!answer) co_return make_error(Errc::deadline_exceeded, "the agent cannot be reached");
  co_return std::move(*answer);
}

bool Engine::accepting() const {
  std::lock_guard lock(mutex_);
  return !stopping_;
}

std::size_t Engine::live() const {
  std::lock_guard lock(mutex_);
  return sandboxes_.size();
}

std::map<std::string, std::size_t> Engine::running_counts() const {
  std::map<std::string, std::size_t> counts;
  std::lock_guard lock(mutex_);
  for (const auto& [id, sandbox] : sandboxes_) {
    if (runs(sandbox->record)) ++counts[sandbox->record.team_id];
  }
  return counts;
}

Statistics Engine::statistics() const {
  std::lock_guard lock(mutex_);
  Statistics figures = counts_;
  for (const auto& [id, sandbox] : sandboxes_) {
    switch (sandbox->record.state) {
      case SandboxState::creating:
        ++figures.creating;
        break;
      case SandboxState::running:
      case SandboxState::snapshotting:
        ++figures.running;
        break;
      case SandboxState::pausing:
        ++figures.pausing;
        break;
      case SandboxState::paused:
        ++figures.paused;
        break;
      case SandboxState::resuming:
        ++figures.resuming;
        break;
      case SandboxState::killing:
        ++figures.killing;
        break;
      case SandboxState::killed:
        break;
    }
  }
  figures.snapshots = snapshots_.listed();
  count_tiers_locked(figures);
  figures.waiting_creates = gate_.waiting();
  figures.pool = pool_.statistics();
  return figures;
}

// ---- inside ----

bool Engine::has(const SandboxId& id) const {
  std::lock_guard lock(mutex_);
  const auto found = sandboxes_.find(id);
  return found != sandboxes_.end() && is_visible(found->second->record.state);
}

std::optional<std::chrono::milliseconds> Engine::quiet_for(const SandboxId& id) const {
  std::lock_guard lock(mutex_);
  const auto found = sandboxes_.find(id);
  if (found == sandboxes_.end()) return std::nullopt;
  const Sandbox& sandbox = *found->second;
  if (sandbox.route && sandbox.route->connections() > 0) return std::chrono::milliseconds(0);
  return sandbox.last_use->ago();
}

Result<Engine::SandboxPtr> Engine::find_locked(const Caller& caller, const SandboxId& id) const {
  const auto found = sandboxes_.find(id);
  if (found == sandboxes_.end() || found->second->record.team_id != caller.team_id ||
      !is_visible(found->second->record.state)) {
    return no_such_sandbox(id);
  }
  return found->second;
}

SandboxInfo Engine::describe(const store::SandboxRecord& record) const {
  SandboxInfo info{.record = record, .access_token = std::nullopt, .traffic_token = std::nullopt};
  if (record.secure) info.access_token = tokens_.access_token(record.id);
  if (!record.allow_public_traffic) info.traffic_token = tokens_.traffic_token(record.id);
  return info;
}

void Engine::set_state_locked(Sandbox& sandbox, Event event) {
  const auto next = next_state(sandbox.record.state, event);
  ATOLL_CHECK(next.ok());  // whoever calls has looked at the state under the same lock
  sandbox.record.state = *next;
}

void Engine::save_locked(const Sandbox& sandbox) {
  if (auto stored = store_.update_sandbox(sandbox.record); !stored.ok()) {
    log::error("a row was not updated",
               {{"sandbox", sandbox.record.id.str()}, {"error", stored.error().message}});
  }
}

void Engine::finish(const TransitionPtr& transition, std::optional<Error> failure) {
  {
    std::lock_guard lock(mutex_);
    transition->failure = std::move(failure);
  }
  transition->done.set();
}

net::Task<Result<void>> Engine::wait_for(TransitionPtr transition, std::chrono::milliseconds limit,
                                         std::string_view late) {
  auto wait = transition->done.wait(limit);
  if (!co_await std::move(wait)) co_return make_error(Errc::deadline_exceeded, std::string(late));
  std::lock_guard lock(mutex_);
  if (transition->failure) co_return Error(*transition->failure);
  co_return Result<void>();
}

void Engine::audit(const Caller& by, std::string action, const SandboxId& id, std::string detail) {
  store::AuditRecord record;
  record.at = options_.clock();
  record.team_id = by.team_id;
  record.key_id = by.key_id;
  record.action = std::move(action);
  record.subject = id.str();
  record.detail = std::move(detail);
  record.peer = by.peer;
  if (auto stored = store_.insert_audit(record); !stored.ok()) {
    log::error("the audit log was not written",
               {{"action", record.action}, {"error", stored.error().message}});
  }
}

}  // namespace atl::engine
