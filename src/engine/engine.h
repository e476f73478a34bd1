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
#include "engine/snapshot_table.h"
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

struct AgentInit;
enum class Adoption : std::uint8_t;

enum class AtShutdown { kill_sandboxes, leave_sandboxes };

struct EngineOptions {
  std::filesystem::path home;       // keys/ is read below it
  std::filesystem::path templates;  // directory of templates; empty: home/templates
  std::string domain;               // told to clients; empty: none
  std::size_t max_sandboxes = 1000;
  std::size_t max_per_team = 0;  // 0: no limit of its own
  std::size_t max_per_key = 0;
  std::size_t max_snapshots = 1000;
  std::size_t max_creates_in_flight = 8;                  // more wait in line
  std::size_t max_creates_waiting = 1000;                 // more are refused at once
  std::chrono::milliseconds queue_deadline{20'000};       // in line no longer than this
  std::chrono::milliseconds transition_deadline{60'000};  // traffic and connects wait for a pause
  std::chrono::milliseconds sample_every{5'000};
  std::chrono::hours keep_metrics{7 * 24};
  std::string ca_bundle;  // PEM that sandboxes are to trust (interception); empty: none
  std::uint32_t max_connections_per_sandbox = 0;  // 0: no limit
  std::uint32_t max_pids = 1024;
  // How long a paused sandbox is only frozen before its memory goes to files; 0: not at all, the
  // pause is answered when that is done.
  std::chrono::seconds keep_frozen{0};
  std::uint64_t max_frozen_memory = 0;  // of all that are frozen, in bytes; 0: no limit
  std::size_t max_dumps_in_flight = 4;  // more wait, frozen
  PoolOptions pool;                     // nothing is made ahead unless asked for
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
  std::size_t snapshots = 0;           // that clients can name
  std::uint64_t snapshots_total = 0, snapshot_failures = 0, forks_total = 0, fork_failures = 0,
                rollbacks_total = 0, rollback_failures = 0;
  std::vector<double> snapshot_pause_seconds;  // that sources stood still for; bounded
  // Of those that are paused: where their memory is.
  std::size_t paused_frozen = 0, paused_dumped = 0, paused_disk = 0;
  std::uint64_t frozen_bytes = 0, dumped_bytes = 0;
  std::uint64_t dumps = 0, dumps_cancelled = 0, dump_failures = 0, restores = 0,
                restore_failures = 0;
  std::vector<double> dump_seconds, restore_seconds;  // of the last ones; bounded
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
  // With memory: answers when that is in files and would survive a reboot; or when it is frozen, if
  // it is kept so for a while, cannot go to files (`memory_reason` of the record says why), or
  // somebody wants it back meanwhile. Without: when its processes ended and its disk is at rest.
  // It is unreachable from the beginning of the call. Two pauses at once are one.
  // failed_precondition: paused already, or in another transition. resource_exhausted with ENOSPC:
  // there is no space for its memory; it runs on.
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
  // ---- snapshots ----
  // Of a running sandbox, which stands still for a moment and runs on with the same end. not_found:
  // unknown or paused; failed_precondition: in a transition, or it cannot be had (the message says
  // why); invalid_argument: the name; unavailable: too busy, no space.
  net::Task<Result<SnapshotInfo>> snapshot(SnapshotCommand command);
  SnapshotPage list_snapshots(const SnapshotQuery& query) const;
  std::vector<std::string> names_of(const store::SnapshotRecord& record) const;
  // What a snapshot is called in a create. not_found; invalid_argument: bad grammar.
  Result<store::SnapshotRecord> find_snapshot(const Caller& caller, const std::string& text) const;
  // Of a snapshot. invalid_argument: sandboxes use it; permission_denied: a template of the server.
  net::Task<Result<void>> delete_template(Caller caller, std::string reference);
  // Copies of a running sandbox, each with an id, a token and an end of its own; one answer for
  // each. Errors as of snapshot.
  net::Task<Result<std::vector<Result<SandboxInfo>>>> fork(ForkCommand command);
  // Puts a running sandbox back to a snapshot; id, token and end stay. When that fails it goes on
  // where it was.
  net::Task<Result<SandboxInfo>> rollback(Caller caller, SandboxId id, std::string reference);
  // Kills everything of a team, at most all at once; paused ones too.
  net::Task<KillCount> kill_team(std::string team_id);
  Result<SandboxInfo> info(const Caller& caller, const SandboxId& id) const;
  ListPage list(const ListQuery& query) const;
  // Is it one of this server's, whoever asks and whatever its state?
  bool has(const SandboxId& id) const;
  // For how long no traffic has come to it; zero while a request is under way. nullopt: none since
  // this server started, or no such sandbox.
  std::optional<std::chrono::milliseconds> quiet_for(const SandboxId& id) const;
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
  // What a running one uses now, as the kernel counts it.
  net::Task<Result<runtime::Usage>> usage(Caller caller, SandboxId id);
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
  friend class EngineProbe;  // of the engine's own tests
  struct Sandbox;
  struct Transition;
  struct Timers;
  using SandboxPtr = std::shared_ptr<Sandbox>;
  using TransitionPtr = std::shared_ptr<Transition>;
  struct ResumePlan {
    std::chrono::seconds timeout{0};
    bool cold = false;
    std::optional<bool> auto_pause;
    Timestamp paused_at{};      // its end while it was paused
    bool restored = false;      // its memory came from files
    bool memory_there = false;  // its memory is still what it was when it was paused
    store::MemoryTier tier = store::MemoryTier::none;  // where its memory is
  };
  // What came of putting one to rest.
  struct Rested {
    store::MemoryTier tier = store::MemoryTier::none;
    std::string reason;                         // why its memory is not in files
    std::uint64_t bytes = 0;                    // in files, or in RAM
    std::optional<std::chrono::seconds> again;  // when a dump shall be tried
  };

  Engine(net::asio::io_context& io, store::Store& store, runtime::Runtime& runtime,
         EngineOptions options, Tokens tokens);

  // Names that end in "locked" need mutex_ held. `run_` are tasks: they own the transition.

  // ---- create.cc ----
  enum class Source : std::uint8_t { pool_first, on_demand };
  net::Task<Result<SandboxInfo>> make(SandboxPtr sandbox);
  Result<SandboxPtr> reserve(const CreateCommand& command, const templates::Template& base,
                             egress::Policy policy, Source source);
  // What a create names: a template, or a snapshot with what it has of one.
  struct Origin {
    templates::Template base;
    std::optional<store::SnapshotRecord> snapshot;
  };
  Result<Origin> find_origin(const CreateCommand& command);
  Result<SandboxPtr> reserve_restore(const CreateCommand& command, const Origin& origin,
                                     egress::Policy policy);
  store::SandboxRecord new_record(const CreateCommand& command,
                                  const templates::Template& base) const;
  // Among the sandboxes from now on, as one that is being made.
  SandboxPtr admit_locked(store::SandboxRecord record, const Caller& by, egress::Policy policy);
  Result<void> check_room_locked(const Caller& caller);
  Result<void> check_limits_locked(const std::string& team_id, const std::string& key_id) const;
  Result<void> record_create(const SandboxPtr& sandbox);
  net::Task<void> run_create(SandboxPtr sandbox, Gate::Pass pass);
  void finish_create(const SandboxPtr& sandbox, Result<void> made);
  Result<void> record_created_locked(const Sandbox& sandbox);
  // ---- boot.cc: from a spec to an agent that knows who it is ----
  runtime::SandboxSpec spec_of(const Sandbox& sandbox, const store::SandboxRecord& record) const;
  // A nursery is on its way from now on; nullptr: none will come.
  std::shared_ptr<Completion> warm(Sandbox& sandbox, const store::SandboxRecord& record);
  net::Task<Result<void>> boot(SandboxPtr sandbox, store::SandboxRecord record, runtime::Disk disk);
  // From an entry of the pool to an agent that knows who it is.
  net::Task<Result<void>> hand_out(SandboxPtr sandbox, store::SandboxRecord record,
                                   Pool::Entry entry);
  net::Task<Result<void>> init_agent(store::SandboxRecord record, std::chrono::milliseconds limit);
  net::Task<Result<void>> check_agent(SandboxId id);
  // After memory came back from files: POST /wake, then its health.
  net::Task<Result<void>> wake_agent(store::SandboxRecord record, bool forked,
                                     std::chrono::milliseconds limit);
  AgentInit init_of(const store::SandboxRecord& record) const;
  void set_address(Sandbox& sandbox, Ipv4 address);
  void clear_address(Sandbox& sandbox);
  // Routed, with an end: what running means to others.
  void go_live_locked(Sandbox& sandbox);
  void go_dark_locked(Sandbox& sandbox);

  // ---- kill.cc ----
  void begin_kill_locked(const SandboxPtr& sandbox, KillReason reason, const Caller& by);
  net::Task<void> run_kill(SandboxPtr sandbox, TransitionPtr kill, TransitionPtr before);
  net::Task<void> let_nursery_arrive(SandboxPtr sandbox);
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
  net::Task<Result<Rested>> put_to_rest(SandboxPtr sandbox, TransitionPtr pause);
  net::Task<Result<void>> stop_for_good(SandboxPtr sandbox);
  void finish_pause(const SandboxPtr& sandbox, const TransitionPtr& pause, Result<Rested> done);

  // ---- dump.cc ----
  void cancel_dump_locked(const SandboxPtr& sandbox);
  net::Task<void> run_cancel(SandboxId id, TransitionPtr transition);
  net::Task<Result<Gate::Pass>> dump_turn(TransitionPtr transition);
  // What the runtime has of one; nullopt: nothing, or it cannot be asked.
  net::Task<std::optional<runtime::Condition>> condition_of(SandboxId id);
  net::Task<Result<runtime::Written>> ask_dump(SandboxId id);
  net::Task<Result<runtime::Written>> write_dump(SandboxPtr sandbox, TransitionPtr transition);
  // `route`: the one by which somebody may still be inside, or null.
  net::Task<Result<runtime::Written>> dump_frozen(SandboxPtr sandbox, TransitionPtr transition,
                                                  std::shared_ptr<Route> route);
  net::Task<Result<runtime::Written>> dump_in_turn(SandboxPtr sandbox, TransitionPtr transition,
                                                   std::shared_ptr<Route> route);
  static Rested rested(Result<runtime::Written> written);
  void set_rest_locked(Sandbox& sandbox, const Rested& rest);
  void begin_dump_locked(const SandboxPtr& sandbox);
  net::Task<void> run_dump(SandboxPtr sandbox, TransitionPtr dump);
  net::Task<Result<runtime::Written>> dump_paused(SandboxPtr sandbox, TransitionPtr dump);
  net::Task<Result<void>> freeze_surely(SandboxId id);

  // ---- tiers.cc ----
  net::Task<void> learn_memory_support();
  net::Task<void> make_durable();
  void wake_tiers_locked();
  bool is_frozen_locked(const Sandbox& sandbox) const;
  void dump_due_locked(Timestamp current);
  net::Task<void> tiers_loop();
  void count_tiers_locked(Statistics& figures) const;

  // ---- resume.cc ----
  Result<TransitionPtr> begin_resume_locked(const SandboxPtr& sandbox, ResumePlan plan,
                                            const Caller& by);
  net::Task<void> run_resume(SandboxPtr sandbox, TransitionPtr resume, ResumePlan plan);
  net::Task<Result<void>> thaw(SandboxId id);
  net::Task<void> run_cold_resume(SandboxPtr sandbox, TransitionPtr resume, ResumePlan plan);
  // From files. `plan` learns where the memory is then.
  net::Task<Result<void>> revive(SandboxPtr sandbox, ResumePlan& plan);
  // After a restore that failed: whether it used up the files. Then only the disk is left.
  net::Task<bool> lost_memory(SandboxPtr sandbox);
  net::Task<Result<void>> boot_again(SandboxPtr sandbox, std::string boot_id);
  void finish_resume(const SandboxPtr& sandbox, const TransitionPtr& resume, const ResumePlan& plan,
                     Result<void> done, const std::string& boot_id);
  // The transition that a paused sandbox is in, if any; null: it rests.
  static TransitionPtr busy_locked(const Sandbox& sandbox);
  Result<void> may_wake_locked(const Sandbox& sandbox, const WakeRequest& request) const;

  // ---- still.cc ----
  // Running -> snapshotting. failed_precondition: it does not run. While it is snapshotting resume
  // is refused; pauses, connects, kills and traffic wait for the transition.
  Result<TransitionPtr> begin_snapshot_locked(const SandboxPtr& sandbox, const Caller& by);
  // Of a sandbox that `begin_snapshot_locked` took, in a task of the engine's. Frozen -> `work` ->
  // thawed, running again whatever came of the work; then the transition is done. With `memory` its
  // connections break and its agent lets go first; else they stand still. Answers how long it stood
  // still, or the first error.
  using StillWork = std::function<net::Task<Result<void>>()>;
  net::Task<Result<std::chrono::microseconds>> hold_still(SandboxPtr sandbox,
                                                          TransitionPtr transition, bool memory,
                                                          StillWork work);
  net::Task<Result<void>> thaw_surely(SandboxId id);
  void finish_still(const SandboxPtr& sandbox, const TransitionPtr& transition,
                    const Result<void>& done, bool thawed);
  // Nobody outside has a connection into it any more, and its agent knows. Its route is held or
  // dead, or it has none. Bounded; a failure is logged and means that a dump may be refused.
  net::Task<void> let_go(SandboxPtr sandbox, std::shared_ptr<Route> route);
  // The same of a frozen one, which is thawed for that and frozen again.
  net::Task<Result<void>> let_go_frozen(SandboxPtr sandbox, std::shared_ptr<Route> route);
  // The same if `refusal` says that somebody was late. True: what was refused is worth another try.
  net::Task<Result<bool>> let_go_again(SandboxPtr sandbox, std::shared_ptr<Route> route,
                                       Error refusal);
  // `work` on a frozen sandbox, a second time if somebody was late to let go of it.
  template <class T>
  net::Task<Result<T>> try_twice(SandboxPtr sandbox, std::shared_ptr<Route> route,
                                 std::function<net::Task<Result<T>>()> work);
  // Its connections are about to end: whose client leaves now shall run on. Failures do no harm.
  net::Task<void> announce_pause(SandboxId id);
  net::Task<void> wait_for_leaving(SandboxPtr sandbox, std::shared_ptr<Route> route);
  // A nursery for one that let go of its own.
  void warm_again_locked(Sandbox& sandbox);

  // ---- snapshots.cc ----
  struct Taking;
  using TakingPtr = std::shared_ptr<Taking>;
  enum class SnapshotFor : std::uint8_t { clients, forks };
  struct SnapshotName {
    std::string alias;  // empty: none
    std::string tag = "default";
  };
  std::string slug_of(const std::string& team_id) const;
  Result<SnapshotName> check_snapshot_name(const Caller& caller, const std::string& text);
  Result<SandboxPtr> find_source_locked(const Caller& caller, const SandboxId& id,
                                        SnapshotFor whom) const;
  // The snapshot stays as long as what it answers is held.
  net::Task<Result<TakingPtr>> take(Caller caller, SandboxId id, SnapshotName name, bool memory,
                                    SnapshotFor whom);
  store::SnapshotRecord describe_snapshot_locked(const Sandbox& sandbox, const SnapshotName& name,
                                                 bool memory, SnapshotFor whom) const;
  net::Task<void> run_snapshot(SandboxPtr sandbox, TransitionPtr transition, TakingPtr taking,
                               Gate::Pass pass);
  net::Task<Result<void>> write_snapshot(SandboxId id, TakingPtr taking);
  Result<void> publish_snapshot(const Sandbox& sandbox, Taking& taking);
  static Error snapshot_failure(Error error);
  net::Task<void> drop_snapshot(std::string id);
  void forget_snapshot(const std::string& id);
  void collect_later();
  net::Task<void> collect_snapshots();
  net::Task<Result<void>> adopt_snapshots();
  // ---- restore.cc: from a snapshot to an agent that knows who it is ----
  enum class Replace : bool { no, yes };
  net::Task<Result<void>> restore(SandboxPtr sandbox, store::SandboxRecord record, Replace replace);
  static Error restore_failure(Error error);
  // ---- fork.cc, rollback.cc ----
  struct Forking;
  Result<void> check_fork(const ForkCommand& command) const;
  Result<SandboxPtr> reserve_fork(const ForkCommand& command, const Forking& forking);
  net::Task<void> make_fork(std::shared_ptr<Forking> forking, ForkCommand command,
                            std::size_t index);
  void answer_fork(Forking& forking, std::size_t index, Result<SandboxInfo> answer);
  Result<TransitionPtr> begin_rollback_locked(const SandboxPtr& sandbox,
                                              const store::SnapshotRecord& snapshot,
                                              const Caller& by);
  net::Task<void> run_rollback(SandboxPtr sandbox, TransitionPtr rolling,
                               store::SnapshotRecord snapshot, Gate::Pass pass);
  net::Task<Result<void>> write_aside(SandboxPtr sandbox);
  net::Task<Result<void>> take_back(SandboxPtr sandbox);
  void finish_rollback(const SandboxPtr& sandbox, const TransitionPtr& rolling, Event event,
                       std::optional<Error> failure);

  // ---- adopt.cc ----
  net::Task<Result<void>> adopt_all();
  net::Task<void> adopt(store::SandboxRecord row, std::optional<runtime::Listed> found,
                        std::shared_ptr<Gate> gate, std::shared_ptr<void> token);
  net::Task<void> adopt_running(SandboxPtr sandbox, Ipv4 address);
  net::Task<void> tell_again(SandboxPtr sandbox, std::shared_ptr<Gate> gate);
  void adopt_paused(const SandboxPtr& sandbox, Ipv4 address, store::MemoryTier tier);
  // Freezes, thaws, tells or stops it as decided; what it turned out to be.
  net::Task<Adoption> settle(Adoption decision, store::SandboxRecord row);
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
  Gate dumps_;   // dumps at once
  Gate pulls_;   // agents asked for their logs at once
  Tasks tasks_;  // transitions
  Tasks loops_;  // timers
  Pool pool_;

  mutable std::mutex mutex_;  // guards all below
  std::unordered_map<SandboxId, SandboxPtr> sandboxes_;
  ExpiryQueue expiry_;
  SnapshotTable snapshots_;
  bool collecting_ = false;
  bool collect_again_ = false;
  runtime::MemorySupport memory_;
  bool stopping_ = false;
  bool adopting_ = false;
  std::vector<SandboxId> early_exits_;  // told while adopting
  Statistics counts_;                   // the counters; gauges are counted when asked
  std::size_t next_create_second_ = 0;  // where the next one goes in counts_.create_seconds
  std::size_t next_pause_second_ = 0;   // likewise in counts_.snapshot_pause_seconds
  std::unique_ptr<Timers> timers_;
};

}  // namespace atl::engine
