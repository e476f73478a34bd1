// What tests of sessions share: a manager over an engine with fake sandboxes, and a table that
// fails when a test wants it to. Only tests use it.
#pragma once

#include <atomic>

#include "engine/completion.h"
#include "engine/testing/fixture.h"
#include "session/manager.h"
#include "session/options.h"
#include "session/sqlite_table.h"

namespace atl::session::testing {

class FlakyTable final : public Table {
 public:
  explicit FlakyTable(store::SessionRows& rows) : real_(rows) {}
  std::atomic<bool> down = false;
  std::atomic<int> failing_puts = 0;  // the next ones are not done
  std::atomic<int> lost_answers = 0;  // the next puts are done, their answers are lost
  std::atomic<int> good_puts = 0;     // before those
  // Rows that say that their sandbox is ready wait for it; null: they do not. Set before the calls.
  std::shared_ptr<engine::Completion> gate;

  net::Task<Result<std::optional<Row>>> get(std::string team, std::string key) override {
    if (down) co_return gone();
    auto asking = real_.get(std::move(team), std::move(key));
    co_return co_await std::move(asking);
  }
  net::Task<Result<std::optional<std::string>>> put(Row row) override {
    if (down) co_return gone();
    if (row.ready && gate) {
      auto waiting = gate->wait(std::chrono::seconds(60));
      co_await std::move(waiting);
    }
    const bool good = good_puts > 0 && good_puts-- > 0;
    if (!good && failing_puts > 0 && failing_puts-- > 0) co_return gone();
    auto asking = real_.put(std::move(row));
    auto done = co_await std::move(asking);
    if (!good && lost_answers > 0 && lost_answers-- > 0) co_return gone();
    co_return done;
  }
  net::Task<Result<bool>> remove(Row row) override {
    if (down) co_return gone();
    auto asking = real_.remove(std::move(row));
    co_return co_await std::move(asking);
  }
  net::Task<Result<std::vector<Row>>> list(std::string team) override {
    if (down) co_return gone();
    auto asking = real_.list(std::move(team));
    co_return co_await std::move(asking);
  }

 private:
  static Error gone() { return make_error(Errc::unavailable, "the table does not answer"); }
  SqliteTable real_;
};

// Another manager of the same process, as a peer.
class OtherManager final : public Peers {
 public:
  Manager* other = nullptr;
  engine::Caller caller;
  std::atomic<bool> dead = false;
  std::atomic<int> asked = 0;

  net::Task<Result<Acquired>> acquire(std::string node, Slot slot, Options options) override {
    ++asked;
    if (dead) co_return silent(node);
    auto asking = other->acquire(caller, slot.key, std::move(options));
    co_return co_await std::move(asking);
  }
  net::Task<Result<void>> pause(std::string node, Slot slot) override {
    if (dead) co_return silent(node);
    auto asking = other->pause(caller, slot.key);
    co_return co_await std::move(asking);
  }
  net::Task<Result<void>> remove(std::string node, Slot slot) override {
    if (dead) co_return silent(node);
    auto asking = other->remove(caller, slot.key);
    co_return co_await std::move(asking);
  }
  net::Task<Result<Session>> info(std::string node, Slot slot) override {
    if (dead) co_return silent(node);
    auto asking = other->info(caller, slot.key);
    co_return co_await std::move(asking);
  }
  net::Task<Result<std::vector<Session>>> list(std::string node, std::string) override {
    if (dead) co_return silent(node);
    auto asking = other->list_own(caller);
    co_return co_await std::move(asking);
  }
  net::Task<Result<bool>> alive(std::string) override { co_return !dead; }

 private:
  static Error silent(const std::string& node) {
    return make_error(Errc::unavailable, "node " + node + " does not answer");
  }
};

inline Options base_options(const std::string& more = "") {
  return decode_options(R"({"templateID":"base")" + more + "}").value();
}

}  // namespace atl::session::testing
