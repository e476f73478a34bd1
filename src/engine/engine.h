// Engine: owns every sandbox of this server and the state machine of each. Everybody else sends it
// commands.
//
// Threads. Commands are coroutines and may be awaited on any strand. The state is guarded by one
// mutex that is held for short sections only, never across a suspension; the store is written
// inside those sections, so the order of the rows is the order of the decisions. Work that takes
// time (making, freezing, destroying) runs as a task of the engine on a strand of its own: a client
// that goes away neither stops nor loses it. The proxy reads routes, which have a lock of their
// own.
//
// A sandbox in a transition belongs to the task that performs it; the state machine
// (state_machine.h) refuses all others.
#pragma once

#include <boost/asio/io_context.hpp>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "egress/table.h"
#include "engine/commands.h"
#include "engine/expiry.h"
#include "engine/gate.h"
#include "engine/pool.h"
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
  std::size_t max_per_team = 0;  // 0: no limit of its own
  std::size_t max_per_key = 0;
  std::size_t max_creates_in_flight = 8;                  // more wait in line
  std::size_t max_creates_waiting = 1000;                 // more are refused at once
  std::chrono::milliseconds queue_deadline{20'000};       // in line no longer than this
  std::chrono::milliseconds transition_deadline{60'000};  // traffic and connects wait for a pause
  std::chrono::milliseconds sample_every{5'000};
  std::chrono::hours keep_metrics{7 * 24};
  std::string ca_bundle;  // PEM that sandboxes are to trust (interception); empty: none
  std::uint32_t max_connections_per_sandbox = 0;  // 0: no limit
  std::uint32_t max_pids = 1024;
  PoolOptions pool;  // nothing is made ahead unless asked for
  std::chrono::seconds max_timeout = std::chrono::hours(24);
  std::chrono::milliseconds create_deadline{30'000};
  std::chrono::milliseconds kill_deadline{30'000};
  std::chrono::milliseconds dial_deadline{5'000};
  std::chrono::hours keep_killed_rows{24};
  std::function<Timestamp()> clock = now;
};

// Counters since the start, and gauges.
struct Statistics {
  std::size_t creating = 0, running = 0, pausing = 0, paused = 0, resuming = 0, killing = 0;
  std::size_t waiting_creates = 0;  // in the queue for a place
  std::uint64_t created = 0, create_failures = 0, refused = 0, killed = 0, expired = 0,
                paused_total = 0, resumed_total = 0, adopted = 0, lost = 0;
  std::vector<double> create_seconds;  // of the last creates, for quantiles; bounded
  PoolStatistics pool;
};

class Engine {
 public:
  // `store` and `runtime` outlive the engine. Fails when the token seed cannot be read or made.
  static Result<std::unique_ptr<Engine>> create(net::asio::io_context& io, store::Store& store,
                                                runtime::Runtime& runtime, EngineOptions options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Adopts the sandboxes of an earlier run with their ids, tokens, ends and processes, finishes or
  // rolls back what was cut off half-way, removes what belongs to nobody, then starts the timers.
  // Await it before the first command.
  net::Task<Result<void>> start();
  // Refuses new sandboxes, finishes transitions, kills or leaves the others, within `limit`.
  net::Task<void> shutdown(std::chrono::milliseconds limit, AtShutdown others);

  // ---- commands ----
  // Answers when the agent inside does. resource_exhausted: a limit; unavailable: shutting down;
  // deadline_exceeded; not_found and invalid_argument: the template, the timeout; internal: it
  // could not be made, nothing is left.
  net::Task<Result<SandboxInfo>> create(CreateCommand command);
  // Answers when nothing of it is left. It is unreachable and unlisted from the beginning of the
  // call.
  net::Task<Result<void>> kill(Caller caller, SandboxId id);
  // Answers when it is really frozen (memory), or when its processes ended and its disk is at rest.
  // It is unreachable from the beginning of the call. Two pauses at once are one.
  // failed_precondition: paused already, or in another transition.
  net::Task<Result<void>> pause(Caller caller, SandboxId id, bool keep_memory);
  // failed_precondition: it runs, or is in another transition. Answers when the agent does.
  net::Task<Result<SandboxInfo>> resume(ResumeCommand command);
  // Ends `timeout` from now; zero is now.
  Result<void> set_timeout(const Caller& caller, const SandboxId& id, std::chrono::seconds timeout);
  // Like set_timeout, but never shortens.
  Result<void> refresh(const Caller& caller, const SandboxId& id, std::chrono::seconds duration);
  // Running: extends, never shortens; the end is exactly unchanged when it is later already.
  // Paused: resumes it; connects at the same time join one resume. In a transition: waits for its
  // end and looks again.
  net::Task<Result<Connected>> connect(Caller caller, SandboxId id, std::chrono::seconds timeout,
                                       Revive revive = Revive::as_paused);
  // In force for new connections when it answers; kept over pauses. not_found: unknown or paused.
  net::Task<Result<void>> update_network(Caller caller, SandboxId id, NetworkUpdate update);
  // Kills everything of a team, at most all at once; paused ones too.
  net::Task<KillCount> kill_team(std::string team_id);
  Result<SandboxInfo> info(const Caller& caller, const SandboxId& id) const;
  ListPage list(const ListQuery& query) const;
  // How many run, by team.
  std::map<std::string, std::size_t> running_counts() const;
  // Samples of one sandbox in time order, thinned to the step that E2B uses for the range.
  // invalid_argument: start after end.
  Result<std::vector<store::MetricRecord>> metrics(const Caller& caller, const SandboxId& id,
                                                   std::optional<Timestamp> start,
                                                   std::optional<Timestamp> end) const;
  // The last sample of each; unknown ids are left out.
  std::map<std::string, store::MetricRecord> last_metrics(const Caller& caller,
                                                          const std::vector<SandboxId>& ids) const;
  // What happened to it and what ran in it. Asks the agent for news first.
  net::Task<Result<std::vector<store::LogRecord>>> logs(Caller caller, SandboxId id,
                                                        LogQuery query);

  // ---- for the proxy ----
  // Null: not running (unknown, killed, expired).
  std::shared_ptr<Route> route(const SandboxId& id) const { return routes_.find(id); }
  std::shared_ptr<Route> route_by_access_token(std::string_view token) const {
    return routes_.find_by_access_token(token);
  }
  // For traffic to a sandbox that does not run. A paused one with auto-resume is resumed if the
  // credentials allow it, one in a transition is waited for. not_found: unknown, or nothing wakes
  // it; permission_denied; deadline_exceeded: the transition takes too long; resource_exhausted.
  net::Task<Result<std::shared_ptr<Route>>> wake(WakeRequest request);
  // A connection to the agent of a running sandbox, within the dial deadline.
  net::Task<Result<std::unique_ptr<net::Stream>>> dial_agent(SandboxId id);

  templates::Catalog& templates() { return templates_; }
  // Addresses and policies, for the resolver and the egress proxy.
  const egress::Table& egress() const { return egress_; }
  const EngineOptions& options() const { return options_; }
  // The wall clock was set: ends are looked at again now.
  void clock_changed();
  bool accepting() const;
  std::size_t live() const;
  // Figures for /metrics (Prometheus).
  Statistics statistics() const;

 private:
  struct Sandbox;
  struct Transition;
  struct Timers;
  using SandboxPtr = std::shared_ptr<Sandbox>;
  using TransitionPtr = std::shared_ptr<Transition>;
  struct ResumePlan {
    std::chrono::seconds timeout{0};
    bool cold = false;
    std::optional<bool> auto_pause;
    Timestamp paused_at{};    // its end while it was paused
    bool was_frozen = false;  // its processes are frozen, still
  };

  Engine(net::asio::io_context& io, store::Store& store, runtime::Runtime& runtime,
         EngineOptions options, Tokens tokens);

  // Names that end in "locked" need mutex_ held. `run_` are tasks: they own the transition.

  // ---- create.cc ----
  enum class Source : std::uint8_t { pool_first, on_demand };
  net::Task<Result<SandboxInfo>> make(SandboxPtr sandbox);
  Result<SandboxPtr> reserve(const CreateCommand& command, const templates::Template& base,
                             egress::Policy policy, Source source);
  Result<void> check_limits_locked(const std::string& team_id, const std::string& key_id) const;
  Result<void> record_create(const SandboxPtr& sandbox);
  net::Task<void> run_create(SandboxPtr sandbox, Gate::Pass pass);
  void finish_create(const SandboxPtr& sandbox, Result<void> made);
  Result<void> record_created_locked(const Sandbox& sandbox);
  // ---- boot.cc: from a spec to an agent that knows who it is ----
  net::Task<Result<void>> boot(SandboxPtr sandbox, store::SandboxRecord record, runtime::Disk disk);
  // From an entry of the pool to an agent that knows who it is.
  net::Task<Result<void>> hand_out(SandboxPtr sandbox, store::SandboxRecord record,
                                   Pool::Entry entry);
  net::Task<Result<void>> init_agent(store::SandboxRecord record, std::chrono::milliseconds limit);
  net::Task<Result<void>> check_agent(SandboxId id);
  void set_address(Sandbox& sandbox, Ipv4 address);
  void clear_address(Sandbox& sandbox);
  // Routed, with an end: what running means to others.
  void go_live_locked(Sandbox& sandbox);
  void go_dark_locked(Sandbox& sandbox);

  // ---- kill.cc ----
  void begin_kill_locked(const SandboxPtr& sandbox, KillReason reason, const Caller& by);
  net::Task<void> run_kill(SandboxPtr sandbox, TransitionPtr kill, TransitionPtr before);
  net::Task<Result<void>> destroy(SandboxId id);
  // False: given up, because the server shuts down.
  net::Task<bool> destroy_until_gone(SandboxId id);
  net::Task<void> drain(std::shared_ptr<Route> route);
  net::Task<void> remove_unowned(SandboxId id);
  void on_agent_exit(const SandboxId& id);
  void drop(const SandboxPtr& sandbox);

  // ---- pause.cc ----
  Result<TransitionPtr> begin_pause_locked(const SandboxPtr& sandbox, bool keep_memory,
                                           const Caller& by);
  net::Task<void> run_pause(SandboxPtr sandbox, TransitionPtr pause);
  net::Task<Result<void>> put_to_rest(SandboxPtr sandbox, bool keep_memory);
  void finish_pause(const SandboxPtr& sandbox, const TransitionPtr& pause, Result<void> done);

  // ---- resume.cc ----
  Result<TransitionPtr> begin_resume_locked(const SandboxPtr& sandbox, ResumePlan plan,
                                            const Caller& by);
  net::Task<void> run_resume(SandboxPtr sandbox, TransitionPtr resume, ResumePlan plan);
  net::Task<Result<void>> thaw(SandboxId id);
  net::Task<Result<void>> boot_again(SandboxPtr sandbox, std::string boot_id);
  void finish_resume(const SandboxPtr& sandbox, const TransitionPtr& resume, const ResumePlan& plan,
                     Result<void> done, const std::string& boot_id);
  Result<void> may_wake_locked(const Sandbox& sandbox, const WakeRequest& request) const;

  // ---- adopt.cc ----
  net::Task<Result<void>> adopt_all();
  net::Task<void> adopt(store::SandboxRecord row, std::optional<runtime::Listed> found,
                        std::shared_ptr<Gate> gate, std::shared_ptr<void> token);
  net::Task<void> adopt_running(SandboxPtr sandbox, Ipv4 address);
  net::Task<void> tell_again(SandboxPtr sandbox, std::shared_ptr<Gate> gate);
  void adopt_paused(const SandboxPtr& sandbox, Ipv4 address, bool memory_kept);
  net::Task<void> bury(store::SandboxRecord row, bool lost);
  net::Task<void> bury_later(store::SandboxRecord row, bool lost);
  void record_end(store::SandboxRecord row, bool lost);
  net::Task<void> remove_unknown(SandboxId id, std::shared_ptr<void> token);

  // ---- timeouts.cc, network.cc, metrics.cc, logs.cc ----
  net::Task<void> expiry_loop();
  void expire_locked(const SandboxPtr& sandbox);
  void wake_expiry_locked();
  net::Task<void> housekeeping_loop();
  Result<void> begin_network_locked(const SandboxPtr& sandbox, const TransitionPtr& change,
                                    const NetworkUpdate& update, const Caller& by);
  net::Task<void> run_network(SandboxPtr sandbox, TransitionPtr change, store::SandboxRecord before,
                              egress::Policy policy);
  net::Task<void> sampler_loop();
  net::Task<std::optional<store::Sample>> sample(SandboxPtr sandbox);
  net::Task<void> sample_first(SandboxPtr sandbox);
  net::Task<void> pull_logs(SandboxPtr sandbox);
  net::Task<void> pull_logs_once(SandboxPtr sandbox);
  void note(const Sandbox& sandbox, store::LogLevel level, std::string message,
            StringMap fields = {});
  void audit(const Caller& by, std::string action, const SandboxId& id, std::string detail = {});

  // ---- engine.cc ----
  Result<SandboxPtr> find_locked(const Caller& caller, const SandboxId& id) const;
  // Changes the state; illegal is a bug of ours.
  void set_state_locked(Sandbox& sandbox, Event event);
  // The row as it is now; failures are logged, the next start sorts it out.
  void save_locked(const Sandbox& sandbox);
  // Ends a transition: whoever waits for it goes on.
  void finish(const TransitionPtr& transition, std::optional<Error> failure);
  net::Task<Result<void>> wait_for(TransitionPtr transition, std::chrono::milliseconds limit,
                                   std::string_view late);
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
  egress::Table egress_;
  Gate gate_;    // boots at once
  Gate pulls_;   // agents asked for their logs at once
  Tasks tasks_;  // transitions
  Tasks loops_;  // timers
  Pool pool_;

  mutable std::mutex mutex_;  // guards all below
  std::unordered_map<SandboxId, SandboxPtr> sandboxes_;
  ExpiryQueue expiry_;
  bool stopping_ = false;
  bool adopting_ = false;
  std::vector<SandboxId> early_exits_;  // told while adopting
  Statistics counts_;                   // the counters; gauges are counted when asked
  std::size_t next_create_second_ = 0;  // where the next one goes in counts_.create_seconds
  std::unique_ptr<Timers> timers_;
};

}  // namespace atl::engine
