// Claims: how a session gets its sandbox, and what becomes of one whose maker was cut off.
#include <boost/asio/as_tuple.hpp>
#include <mutex>

#include "base/log.h"
#include "engine/completion.h"
#include "proxy/inside.h"
#include "session/manager.h"
#include "session/options.h"

namespace atl::session {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPublishAgain{200};

}  // namespace

// The row as it was last written. Its maker and the task that renews its lease share it.
struct Manager::Claim {
  std::mutex mutex;
  Row row;
  engine::Completion over;  // nobody renews it any more

  Row get() {
    std::lock_guard lock(mutex);
    return row;
  }
  void set_version(std::string version) {
    std::lock_guard lock(mutex);
    row.version = std::move(version);
  }
};

net::Task<Manager::Maybe> Manager::make(engine::Caller caller, Slot slot, std::string over,
                                        Options options) {
  const auto claim = std::make_shared<Claim>();
  Row& row = claim->row;
  row.team = slot.team;
  row.key = slot.key;
  row.version = std::move(over);
  row.node = options_.node;
  row.claim = random_hex(16);
  row.lease = options_.lease;
  row.created_at = row.used_at = now();
  row.options = json::serialize(encode_options(options));
  ATOLL_CO_TRY_ASSIGN(engine::CreateCommand command,
                      create_command(caller, slot.key, row.claim, options));
  // Known here before anything is made: whatever happens, the next start finds it.
  ATOLL_CO_TRY(keep_mirror(row));
  auto claiming = table_.put(row);
  auto claimed = co_await std::move(claiming);
  if (!claimed.ok() || !*claimed) {
    drop_mirror(slot);
    if (!claimed.ok()) co_return std::move(claimed).error();
    co_return std::optional<Acquired>();
  }
  claim->set_version(**claimed);
  tasks_.spawn("session lease", renew(claim));
  auto creating = engine_.create(std::move(command));
  auto made = co_await std::move(creating);
  claim->over.set();
  if (!made.ok()) {
    auto giving_up = give_up(claim);
    co_await std::move(giving_up);
    co_return std::move(made).error();
  }
  const SandboxId id = made->record.id;
  auto publishing = publish(claim, id);
  auto published = co_await std::move(publishing);
  if (!published.ok() || !*published) {
    log::warn("a sandbox was made for a session that it could not become; it is killed",
              {{"session", slot.key},
               {"sandbox", id.str()},
               {"why", published.ok() ? "somebody else was faster" : published.error().message}});
    auto killing = kill(slot.team, id.str());
    co_await std::move(killing);
    drop_mirror(slot);
    if (!published.ok()) co_return std::move(published).error();
    co_return std::optional<Acquired>();
  }
  const Row final_row = claim->get();
  ATOLL_CO_TRY(keep_mirror(final_row));
  schedule(final_row);
  Acquired out{.session = describe(final_row), .came = Came::created, .sandbox = std::move(*made)};
  out.inside = proxy::inside_of(engine_, id, out.sandbox.access_token.value_or(""));
  co_return std::optional<Acquired>(std::move(out));
}

// False: the key is somebody else's by now. A write whose answer was lost may have happened: what
// is there tells.
net::Task<Result<bool>> Manager::publish(std::shared_ptr<Claim> claim, SandboxId made) {
  {
    std::lock_guard lock(claim->mutex);
    claim->row.ready = true;
    claim->row.lease = {};
    claim->row.sandbox_id = made.str();
    claim->row.used_at = now();
  }
  const auto until = Clock::now() + options_.publish_limit;
  for (;;) {
    auto writing = table_.put(claim->get());
    auto written = co_await std::move(writing);
    if (written.ok() && *written) {
      claim->set_version(**written);
      co_return true;
    }
    auto getting = table_.get(claim->row.team, claim->row.key);
    auto there = co_await std::move(getting);
    if (there.ok()) {
      if (!*there || (*there)->claim != claim->row.claim) co_return false;
      claim->set_version((*there)->version);
      if ((*there)->ready) co_return true;
      if (written.ok()) continue;  // a renewal came between
    }
    if (Clock::now() >= until) {
      if (!there.ok()) co_return std::move(there).error();
      co_return std::move(written).error();
    }
    auto waiting = sleep(kPublishAgain);
    co_await std::move(waiting);
  }
}

net::Task<void> Manager::renew(std::shared_ptr<Claim> claim) {
  for (;;) {
    auto waiting = claim->over.wait(options_.renew_every);
    if (co_await std::move(waiting)) co_return;
    Row row = claim->get();
    if (row.ready) co_return;
    row.lease = options_.lease;
    auto writing = table_.put(std::move(row));
    auto written = co_await std::move(writing);
    // Without an answer it is tried again; a claim that was lost shows when it is published.
    if (written.ok() && *written) claim->set_version(**written);
    if (written.ok() && !*written) co_return;
  }
}

// Nothing was made. If the table does not answer, the lease frees the key.
net::Task<void> Manager::give_up(std::shared_ptr<Claim> claim) {
  const Row row = claim->get();
  auto removing = table_.remove(row);
  auto removed = co_await std::move(removing);
  if (removed.ok() && !*removed) {
    auto getting = table_.get(row.team, row.key);
    auto there = co_await std::move(getting);
    if (there.ok() && *there && (*there)->claim == row.claim) {
      auto again = table_.remove(**there);
      removed = co_await std::move(again);
    }
  }
  if (!removed.ok()) {
    log::warn("a claim could not be taken back; it ends with its lease",
              {{"session", row.key}, {"error", removed.error().message}});
  }
  drop_mirror({row.team, row.key});
}

// ---- what a start finds ----

