// Manager: the sessions of this server.
//
// Theory of operation. The table (table.h) says which sandbox a key means and which node has it.
// Whoever wants a key that means nothing yet writes a *claim* into the table: a row that is not
// ready, with a lease that is renewed while the sandbox is made. The sandbox carries the claim's
// random name in its metadata. When it runs, the row becomes ready, if it is still the claim's;
// otherwise somebody else was faster, and what was made is killed. A claim whose lease ran out may
// be written over. So there is never a second sandbox that the key could mean.
//
// On one node the work on one key is done one after the other (locks.h). A sandbox belongs to the
// node that made it: work on the sessions of other nodes is passed on to them (peers.h).
//
// A table on another machine may be away while the server starts, or forget. So the rows of this
// node are also kept in its own store (`mirror`): what was cut off half-way is found there and
// removed, what the table has lost is told to it again.
//
// Idle sessions are paused and unused ones forgotten by a timer (idle_clock.h). What traffic a
// sandbox has is known by this process alone; it is written into the row when the timer looks, at
// least four times in a ttl, so that the next process and the other nodes know it too.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "engine/engine.h"
#include "engine/tasks.h"
#include "session/idle_clock.h"
#include "session/locks.h"
#include "session/peers.h"
#include "session/table.h"

namespace atl::session {

struct ManagerOptions {
  std::string node = "local";  // the name of this server among those that share the table
  std::chrono::milliseconds lease{15'000};
  std::chrono::milliseconds renew_every{5'000};
  std::chrono::milliseconds patience{60'000};      // with whoever works on the same key
  std::chrono::milliseconds look_again{50};        // at somebody else's claim
  std::chrono::milliseconds publish_limit{5'000};  // a sandbox was made, the table does not answer
  std::chrono::milliseconds pause_answer{2'000};   // a pause that takes longer goes on by itself
};

class Manager final : public Sessions {
 public:
  // All outlive it. `mirror`: null when the table is in the store already. `peers`: null when there
  // are none.
  Manager(net::asio::io_context& io, engine::Engine& engine, store::Store& store, Table& table,
          store::SessionRows* mirror, Peers* peers, ManagerOptions options);
  ~Manager() override;

  // After the engine has started and before the first request. A table that does not answer is no
  // failure.
  net::Task<void> start();
  // Compares the table with what this node has; to be called when it answers again.
  net::Task<Result<void>> reconcile();
  net::Task<void> stop(std::chrono::milliseconds limit);

  net::Task<Result<Acquired>> acquire(engine::Caller caller, std::string key,
                                      Options options) override;
  net::Task<Result<void>> pause(engine::Caller caller, std::string key) override;
  net::Task<Result<void>> remove(engine::Caller caller, std::string key) override;
  net::Task<Result<Session>> info(engine::Caller caller, std::string key) override;
  net::Task<Result<std::vector<Session>>> list(engine::Caller caller) override;
  // Only those that this node has.
  net::Task<Result<std::vector<Session>>> list_own(engine::Caller caller);

  const ManagerOptions& options() const { return options_; }

 private:
  struct Claim;
  using Maybe = Result<std::optional<Acquired>>;  // nullopt: things have changed, look again

  Result<Slot> slot_of(const engine::Caller& caller, std::string key) const;
  Result<engine::Caller> caller_of(const std::string& team) const;
  // Without peers every row is this server's, whatever it was called when it wrote it.
  bool mine(const Row& row) const { return peers_ == nullptr || row.node == options_.node; }
  Timestamp now() const { return engine_.options().clock(); }
  net::Task<void> sleep(std::chrono::milliseconds time);

  // ---- manager.cc ----
  net::Task<Result<Acquired>> acquire_patiently(engine::Caller caller, Slot slot, Options options);
  net::Task<Maybe> acquire_locked(engine::Caller caller, Slot slot, Options options);
  net::Task<Maybe> reuse(engine::Caller caller, Row row, Options options);
  net::Task<Result<bool>> belongs_to_other(const Row& row);
  net::Task<Result<void>> remove_patiently(Slot slot);
  net::Task<Result<bool>> remove_locked(Slot slot);
  Session describe(const Row& row) const;
  enum class Sandbox { runs, sleeps, gone };
  Timestamp last_use(const Row& row) const;
  // When a session that was used then is forgotten, and when the timer looks at it.
  Timestamp forget_at(Timestamp used, const Options& options) const;
  Timestamp next_look(Timestamp used, const Options& options, Sandbox sandbox) const;
  void schedule(const Row& row);
  net::Task<void> look(SandboxId id, Slot slot);
  net::Task<Result<void>> look_closely(SandboxId id, Slot slot);
  Result<bool> sleeps_on(const SandboxId& id, const Slot& slot);
  net::Task<Result<void>> note_use(Row row, Timestamp used);
  net::Task<bool> pause_idle(engine::Caller caller, SandboxId id, Slot slot);

  // ---- making.cc: claims ----
  net::Task<Maybe> make(engine::Caller caller, Slot slot, std::string over, Options options);
  net::Task<Result<bool>> publish(std::shared_ptr<Claim> claim, SandboxId made);
  net::Task<void> renew(std::shared_ptr<Claim> claim);
  net::Task<void> give_up(std::shared_ptr<Claim> claim);
  // The row of a key, under its lock. One that the table has forgotten is told to it again first.
  net::Task<Result<std::optional<Row>>> row_of(Slot slot);
  net::Task<Result<void>> settle(Slot slot);
  net::Task<Result<void>> settle_unmirrored(Row row);
  net::Task<void> kill_claimed(const std::string& team, const std::string& claim);
  net::Task<void> kill(const std::string& team, const std::string& sandbox);
  Result<bool> is_mirrored(const Slot& slot) const;
  Result<void> keep_mirror(const Row& row);
  void drop_mirror(const Slot& slot);

  net::asio::io_context& io_;
  engine::Engine& engine_;
  store::Store& store_;
  Table& table_;
  store::SessionRows* const mirror_;
  Peers* const peers_;
  const ManagerOptions options_;
  Timestamp started_{};  // traffic before that is not known
  Locks locks_;
  engine::Tasks tasks_;
  IdleClock clock_;
};

}  // namespace atl::session
