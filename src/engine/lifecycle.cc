// How a sandbox comes and goes.
//
// Create: reserve a place (limits, row in the store) -> the runtime makes it -> the agent is told
// who it is -> running: row updated, routed, its end set -> the client hears of it. Any failure
// destroys what there is, marks the row killed and frees the place. A create whose client stopped
// waiting runs to its end and is then killed.
//
// Kill: state killing (row updated), unrouted: the proxy answers 502 from here on -> connections of
// clients break -> the runtime destroys it -> row killed, place freed. A destroy that fails is told
// to the client and tried again until it works.
#include <fmt/format.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>

#include "base/log.h"
#include "engine/agent_init.h"
#include "engine/sandbox.h"

namespace atl::engine {
namespace {

namespace asio = net::asio;

constexpr std::chrono::milliseconds kFirstRetry{250};
constexpr std::chrono::milliseconds kLongestRetry{30'000};
constexpr std::chrono::milliseconds kLeftoverLimit{60'000};

std::string_view to_string(KillReason reason) {
  switch (reason) {
    case KillReason::request:
      return "request";
    case KillReason::expired:
      return "timeout";
    case KillReason::died:
      return "agent exit";
    case KillReason::shutdown:
      return "shutdown";
  }
  return "unknown";
}

// A client asked for a sandbox, not for a cgroup: what the runtime or the store could not find or
// do is our failure. Only being too busy or too slow stays what it is.
Error start_failure(Error error) {
  switch (error.code) {
    case Errc::unavailable:
    case Errc::deadline_exceeded:
      return error;
    case Errc::resource_exhausted:
      error.code = Errc::unavailable;
      return error;
    default:
      error.code = Errc::internal;
      return error;
  }
}

std::string milliseconds_since(Timestamp from, Timestamp to) {
  return fmt::format("{:.1f}", std::chrono::duration<double, std::milli>(to - from).count());
}

// "range=40 disk.image=120 …": where the time of a launch went, in microseconds.
std::string step_times(const std::vector<runtime::StepTime>& steps) {
  std::string out;
  for (const auto& [step, took] : steps) {
    if (!out.empty()) out += ' ';
    out += step + "=" + std::to_string(took.count());
  }
  return out;
}

}  // namespace

net::Task<Result<SandboxInfo>> Engine::create(CreateCommand command) {
  if (command.timeout <= std::chrono::seconds(0)) {
    co_return make_error(Errc::invalid_argument, "Timeout must be greater than 0");
  }
  ATOLL_CO_TRY(check_timeout(command.timeout));
  ATOLL_CO_TRY_ASSIGN(templates::Template base, templates_.find(command.template_reference));
  ATOLL_CO_TRY_ASSIGN(SandboxPtr sandbox, reserve(command, base));
  tasks_.spawn("create", run_create(sandbox));  // closed only when nothing can be reserved any more
  auto wait = sandbox->made.wait(options_.create_deadline);
  co_await std::move(wait);
  std::lock_guard lock(mutex_);
  if (!sandbox->made.is_set()) {
    sandbox->abandoned = true;
    co_return make_error(Errc::deadline_exceeded, "the sandbox was not ready in time; try again");
  }
  if (sandbox->failure) co_return Error(*sandbox->failure);
  co_return describe(sandbox->record);
}

net::Task<Result<void>> Engine::kill(Caller caller, SandboxId id) {
  SandboxPtr sandbox;
  {
    std::lock_guard lock(mutex_);
    ATOLL_CO_TRY_ASSIGN(sandbox, find_locked(caller, id));
    sandbox->killed_by = caller.key_id;
    begin_kill_locked(sandbox, KillReason::request);
  }
  auto wait = sandbox->gone.wait(options_.kill_deadline);
  if (!co_await std::move(wait)) {
    co_return make_error(Errc::deadline_exceeded,
                         "the sandbox is stopped, its removal takes longer than expected");
  }
  std::lock_guard lock(mutex_);
  if (sandbox->failure) co_return Error(*sandbox->failure);
  co_return Result<void>();
}

Result<Engine::SandboxPtr> Engine::reserve(const CreateCommand& command,
                                           const templates::Template& base) {
  store::SandboxRecord record{.id = SandboxId::generate()};
  record.team_id = command.caller.team_id;
  record.key_id = command.caller.key_id;
  record.template_id = base.id;
  record.template_dir = base.dir;
  record.build_id = base.build_id;
  record.alias = base.alias();
  record.envd_version = base.envd_version;
  record.boot_id = random_uuid4();
  record.created_at = options_.clock();
  record.timeout = command.timeout;
  record.metadata = command.metadata;
  record.envs = command.envs;
  record.network = command.network;
  record.secure = command.secure;
  record.allow_public_traffic = command.allow_public_traffic;
  record.auto_pause = command.auto_pause;
  record.auto_pause_memory = command.auto_pause_memory;
  record.auto_resume = command.auto_resume;
  record.allow_internet = command.allow_internet;
  record.cpu_count = base.cpu_count;
  record.memory_mb = base.memory_mb;
  record.disk_mb = base.disk_mb;
  auto sandbox = std::make_shared<Sandbox>(std::move(record));
  sandbox->default_user = base.default_user;
  sandbox->mask_request_host = command.mask_request_host;

  std::lock_guard lock(mutex_);
  if (stopping_) return make_error(Errc::unavailable, "the server is shutting down");
  if (sandboxes_.size() >= options_.max_sandboxes) {
    return make_error(Errc::resource_exhausted,
                      "you have reached the maximum number of concurrent E2B sandboxes (" +
                          std::to_string(options_.max_sandboxes) +
                          "). Kill sandboxes that you no longer need and try again.");
  }
  if (creating_ >= options_.max_creates_in_flight) {
    return make_error(Errc::resource_exhausted, "too many sandboxes are being created at once (" +
                                                    std::to_string(options_.max_creates_in_flight) +
                                                    "). Try again in a moment.");
  }
  if (auto stored = store_.insert_sandbox(sandbox->record); !stored.ok()) {
    return start_failure(std::move(stored).error());
  }
  ++creating_;
  sandboxes_.emplace(sandbox->record.id, sandbox);
  return sandbox;
}

net::Task<void> Engine::run_create(SandboxPtr sandbox) {
  std::optional<Result<void>> made;
  try {
    auto making = make_and_init(sandbox);
    made.emplace(co_await std::move(making));
  } catch (const std::exception& e) {
    made.emplace(make_error(Errc::internal, e.what()));
  }
  if (!made->ok()) made.emplace(start_failure(std::move(*made).error()));
  if (made->ok()) {
    finish_create(sandbox, Result<void>());
    co_return;
  }
  auto undo = destroy(sandbox->record.id);
  auto undone = co_await std::move(undo);
  finish_create(sandbox, std::move(*made));
  if (!undone.ok()) {
    // Processes or directories may still be there: it keeps its place until they are gone.
    log::error("a failed create was not undone; trying again",
               {{"sandbox", sandbox->record.id.str()}, {"error", undone.error().message}});
    auto again = destroy_until_gone(sandbox->record.id);
    co_await std::move(again);
  }
  drop(sandbox);
}

net::Task<Result<void>> Engine::make_and_init(SandboxPtr sandbox) {
  // Only this task changes the record while it is creating; reading it needs no lock.
  const store::SandboxRecord& record = sandbox->record;
  runtime::SandboxSpec spec{.id = record.id};
  spec.template_id = record.template_dir;
  spec.boot_id = record.boot_id;
  spec.limits.memory_bytes = std::uint64_t(record.memory_mb) << 20;
  spec.limits.cpu_millis = record.cpu_count * 1000;
  spec.limits.disk_bytes = std::uint64_t(record.disk_mb) << 20;
  spec.limits.pids = options_.max_pids;
  auto making = runtime_.create(std::move(spec));
  auto created = co_await std::move(making);
  if (!created.ok()) co_return std::move(created).error().with("create sandbox " + record.id.str());
  log::debug("launch steps", {{"sandbox", record.id.str()}, {"us", step_times(created->steps)}});

  AgentInit init;
  init.sandbox_id = record.id.str();
  init.template_id = record.template_id;
  if (record.secure) init.access_token = tokens_.access_token(record.id);
  init.envs = record.envs;
  init.default_user = sandbox->default_user;
  init.memory_bytes = std::uint64_t(record.memory_mb) << 20;
  init.cpu_count = record.cpu_count;
  init.timestamp = now();
  auto dial = dial_agent(record.id);
  ATOLL_CO_TRY_ASSIGN(auto stream, co_await std::move(dial));
  auto sent = send_init(std::move(stream), std::move(init), options_.create_deadline);
  co_return co_await std::move(sent);
}

void Engine::finish_create(const SandboxPtr& sandbox, Result<void> made) {
  std::unique_lock lock(mutex_);
  store::SandboxRecord& record = sandbox->record;
  --creating_;
  if (made.ok()) {
    // The clock of a life starts when it is ready.
    record.started_at = cut_to_micros(options_.clock());
    record.end_at = record.started_at + record.timeout;
    set_state_locked(*sandbox, Event::created);
    sandbox->route = std::make_shared<Route>(RouteSpec{
        .id = record.id,
        .access_token = record.secure ? tokens_.access_token(record.id) : std::string(),
        .traffic_token = record.allow_public_traffic
                             ? std::nullopt
                             : std::optional<std::string>(tokens_.traffic_token(record.id)),
        .mask_request_host = sandbox->mask_request_host,
        .max_connections = options_.max_connections_per_sandbox,
        .https_ports = https_ports_of(record.network)});
    made = store_.update_sandbox(record);
    if (!made.ok()) made = start_failure(std::move(made).error());
    const bool unwanted = sandbox->abandoned || stopping_;
    if (made.ok() && !unwanted) {
      routes_.add(sandbox->route);
      expiry_.set(record.id, record.end_at);
      wake_expiry_locked();
      log::info("sandbox created",
                {{"sandbox", record.id.str()},
                 {"template", record.alias},
                 {"key", record.key_id},
                 {"ms", milliseconds_since(record.created_at, record.started_at)}});
    } else {
      if (made.ok())
        made = make_error(Errc::unavailable, "the sandbox was given up while it was made");
      sandbox->failure = std::move(made).error();
      begin_kill_locked(sandbox, KillReason::shutdown);
    }
  } else {
    log::info("sandbox not created",
              {{"sandbox", record.id.str()}, {"template", record.alias}, {"key", record.key_id}});
    // Whoever asked tells the reason; only when nobody waits any more it is told here.
    if (sandbox->abandoned) {
      log::error("an abandoned create failed",
                 {{"sandbox", record.id.str()}, {"error", made.error().message}});
    }
    sandbox->failure = std::move(made).error();
    set_state_locked(*sandbox, Event::create_failed);
    if (auto stored = store_.update_sandbox(record); !stored.ok()) {
      log::error("a row was not updated",
                 {{"sandbox", record.id.str()}, {"error", stored.error().message}});
    }
  }
  lock.unlock();
  sandbox->made.set();
}

void Engine::begin_kill_locked(const SandboxPtr& sandbox, KillReason reason) {
  sandbox->reason = reason;
  set_state_locked(*sandbox, Event::kill);
  expiry_.remove(sandbox->record.id);
  routes_.remove(sandbox->record.id);
  // A store that cannot be written does not keep a sandbox alive: the next start removes what the
  // rows still name.
  if (auto stored = store_.update_sandbox(sandbox->record); !stored.ok()) {
    log::error("a row was not updated",
               {{"sandbox", sandbox->record.id.str()}, {"error", stored.error().message}});
  }
  tasks_.spawn("kill", run_kill(sandbox));
}

net::Task<void> Engine::run_kill(SandboxPtr sandbox) {
  if (sandbox->route) sandbox->route->die();
  const SandboxId id = sandbox->record.id;
  auto first = destroy(id);
  auto destroyed = co_await std::move(first);
  if (!destroyed.ok()) {
    log::error("a sandbox was not removed; trying again",
               {{"sandbox", id.str()}, {"error", destroyed.error().message}});
    {
      std::lock_guard lock(mutex_);
      sandbox->failure = std::move(destroyed).error();
    }
    sandbox->gone.set();
    auto again = destroy_until_gone(id);
    if (!co_await std::move(again))
      co_return;  // the row still says killing: the next start removes it
  }
  {
    std::lock_guard lock(mutex_);
    set_state_locked(*sandbox, Event::gone);
    if (auto stored = store_.update_sandbox(sandbox->record); !stored.ok()) {
      log::error("a row was not updated",
                 {{"sandbox", id.str()}, {"error", stored.error().message}});
    }
    log::info("sandbox killed", {{"sandbox", id.str()},
                                 {"reason", to_string(sandbox->reason)},
                                 {"key", sandbox->killed_by}});
  }
  drop(sandbox);
  sandbox->gone.set();
}

// not_found is what we want: nothing is left.
net::Task<Result<void>> Engine::destroy(SandboxId id) {
  std::optional<Result<void>> done;
  try {
    auto destroying = runtime_.destroy(std::move(id));
    done.emplace(co_await std::move(destroying));
  } catch (const std::exception& e) {
    done.emplace(make_error(Errc::internal, e.what()));
  }
  if (!done->ok() && done->error().code == Errc::not_found) co_return Result<void>();
  co_return std::move(*done);
}

net::Task<bool> Engine::destroy_until_gone(SandboxId id) {
  asio::steady_timer timer(co_await asio::this_coro::executor);
  for (auto pause = kFirstRetry;; pause = std::min(pause * 2, kLongestRetry)) {
    timer.expires_after(pause);
    co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
    auto destroying = destroy(id);
    if ((co_await std::move(destroying)).ok()) co_return true;
    if (!accepting()) co_return false;
  }
}

// Illegal here is a bug of ours: whoever calls has looked at the state under the same lock.
void Engine::set_state_locked(Sandbox& sandbox, Event event) {
  const auto next = next_state(sandbox.record.state, event);
  ATOLL_CHECK(next.ok());
  sandbox.record.state = *next;
}

void Engine::drop(const SandboxPtr& sandbox) {
  std::lock_guard lock(mutex_);
  sandboxes_.erase(sandbox->record.id);
}

void Engine::on_agent_exit(const SandboxId& id) {
  std::lock_guard lock(mutex_);
  const auto found = sandboxes_.find(id);
  if (found == sandboxes_.end()) return;
  Sandbox& sandbox = *found->second;
  if (sandbox.record.state == SandboxState::creating) sandbox.abandoned = true;
  if (!is_visible(sandbox.record.state)) return;
  log::warn("the agent of a sandbox ended; the sandbox is removed", {{"sandbox", id.str()}});
  begin_kill_locked(found->second, KillReason::died);
}

net::Task<void> Engine::destroy_leftover(SandboxId id) {
  auto destroying = destroy(id);
  if (auto done = co_await std::move(destroying); !done.ok()) {
    log::error("a sandbox of an earlier run was not removed",
               {{"sandbox", id.str()}, {"error", done.error().message}});
  }
}

net::Task<Result<void>> Engine::remove_leftovers() {
  auto listing = runtime_.list();
  auto ids = co_await std::move(listing);
  if (!ids.ok()) co_return std::move(ids).error().with("list sandboxes of an earlier run");
  if (!ids->empty())
    log::info("removing sandboxes of an earlier run", {{"count", std::to_string(ids->size())}});
  for (const runtime::Listed& found : *ids) tasks_.spawn("leftover", destroy_leftover(found.id));
  auto drain = tasks_.drain(kLeftoverLimit);
  if (!co_await std::move(drain)) log::warn("sandboxes of an earlier run are still being removed");
  ATOLL_CO_TRY_ASSIGN(auto rows, store_.live_sandboxes());
  for (store::SandboxRecord& row : rows) {
    row.state = SandboxState::killed;
    ATOLL_CO_TRY(store_.update_sandbox(row));
  }
  co_return Result<void>();
}

}  // namespace atl::engine
