#include "session/manager.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>

#include "base/log.h"
#include "proxy/inside.h"
#include "session/options.h"
#include "session/outcome.h"

namespace atl::session {
namespace {

namespace asio = net::asio;

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

constexpr seconds kTableRetry{5};
constexpr seconds kLookAtPaused{2};  // at the earliest; traffic may have woken it
constexpr seconds kPauseRetry{30};   // one that failed
constexpr seconds kUseGrain{1};      // how exactly the time of the last use is kept
constexpr std::string_view kBusy =
    "the session's sandbox is still being made; nothing is lost, ask again";

Error no_such_session(const Slot& slot) {
  return make_error(Errc::not_found, "there is no session '" + slot.key + "'");
}

milliseconds left(Clock::time_point until) {
  return std::max(std::chrono::duration_cast<milliseconds>(until - Clock::now()), milliseconds(1));
}

Options options_of(const Row& row) {
  auto options = decode_options(row.options);
  if (!options.ok()) {
    log::warn("the options of a session cannot be read",
              {{"session", row.key}, {"error", options.error().message}});
    return {};
  }
  options->update = {};
  return std::move(*options);
}

}  // namespace

Manager::Manager(net::asio::io_context& io, engine::Engine& engine, store::Store& store,
                 Table& table, store::SessionRows* mirror, Peers* peers, ManagerOptions options)
    : io_(io),
      engine_(engine),
      store_(store),
      table_(table),
      mirror_(mirror),
      peers_(peers),
      options_(std::move(options)),
      tasks_(io),
      clock_(engine.options().clock, [this](SandboxId id, Slot slot) {
        tasks_.spawn("session timer", look(std::move(id), std::move(slot)));
      }) {}
Manager::~Manager() = default;

net::Task<void> Manager::start() {
  started_ = now();
  tasks_.spawn("session clock", clock_.run());
  auto comparing = reconcile();
  if (auto done = co_await std::move(comparing); !done.ok()) {
    log::warn("sessions are not looked at until their table answers",
              {{"error", done.error().message}});
  }
}

net::Task<void> Manager::stop(milliseconds limit) {
  clock_.stop();
  tasks_.close();
  auto draining = tasks_.drain(limit);
  co_await std::move(draining);
}

Result<Slot> Manager::slot_of(const engine::Caller& caller, std::string key) const {
  ATOLL_TRY(check_key(key));
  ATOLL_TRY_ASSIGN(const auto team, store_.find_team(caller.team_id));
  if (!team) return make_error(Errc::not_found, "team '" + caller.team_id + "' not found");
  return Slot{team->name, std::move(key)};
}

Result<engine::Caller> Manager::caller_of(const std::string& team) const {
  ATOLL_TRY_ASSIGN(const auto found, store_.find_team(team));
  if (!found) return make_error(Errc::not_found, "team '" + team + "' not found");
  return engine::Caller{found->id, "session", {}};
}

net::Task<void> Manager::sleep(milliseconds time) {
  asio::steady_timer timer(co_await asio::this_coro::executor, time);
  co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
}

// ---- acquire ----

net::Task<Result<Acquired>> Manager::acquire(engine::Caller caller, std::string key,
                                             Options options) {
  ATOLL_CO_TRY_ASSIGN(const Slot slot, slot_of(caller, std::move(key)));
  ATOLL_CO_TRY(create_command(caller, slot.key, "", options));
  auto running = run_apart(tasks_, acquire_patiently(std::move(caller), slot, std::move(options)),
                           2 * options_.patience);
  auto done = co_await std::move(running);
  if (!done) co_return make_error(Errc::deadline_exceeded, std::string(kBusy));
  co_return std::move(*done);
}

// Is the key somebody else's to work on, now?
net::Task<Result<bool>> Manager::belongs_to_other(const Row& row) {
  if (mine(row)) co_return false;
  if (!row.ready) co_return row.lease > milliseconds(0);
  if (now() < row.used_at + options_of(row).ttl) co_return true;
  // Forgetting it is its node's business, unless that is gone.
  auto asking = peers_->alive(row.node);
  co_return co_await std::move(asking);
}

net::Task<Result<Acquired>> Manager::acquire_patiently(engine::Caller caller, Slot slot,
                                                       Options options) {
  const auto until = Clock::now() + options_.patience;
  for (;;) {
    auto getting = table_.get(slot.team, slot.key);
    ATOLL_CO_TRY_ASSIGN(const std::optional<Row> row, co_await std::move(getting));
    bool others = false;
    if (row) {
      auto asking = belongs_to_other(*row);
      ATOLL_CO_TRY_ASSIGN(others, co_await std::move(asking));
    }
    if (others && row->ready) {
      auto passing_on = peers_->acquire(row->node, slot, options);
      co_return co_await std::move(passing_on);
    }
    if (!others) {
      auto locking = locks_.lock(slot.text(), left(until));
      ATOLL_CO_TRY_ASSIGN(const Locks::Guard guard, co_await std::move(locking));
      auto acquiring = acquire_locked(caller, slot, options);
      ATOLL_CO_TRY_ASSIGN(std::optional<Acquired> got, co_await std::move(acquiring));
      if (got) co_return std::move(*got);
    }
    if (Clock::now() >= until) co_return make_error(Errc::deadline_exceeded, std::string(kBusy));
    auto waiting = sleep(options_.look_again);
    co_await std::move(waiting);
  }
}

net::Task<Manager::Maybe> Manager::acquire_locked(engine::Caller caller, Slot slot,
                                                  Options options) {
  auto getting = row_of(slot);
  ATOLL_CO_TRY_ASSIGN(const std::optional<Row> row, co_await std::move(getting));
  if (row) {
    auto asking = belongs_to_other(*row);
    ATOLL_CO_TRY_ASSIGN(const bool others, co_await std::move(asking));
    if (others) co_return std::optional<Acquired>();
  }
  if (row && row->ready && mine(*row)) {
    auto reusing = reuse(caller, *row, options);
    auto reused = co_await std::move(reusing);
    if (reused.ok() || reused.error().code != Errc::not_found) co_return reused;
    log::info("the sandbox of a session is gone; another one is made",
              {{"session", slot.key}, {"sandbox", row->sandbox_id}});
  } else if (row && mine(*row)) {
    // We have the lock: nobody works on this claim of ours any more.
    auto killing = kill_claimed(row->team, row->claim);
    co_await std::move(killing);
  }
  auto making = make(std::move(caller), std::move(slot), row ? row->version : std::string(),
                     std::move(options));
  co_return co_await std::move(making);
}

net::Task<Manager::Maybe> Manager::reuse(engine::Caller caller, Row row, Options options) {
  const auto id = SandboxId::parse(row.sandbox_id);
  if (!id) co_return make_error(Errc::not_found, "the session has no sandbox");
  const Options current = updated(options_of(row), options.update);
  auto connecting = engine_.connect(caller, *id, current.timeout);
  auto connected = co_await std::move(connecting);
  if (!connected.ok()) {
    // Being killed: soon it is gone.
    if (connected.error().code == Errc::failed_precondition && !engine_.has(*id))
      co_return std::optional<Acquired>();
    co_return std::move(connected).error();
  }
  if (options.update.timeout) {
    ATOLL_CO_TRY(engine_.set_timeout(caller, *id, current.timeout));
    if (auto info = engine_.info(caller, *id); info.ok()) connected->info = std::move(*info);
  }
  row.used_at = now();
  row.options = json::serialize(encode_options(current));
  auto writing = table_.put(row);
  ATOLL_CO_TRY_ASSIGN(const auto version, co_await std::move(writing));
  if (!version) co_return std::optional<Acquired>();
  row.version = *version;
  ATOLL_CO_TRY(keep_mirror(row));
  schedule(row);
  Acquired out{.session = describe(row),
               .came = connected->resumed ? Came::resumed : Came::reused,
               .sandbox = std::move(connected->info)};
  out.inside = proxy::inside_of(engine_, *id, out.sandbox.access_token.value_or(""));
  co_return std::optional<Acquired>(std::move(out));
}

// ---- pause, remove, look ----

net::Task<Result<void>> Manager::pause(engine::Caller caller, std::string key) {
  ATOLL_CO_TRY_ASSIGN(const Slot slot, slot_of(caller, std::move(key)));
  auto getting = table_.get(slot.team, slot.key);
  ATOLL_CO_TRY_ASSIGN(const std::optional<Row> row, co_await std::move(getting));
  if (!row) co_return no_such_session(slot);
  if (!row->ready)
    co_return make_error(Errc::failed_precondition, "the session's sandbox is being made");
  if (!mine(*row)) {
    auto passing_on = peers_->pause(row->node, slot);
    co_return co_await std::move(passing_on);
  }
  const auto id = SandboxId::parse(row->sandbox_id);
  if (!id) co_return Result<void>();
  auto pausing = run_apart(tasks_, engine_.pause(caller, *id, true), options_.pause_answer);
  auto done = co_await std::move(pausing);
  clock_.set(*id, slot, now());  // writes down what traffic there was
  if (!done || done->ok()) co_return Result<void>();
  // Paused already, or dead: there is nothing to pause.
  const auto info = engine_.info(caller, *id);
  if (!info.ok() || info->record.state == store::SandboxState::paused) co_return Result<void>();
  co_return std::move(*done);
}

net::Task<Result<void>> Manager::remove(engine::Caller caller, std::string key) {
  ATOLL_CO_TRY_ASSIGN(Slot slot, slot_of(caller, std::move(key)));
  auto running = run_apart(tasks_, remove_patiently(std::move(slot)), 2 * options_.patience);
  auto done = co_await std::move(running);
  if (!done) co_return make_error(Errc::deadline_exceeded, "the session is still being removed");
  co_return std::move(*done);
}

net::Task<Result<void>> Manager::remove_patiently(Slot slot) {
  const auto until = Clock::now() + options_.patience;
  for (;;) {
    auto getting = table_.get(slot.team, slot.key);
    ATOLL_CO_TRY_ASSIGN(const std::optional<Row> row, co_await std::move(getting));
    bool others = false;
    if (row) {
      auto asking = belongs_to_other(*row);
      ATOLL_CO_TRY_ASSIGN(others, co_await std::move(asking));
    } else {
      ATOLL_CO_TRY_ASSIGN(const bool kept, is_mirrored(slot));
      if (!kept) co_return Result<void>();
    }
    if (others && row->ready) {
      auto passing_on = peers_->remove(row->node, slot);
      co_return co_await std::move(passing_on);
    }
    if (!others) {
      auto locking = locks_.lock(slot.text(), left(until));
      ATOLL_CO_TRY_ASSIGN(const Locks::Guard guard, co_await std::move(locking));
      auto removing = remove_locked(slot);
      ATOLL_CO_TRY_ASSIGN(const bool removed, co_await std::move(removing));
      if (removed) co_return Result<void>();
    }
    if (Clock::now() >= until) co_return make_error(Errc::deadline_exceeded, std::string(kBusy));
    auto waiting = sleep(options_.look_again);
    co_await std::move(waiting);
  }
}

// The sandbox first: cut off between the two, the row names a dead one, which is fine.
net::Task<Result<bool>> Manager::remove_locked(Slot slot) {
  auto getting = row_of(slot);
  ATOLL_CO_TRY_ASSIGN(const std::optional<Row> row, co_await std::move(getting));
  if (!row) co_return true;
  auto asking = belongs_to_other(*row);
  ATOLL_CO_TRY_ASSIGN(const bool others, co_await std::move(asking));
  if (others) co_return false;
  if (mine(*row)) {
    auto killing =
        row->ready ? kill(row->team, row->sandbox_id) : kill_claimed(row->team, row->claim);
    co_await std::move(killing);
  }
  auto removing = table_.remove(*row);
  ATOLL_CO_TRY_ASSIGN(const bool removed, co_await std::move(removing));
  if (removed) {
    drop_mirror(slot);
    if (const auto id = SandboxId::parse(row->sandbox_id)) clock_.remove(*id);
  }
  co_return removed;
}

Session Manager::describe(const Row& row) const {
  Session out{.key = row.key,
              .sandbox_id = row.sandbox_id,
              .state = "creating",
              .options = options_of(row),
              .created_at = row.created_at,
              .used_at = row.used_at,
              .node = row.node};
  if (!row.ready) return out;
  if (!mine(row)) {
    out.state = "unreachable";
    return out;
  }
  out.state = "gone";
  const auto id = SandboxId::parse(row.sandbox_id);
  const auto caller = caller_of(row.team);
  if (!id || !caller.ok()) return out;
  const auto info = engine_.info(*caller, *id);
  if (!info.ok()) return out;
  const store::SandboxState state = info->record.state;
  const bool paused = state == store::SandboxState::paused || state == store::SandboxState::pausing;
  out.state = paused ? "paused" : "running";
  out.end_at = info->record.end_at;
  return out;
}

net::Task<Result<Session>> Manager::info(engine::Caller caller, std::string key) {
  ATOLL_CO_TRY_ASSIGN(const Slot slot, slot_of(caller, std::move(key)));
  auto getting = table_.get(slot.team, slot.key);
  ATOLL_CO_TRY_ASSIGN(const std::optional<Row> row, co_await std::move(getting));
  if (!row) co_return no_such_session(slot);
  if (row->ready && !mine(*row)) {
    auto passing_on = peers_->info(row->node, slot);
    co_return co_await std::move(passing_on);
  }
  co_return describe(*row);
}

net::Task<Result<std::vector<Session>>> Manager::list_own(engine::Caller caller) {
  ATOLL_CO_TRY_ASSIGN(const Slot slot, slot_of(caller, "all"));
  auto listing = table_.list(slot.team);
  ATOLL_CO_TRY_ASSIGN(const std::vector<Row> rows, co_await std::move(listing));
  std::vector<Session> out;
  for (const Row& row : rows) {
    if (mine(row)) out.push_back(describe(row));
  }
  co_return out;
}

net::Task<Result<std::vector<Session>>> Manager::list(engine::Caller caller) {
  ATOLL_CO_TRY_ASSIGN(const Slot slot, slot_of(caller, "all"));
  auto listing = table_.list(slot.team);
  ATOLL_CO_TRY_ASSIGN(const std::vector<Row> rows, co_await std::move(listing));
  std::map<std::string, Session> elsewhere;
  std::map<std::string, bool> asked;
  std::vector<Session> out;
  for (const Row& row : rows) {
    if (row.ready && !mine(row) && asked.emplace(row.node, true).second) {
      auto asking = peers_->list(row.node, slot.team);
      auto told = co_await std::move(asking);
      if (told.ok()) {
        for (Session& session : *told) elsewhere.insert_or_assign(session.key, session);
      }
    }
    const auto found = elsewhere.find(row.key);
    out.push_back(found != elsewhere.end() ? found->second : describe(row));
  }
  co_return out;
}

// ---- time ----

Timestamp Manager::last_use(const Row& row) const {
  const auto id = SandboxId::parse(row.sandbox_id);
  const auto quiet = id ? engine_.quiet_for(*id) : std::nullopt;
  return quiet ? std::max<Timestamp>(row.used_at, now() - *quiet) : row.used_at;
}

// Traffic of an earlier process is known only as far as it was written down. So a ttl counts from
// this one's start at the earliest; but not from every start anew, or a server that is restarted
// often would forget nothing.
Timestamp Manager::forget_at(Timestamp used, const Options& options) const {
  return std::max<Timestamp>(used, std::min<Timestamp>(started_, used + options.ttl)) + options.ttl;
}

Timestamp Manager::next_look(Timestamp used, const Options& options, Sandbox sandbox) const {
  const Timestamp current = now();
  const Timestamp next =
      std::min<Timestamp>(forget_at(used, options), current + milliseconds(options.ttl) / 4);
  if (options.pause_after.count() == 0 || sandbox == Sandbox::gone) return next;
  if (sandbox == Sandbox::runs)
    return std::min<Timestamp>(next, std::max(used, started_) + options.pause_after);
  return std::min<Timestamp>(next, current + std::max(options.pause_after, kLookAtPaused));
}

void Manager::schedule(const Row& row) {
  const auto id = SandboxId::parse(row.sandbox_id);
  if (!id) return;
  clock_.set(*id, Slot{row.team, row.key}, next_look(row.used_at, options_of(row), Sandbox::runs));
}

net::Task<void> Manager::look(SandboxId id, Slot slot) {
  auto looking = look_closely(id, slot);
  const auto done = co_await std::move(looking);
  if (done.ok()) co_return;
  log::warn("a session could not be looked at; trying again",
            {{"session", slot.key}, {"error", done.error().message}});
  clock_.set(id, slot, now() + kTableRetry);
}

// Pauses it if it was idle, forgets it if it was unused for too long, and sets when to look again.
net::Task<Result<void>> Manager::look_closely(SandboxId id, Slot slot) {
  ATOLL_CO_TRY_ASSIGN(const bool sleeps, sleeps_on(id, slot));
  if (sleeps) co_return Result<void>();
  auto locking = locks_.lock(slot.text(), options_.patience);
  ATOLL_CO_TRY_ASSIGN(const Locks::Guard guard, co_await std::move(locking));
  auto getting = table_.get(slot.team, slot.key);
  ATOLL_CO_TRY_ASSIGN(const std::optional<Row> row, co_await std::move(getting));
  if (!row || !row->ready || !mine(*row) || row->sandbox_id != id.str()) {
    clock_.remove(id);
    co_return Result<void>();
  }
  ATOLL_CO_TRY_ASSIGN(const engine::Caller caller, caller_of(row->team));
  const Options options = options_of(*row);
  const Timestamp current = now();
  const Timestamp used = last_use(*row);
  if (current >= forget_at(used, options)) {
    auto removing = remove_locked(slot);
    ATOLL_CO_TRY_ASSIGN(const bool removed, co_await std::move(removing));
    if (removed) log::info("a session was forgotten: its ttl is over", {{"session", slot.key}});
    co_return Result<void>();
  }
  auto noting = note_use(*row, used);
  ATOLL_CO_TRY(co_await std::move(noting));
  const auto info = engine_.info(caller, id);
  Sandbox sandbox = Sandbox::gone;
  if (info.ok()) {
    const bool runs = info->record.state == store::SandboxState::running;
    sandbox = runs ? Sandbox::runs : Sandbox::sleeps;
  }
  if (sandbox == Sandbox::runs && options.pause_after.count() > 0 &&
      current >= std::max(used, started_) + options.pause_after) {
    auto pausing = pause_idle(caller, id, slot);
    if (!co_await std::move(pausing)) {
      const Timestamp next = next_look(used, options, Sandbox::gone);
      clock_.set(id, slot, std::min<Timestamp>(next, current + kPauseRetry));
      co_return Result<void>();
    }
    sandbox = Sandbox::sleeps;
  }
  clock_.set(id, slot, next_look(used, options, sandbox));
  co_return Result<void>();
}

// Of a sandbox that sleeps this server itself knows all there is to know, as long as its ttl is
// not over: the table on another machine is not asked every time. Then the next look is set, too.
Result<bool> Manager::sleeps_on(const SandboxId& id, const Slot& slot) {
  if (mirror_ == nullptr) return false;
  ATOLL_TRY_ASSIGN(const engine::Caller caller, caller_of(slot.team));
  const auto info = engine_.info(caller, id);
  if (!info.ok() || info->record.state != store::SandboxState::paused) return false;
  ATOLL_TRY_ASSIGN(const std::optional<Row> kept, mirror_->get(slot.team, slot.key));
  if (!kept || !kept->ready || kept->sandbox_id != id.str()) return false;
  const Options options = options_of(*kept);
  if (now() >= forget_at(kept->used_at, options)) return false;
  if (last_use(*kept) >= kept->used_at + kUseGrain) return false;  // to be written down
  clock_.set(id, slot, next_look(kept->used_at, options, Sandbox::sleeps));
  return true;
}

// A row that has changed meanwhile is somebody else's by now: the next look tells.
net::Task<Result<void>> Manager::note_use(Row row, Timestamp used) {
  if (used < row.used_at + kUseGrain) co_return Result<void>();
  row.used_at = used;
  auto writing = table_.put(row);
  ATOLL_CO_TRY_ASSIGN(const auto version, co_await std::move(writing));
  if (!version) co_return Result<void>();
  row.version = *version;
  co_return keep_mirror(row);
}

// False: it runs on.
net::Task<bool> Manager::pause_idle(engine::Caller caller, SandboxId id, Slot slot) {
  auto pausing =
      run_apart(tasks_, engine_.pause(std::move(caller), id, true), options_.pause_answer);
  const auto done = co_await std::move(pausing);
  if (done && !done->ok()) {
    log::warn("an idle session was not paused",
              {{"session", slot.key}, {"error", done->error().message}});
    co_return false;
  }
  log::info("an idle session was paused", {{"session", slot.key}, {"sandbox", id.str()}});
  co_return true;
}

}  // namespace atl::session
