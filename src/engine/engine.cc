#include "engine/engine.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>

#include "base/log.h"
#include "engine/sandbox.h"
#include "engine/side_task.h"

namespace atl::engine {
namespace {

namespace asio = net::asio;

constexpr auto kUse = asio::as_tuple(asio::use_awaitable);
constexpr std::chrono::seconds kLeastRefresh{15};
constexpr std::chrono::milliseconds kClockCheck{1'000};  // the wall clock may be set while we wait
constexpr std::chrono::seconds kCheckpointEvery{5};
constexpr int kPurgeEvery = 720;  // checkpoints: an hour

Error no_such(const SandboxId& id) {
  return make_error(Errc::not_found,
                    "Sandbox \"" + id.str() + "\" doesn't exist or you don't have access to it");
}

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

bool matches(const store::SandboxRecord& record, const ListQuery& query) {
  if (record.team_id != query.team_id || !is_visible(record.state)) return false;
  const bool runs = record.state == SandboxState::running || record.state == SandboxState::resuming;
  if (runs ? !query.running : !query.paused) return false;
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
      tasks_(io),
      loops_(io),
      timers_(std::make_unique<Timers>()) {}

Engine::~Engine() {
  runtime_.on_exit({});
  timers_->disk.join();
}

net::Task<Result<void>> Engine::start() {
  auto leftovers = remove_leftovers();
  ATOLL_CO_TRY(co_await std::move(leftovers));
  runtime_.on_exit([this](runtime::ExitNotice notice) { on_agent_exit(notice.id); });
  loops_.spawn("expiry", expiry_loop());
  loops_.spawn("housekeeping", housekeeping_loop());
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
        begin_kill_locked(sandbox, KillReason::shutdown);
      }
    }
    left = all.size();
  }
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
    for (const auto& timer : {timers_->expiry, timers_->housekeeping}) {
      if (timer) asio::post(timer->get_executor(), [timer] { timer->cancel(); });
    }
  }
  loops_.close();
  auto stop = loops_.drain(std::chrono::milliseconds(1'000));
  co_await std::move(stop);
}

Result<void> Engine::set_timeout(const Caller& caller, const SandboxId& id,
                                 std::chrono::seconds timeout) {
  std::lock_guard lock(mutex_);
  ATOLL_TRY_ASSIGN(SandboxPtr sandbox, find_locked(caller, id));
  if (sandbox->record.state == SandboxState::paused) return no_such(id);
  if (sandbox->record.state != SandboxState::running) {
    return make_error(Errc::failed_precondition,
                      "Sandbox \"" + id.str() + "\" is changing its state; try again in a moment");
  }
  const Timestamp current = options_.clock();
  const Timestamp last = sandbox->record.started_at + options_.max_timeout;
  if (current > last) return make_error(Errc::invalid_argument, "Max instance length exceeded");
  timeout = std::clamp(timeout, std::chrono::seconds(0), options_.max_timeout);
  return move_end_locked(*sandbox, std::min(current + timeout, last));
}

Result<void> Engine::refresh(const Caller& caller, const SandboxId& id,
                             std::chrono::seconds duration) {
  std::lock_guard lock(mutex_);
  ATOLL_TRY_ASSIGN(SandboxPtr sandbox, find_locked(caller, id));
  if (sandbox->record.state != SandboxState::running) return no_such(id);
  const Timestamp last = sandbox->record.started_at + options_.max_timeout;
  const Timestamp end = std::min(options_.clock() + std::max(duration, kLeastRefresh), last);
  if (end <= sandbox->record.end_at) return {};
  return move_end_locked(*sandbox, end);
}

net::Task<Result<Connected>> Engine::connect(Caller caller, SandboxId id,
                                             std::chrono::seconds timeout, Revive /*revive*/) {
  ATOLL_CO_TRY(check_timeout(timeout));
  std::lock_guard lock(mutex_);
  const auto found = sandboxes_.find(id);
  if (found != sandboxes_.end() && found->second->record.team_id == caller.team_id &&
      found->second->record.state == SandboxState::killing) {
    co_return make_error(Errc::failed_precondition, "Sandbox \"" + id.str() + "\" is being killed");
  }
  ATOLL_CO_TRY_ASSIGN(SandboxPtr sandbox, find_locked(caller, id));
  if (sandbox->record.state != SandboxState::running) {
    co_return make_error(Errc::unimplemented, "resuming sandboxes is not supported by this server");
  }
  const Timestamp last = sandbox->record.started_at + options_.max_timeout;
  const Timestamp end = std::min(options_.clock() + timeout, last);
  if (end > sandbox->record.end_at) {
    ATOLL_CO_TRY(move_end_locked(*sandbox, end));
  }
  co_return Connected{describe(sandbox->record), false};
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
  page.total_running =
      std::size_t(std::count_if(records.begin(), records.end(), [](const auto& record) {
        return record.state == SandboxState::running;
      }));
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

void Engine::clock_changed() {
  std::lock_guard lock(mutex_);
  wake_expiry_locked();
}

// ---- inside ----

Result<Engine::SandboxPtr> Engine::find_locked(const Caller& caller, const SandboxId& id) const {
  const auto found = sandboxes_.find(id);
  if (found == sandboxes_.end() || found->second->record.team_id != caller.team_id ||
      !is_visible(found->second->record.state)) {
    return no_such(id);
  }
  return found->second;
}

Result<void> Engine::move_end_locked(Sandbox& sandbox, Timestamp end) {
  store::SandboxRecord changed = sandbox.record;
  changed.end_at = end;
  ATOLL_TRY(store_.update_sandbox(changed));
  sandbox.record.end_at = end;
  expiry_.set(sandbox.record.id, end);
  wake_expiry_locked();
  return {};
}

SandboxInfo Engine::describe(const store::SandboxRecord& record) const {
  SandboxInfo info{.record = record, .access_token = std::nullopt, .traffic_token = std::nullopt};
  if (record.secure) info.access_token = tokens_.access_token(record.id);
  if (!record.allow_public_traffic) info.traffic_token = tokens_.traffic_token(record.id);
  return info;
}

Result<void> Engine::check_timeout(std::chrono::seconds timeout) const {
  if (timeout <= options_.max_timeout) return {};
  const auto hours = std::chrono::duration_cast<std::chrono::hours>(options_.max_timeout).count();
  return make_error(Errc::invalid_argument,
                    "Timeout cannot be greater than " + std::to_string(hours) + " hours");
}

void Engine::wake_expiry_locked() {
  if (auto timer = timers_->expiry) asio::post(timer->get_executor(), [timer] { timer->cancel(); });
}

net::Task<void> Engine::expiry_loop() {
  auto timer = std::make_shared<asio::steady_timer>(co_await asio::this_coro::executor);
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      if (timers_->stop) co_return;
      timers_->expiry = timer;
      const Timestamp current = options_.clock();
      for (const SandboxId& id : expiry_.pop_due(current)) {
        const auto found = sandboxes_.find(id);
        if (found != sandboxes_.end() && is_visible(found->second->record.state)) {
          begin_kill_locked(found->second, KillReason::expired);
        }
      }
      if (const auto next = expiry_.next()) {
        timer->expires_after(std::min<std::chrono::nanoseconds>(*next - current, kClockCheck));
      } else {
        timer->expires_at(asio::steady_timer::time_point::max());
      }
    }
    co_await timer->async_wait(kUse);
  }
}

net::Task<void> Engine::housekeeping_loop() {
  auto timer = std::make_shared<asio::steady_timer>(co_await asio::this_coro::executor);
  for (int round = 0;; ++round) {
    {
      std::lock_guard lock(mutex_);
      if (timers_->stop) co_return;
      timers_->housekeeping = timer;
      timer->expires_after(kCheckpointEvery);
    }
    co_await timer->async_wait(kUse);
    const bool purge = round % kPurgeEvery == 0;
    asio::post(timers_->disk, [this, purge] {
      if (purge) {
        if (auto done = store_.purge_killed(options_.clock() - options_.keep_killed_rows);
            !done.ok()) {
          log::warn("old rows were not removed", {{"error", done.error().message}});
        }
      }
      if (auto done = store_.checkpoint(); !done.ok()) {
        log::warn("the state file was not checkpointed", {{"error", done.error().message}});
      }
    });
  }
}

}  // namespace atl::engine
