// Engine: owns every sandbox of this server and the state machine of each. Everybody else sends it
// commands.
//
// Threads. Commands are coroutines and may be awaited on any strand. The state is guarded by one
// mutex that is held for short sections only, never across a suspension; the store is written
// inside those sections, so the order of the rows is the order of the decisions. Work that takes
// time (making, destroying) runs as a task of the engine on a strand of its own: a client that goes
// away neither stops nor loses it. The proxy reads routes, which have a lock of their own.
//
// A sandbox in a transition belongs to the task that performs it; the state machine
// (state_machine.h) refuses all others.
#pragma once

#include <boost/asio/io_context.hpp>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "engine/commands.h"
#include "engine/expiry.h"
#include "engine/route.h"
#include "engine/state_machine.h"
#include "engine/tasks.h"
#include "engine/tokens.h"
#include "net/stream.h"
#include "net/task.h"
#include "runtime/runtime.h"
#include "store/store.h"
#include "templates/catalog.h"

namespace atl::engine {

// Why a sandbox ended, for the audit log.
enum class KillReason { request, expired, died, shutdown };

enum class AtShutdown { kill_sandboxes, leave_sandboxes };

struct EngineOptions {
  std::filesystem::path home;       // keys/ is read below it
  std::filesystem::path templates;  // directory of templates; empty: home/templates
  std::string domain;               // told to clients; empty: none
  std::size_t max_sandboxes = 1000;
  std::size_t max_creates_in_flight = 256;
  std::uint32_t max_connections_per_sandbox = 0;  // 0: no limit
  std::uint32_t max_pids = 1024;
  std::chrono::seconds max_timeout = std::chrono::hours(24);
  std::chrono::milliseconds create_deadline{30'000};
  std::chrono::milliseconds kill_deadline{30'000};
  std::chrono::milliseconds dial_deadline{5'000};
  std::chrono::hours keep_killed_rows{24};
  AtShutdown at_shutdown = AtShutdown::kill_sandboxes;
  std::function<Timestamp()> clock = now;
};

class Engine {
 public:
  // `store` and `runtime` outlive the engine. Fails when the token seed cannot be read or made.
  static Result<std::unique_ptr<Engine>> create(net::asio::io_context& io, store::Store& store,
                                                runtime::Runtime& runtime, EngineOptions options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Removes what an earlier run left behind, then starts the expiry timer. Await it before the
  // first command.
  net::Task<Result<void>> start();
  // Refuses new sandboxes, finishes or kills the others as the options say, within `limit`.
  net::Task<void> shutdown(std::chrono::milliseconds limit);

  // ---- commands ----
  // Answers when the agent inside does. resource_exhausted: a limit; unavailable: shutting down;
  // deadline_exceeded; not_found and invalid_argument: the template, the timeout; internal: it
  // could not be made, nothing is left.
  net::Task<Result<SandboxInfo>> create(CreateCommand command);
  // Answers when nothing of it is left. It is unreachable and unlisted from the beginning of the
  // call.
  net::Task<Result<void>> kill(Caller caller, SandboxId id);
  // Ends `timeout` from now; zero is now.
  Result<void> set_timeout(const Caller& caller, const SandboxId& id, std::chrono::seconds timeout);
  // Like set_timeout, but never shortens.
  Result<void> refresh(const Caller& caller, const SandboxId& id, std::chrono::seconds duration);
  // Extends, never shortens: the end is exactly unchanged when it is later already.
  net::Task<Result<SandboxInfo>> connect(Caller caller, SandboxId id, std::chrono::seconds timeout);
  Result<SandboxInfo> info(const Caller& caller, const SandboxId& id) const;
  ListPage list(const ListQuery& query) const;

  // ---- for the proxy ----
  // Null: not running (unknown, killed, expired).
  std::shared_ptr<Route> route(const SandboxId& id) const { return routes_.find(id); }
  std::shared_ptr<Route> route_by_access_token(std::string_view token) const {
    return routes_.find_by_access_token(token);
  }
  // A connection to the agent of a running sandbox, within the dial deadline.
  net::Task<Result<std::unique_ptr<net::Stream>>> dial_agent(SandboxId id);

  templates::Catalog& templates() { return templates_; }
  const EngineOptions& options() const { return options_; }
  // The wall clock was set: ends are looked at again now.
  void clock_changed();
  bool accepting() const;
  std::size_t live() const;

 private:
  struct Sandbox;
  using SandboxPtr = std::shared_ptr<Sandbox>;

  Engine(net::asio::io_context& io, store::Store& store, runtime::Runtime& runtime,
         EngineOptions options, Tokens tokens);

  // Steps of a life, in lifecycle.cc. Those that say "locked" need mutex_ held.
  Result<SandboxPtr> reserve(const CreateCommand& command, const templates::Template& base);
  net::Task<void> run_create(SandboxPtr sandbox);
  net::Task<Result<void>> make_and_init(SandboxPtr sandbox);
  void finish_create(const SandboxPtr& sandbox, Result<void> made);
  void begin_kill_locked(const SandboxPtr& sandbox, KillReason reason);
  net::Task<void> run_kill(SandboxPtr sandbox);
  net::Task<Result<void>> destroy(SandboxId id);
  // False: given up, because the server shuts down.
  net::Task<bool> destroy_until_gone(SandboxId id);
  net::Task<void> destroy_leftover(SandboxId id);
  void on_agent_exit(const SandboxId& id);
  void set_state_locked(Sandbox& sandbox, Event event);
  void drop(const SandboxPtr& sandbox);

  net::Task<Result<void>> remove_leftovers();
  net::Task<void> expiry_loop();
  net::Task<void> housekeeping_loop();
  void wake_expiry_locked();

  Result<SandboxPtr> find_locked(const Caller& caller, const SandboxId& id) const;
  Result<void> move_end_locked(Sandbox& sandbox, Timestamp end);
  SandboxInfo describe(const store::SandboxRecord& record) const;
  Result<void> check_timeout(std::chrono::seconds timeout) const;

  net::asio::io_context& io_;
  store::Store& store_;
  runtime::Runtime& runtime_;
  const EngineOptions options_;
  const Tokens tokens_;
  templates::Catalog templates_;
  RouteTable routes_;
  Tasks tasks_;  // creates and kills
  Tasks loops_;  // timers

  mutable std::mutex mutex_;  // guards all below
  std::unordered_map<SandboxId, SandboxPtr> sandboxes_;
  std::size_t creating_ = 0;
  ExpiryQueue expiry_;
  bool stopping_ = false;

  struct Timers;
  std::unique_ptr<Timers> timers_;
};

}  // namespace atl::engine