net::Task<Result<void>> Manager::reconcile() {
  std::vector<Row> rows;
  if (mirror_ != nullptr) {
    ATOLL_CO_TRY_ASSIGN(rows, mirror_->list(""));
  } else {
    auto listing = table_.list("");
    ATOLL_CO_TRY_ASSIGN(rows, co_await std::move(listing));
  }
  for (Row& row : rows) {
    Slot slot{row.team, row.key};
    auto locking = locks_.lock(slot.text(), options_.patience);
    ATOLL_CO_TRY_ASSIGN(const Locks::Guard guard, co_await std::move(locking));
    auto settling =
        mirror_ != nullptr ? settle(std::move(slot)) : settle_unmirrored(std::move(row));
    ATOLL_CO_TRY(co_await std::move(settling));
  }
  co_return Result<void>();
}

net::Task<Result<void>> Manager::settle_unmirrored(Row row) {
  if (row.ready) {
    schedule(row);
    co_return Result<void>();
  }
  auto getting = table_.get(row.team, row.key);
  ATOLL_CO_TRY_ASSIGN(const std::optional<Row> there, co_await std::move(getting));
  if (!there || there->ready || there->claim != row.claim) co_return Result<void>();
  auto killing = kill_claimed(row.team, row.claim);
  co_await std::move(killing);
  auto removing = table_.remove(*there);
  ATOLL_CO_TRY(co_await std::move(removing));
  co_return Result<void>();
}

net::Task<Result<std::optional<Row>>> Manager::row_of(Slot slot) {
  auto getting = table_.get(slot.team, slot.key);
  ATOLL_CO_TRY_ASSIGN(std::optional<Row> row, co_await std::move(getting));
  if (row) co_return row;
  ATOLL_CO_TRY_ASSIGN(const bool kept, is_mirrored(slot));
  if (!kept) co_return row;
  auto settling = settle(slot);
  ATOLL_CO_TRY(co_await std::move(settling));
  auto again = table_.get(slot.team, slot.key);
  co_return co_await std::move(again);
}

net::Task<Result<void>> Manager::settle(Slot slot) {
  ATOLL_CO_TRY_ASSIGN(const std::optional<Row> kept, mirror_->get(slot.team, slot.key));
  if (!kept) co_return Result<void>();
  Row row = *kept;
  auto getting = table_.get(slot.team, slot.key);
  ATOLL_CO_TRY_ASSIGN(const std::optional<Row> there, co_await std::move(getting));
  if (there && there->claim == row.claim && there->ready) {
    ATOLL_CO_TRY(keep_mirror(*there));
    schedule(*there);
    co_return Result<void>();
  }
  const bool ours = there && there->claim == row.claim;
  if (row.ready && !there) {
    log::warn("the table has forgotten a session; it is told again", {{"session", row.key}});
    row.version.clear();
    row.node = options_.node;
    auto writing = table_.put(row);
    ATOLL_CO_TRY_ASSIGN(const auto version, co_await std::move(writing));
    if (version) {
      row.version = *version;
      schedule(row);
      co_return Result<void>();
    }
  }
  if (row.ready) {
    log::warn("a session has another sandbox by now; the one here is killed",
              {{"session", row.key}, {"sandbox", row.sandbox_id}});
  }
  auto killing = row.ready ? kill(row.team, row.sandbox_id) : kill_claimed(row.team, row.claim);
  co_await std::move(killing);
  if (ours) {
    auto removing = table_.remove(*there);
    ATOLL_CO_TRY(co_await std::move(removing));
  }
  drop_mirror(slot);
  co_return Result<void>();
}

net::Task<void> Manager::kill_claimed(const std::string& team, const std::string& claim) {
  const auto caller = caller_of(team);
  if (!caller.ok() || claim.empty()) co_return;
  engine::ListQuery query;
  query.team_id = caller->team_id;
  query.metadata = {{std::string(kClaimMetadata), claim}};
  for (const engine::SandboxInfo& info : engine_.list(query).items) {
    auto killing = kill(team, info.record.id.str());
    co_await std::move(killing);
  }
}

net::Task<void> Manager::kill(const std::string& team, const std::string& sandbox) {
  const auto caller = caller_of(team);
  const auto id = SandboxId::parse(sandbox);
  if (!caller.ok() || !id) co_return;
  clock_.remove(*id);
  auto killing = engine_.kill(*caller, *id);
  const auto done = co_await std::move(killing);
  if (!done.ok() && done.error().code != Errc::not_found) {
    log::error("the sandbox of a session was not killed",
               {{"sandbox", sandbox}, {"error", done.error().message}});
  }
}

Result<bool> Manager::is_mirrored(const Slot& slot) const {
  if (mirror_ == nullptr) return false;
  ATOLL_TRY_ASSIGN(const std::optional<Row> kept, mirror_->get(slot.team, slot.key));
  return kept.has_value();
}

// The mirror has one writer per key, who holds its lock: versions there only follow.
Result<void> Manager::keep_mirror(const Row& row) {
  if (mirror_ == nullptr) return {};
  Row copy = row;
  ATOLL_TRY_ASSIGN(const auto there, mirror_->get(row.team, row.key));
  copy.version = there ? there->version : std::string();
  ATOLL_TRY(mirror_->put(copy));
  return {};
}

void Manager::drop_mirror(const Slot& slot) {
  if (mirror_ == nullptr) return;
  auto there = mirror_->get(slot.team, slot.key);
  if (!there.ok() || !*there) return;
  if (auto gone = mirror_->remove(slot.team, slot.key, (*there)->version); !gone.ok()) {
    log::warn("a row of a session stays until the next start",
              {{"session", slot.key}, {"error", gone.error().message}});
  }
}

}  // namespace atl::session
