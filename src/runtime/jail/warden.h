// Warden: what atoll-warden does. One thread, one control socket to the server; it listens nowhere.
//
// Theory of operation. The event loop waits on the control socket, on the report channel of every
// launch under way and on the pidfd of every sandbox's first process. Nothing waits in line behind
// a slow sandbox: a launch goes on in its own process after the hand-over, a destroy is answered
// when the process has gone, and what tells nobody when it is done (a group that freezes, a disk
// that is unmounted by dying processes) is looked at again after growing pauses. When the control
// socket closes, the warden exits and leaves the sandboxes as they are; the next one finds them
// again by their cgroups, directories and id ranges.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/jail/launch.h"
#include "runtime/jail/memory_worker.h"
#include "runtime/jail/protocol.h"
#include "runtime/jail/worker.h"
#include "runtime/jail/zygote.h"
#include "sys/files.h"
#include "sys/poller.h"

namespace atl::jail {

struct WardenConfig {
  std::string home;
  std::string instance;
  std::string templates;
  std::string tools;  // criu/ below it, see tools/install-criu
  std::string agent_path;
  std::string kernels_path;           // empty: sandboxes have no runners
  std::uint32_t zygote_forks = 2000;  // after so many a zygote is replaced
  std::string fail_at;                // tests: name of the step that fails
  std::string die_at;             // tests: name of the step at which the warden dies, see faults.h
  std::string late_at;            // tests: name of the step that begins late
  bool no_network = false;        // sandboxes have their loopback interface only
  bool layers_by_stage = false;   // tests: mount overlays as on kernels that take no descriptors
  bool unsafe_no_limits = false;  // tests: go on where cgroup controllers are missing
  std::string cgroup_v2_root;     // tests: use this cgroup2 mount although v1 has the controllers
};

class Warden {
 public:
  // Everything that must be in place before the first sandbox: private mount namespace, stage,
  // directories, cgroups, filter.
  static Result<std::unique_ptr<Warden>> create(const WardenConfig& config);
  ~Warden();

  // Serves until the control socket closes. An error is a broken peer or a broken kernel interface.
  Result<void> serve(sys::UniqueFd control);

 private:
  using Clock = std::chrono::steady_clock;

  // A create over a kept disk.
  struct Boot {
    LaunchSpec spec;
    std::uint64_t sequence;
  };
  // What is waited for by looking again.
  struct Look {
    enum class For : std::uint8_t { nothing, frozen, settled } what = For::nothing;
    Clock::time_point next = Clock::time_point::max();
    Clock::time_point give_up = Clock::time_point::max();
    std::chrono::milliseconds pause{0};
  };
  struct Sandbox {
    // Has its mark (mark.h). Without it, running or not, it is a leftover.
    bool whole = false;
    std::optional<std::uint32_t> slot;
    pid_t pid = 0;            // of its first process
    sys::Child init;          // ours, if this warden made it
    sys::UniqueFd pidfd;      // of an adopted one
    std::uint64_t token = 0;  // of its pidfd in the poller; 0 = no process
    sys::UniqueFd control_dir;
    std::vector<sys::DetachedMount> layers;  // see StartedSandbox
    std::vector<std::shared_ptr<const SharedLayer>> shared;
    bool frozen = false;
    bool settled = false;  // dead; no process, no cgroup and no mount of its disk is left
    bool removing = false;
    std::vector<std::uint64_t> waiting_kill;
    std::vector<std::uint64_t> waiting_destroy;
    std::vector<std::uint64_t> waiting_freeze;
    std::optional<Boot> waiting_boot;       // begins when it has settled
    bool dumped = false;                    // has whole memory in files; its processes end, or have
    std::uint64_t job = 0;                  // under way; 0 = none
    std::vector<wire::IdRequest> deferred;  // until the job has ended
    Clock::time_point deadline = Clock::time_point::max();
    Look look;
    std::string template_id;   // empty: made by a version that did not write it down
    bool warm = false;         // has a nursery, or is getting one
    bool revived = false;      // users' code may run in it while a nursery enters
    std::uint64_t zygote = 0;  // that it came from; 0 = none
    bool alive() const { return token != 0; }
    const sys::UniqueFd& process() const { return init ? init.pidfd() : pidfd; }
  };
  struct Pending {
    std::unique_ptr<Launch> launch;
    std::uint64_t sequence = 0;
    std::uint64_t token = 0;
    Clock::time_point deadline;
    bool lenient = false;  // was late when it could not be taken back any more
  };
  struct Watched {
    enum class Kind : std::uint8_t { launch, sandbox, zygote, zygote_end, warming, job } kind;
    std::string id;
    std::uint64_t number = 0;  // of the last four kinds
  };
  struct Zygote {
    std::string template_id;
    sys::Child process;
    sys::UniqueFd channel;
    std::uint64_t token = 0;
    Clock::time_point born;
    Clock::time_point deadline;  // for being ready
    bool ready = false;
    bool worn = false;  // serves until another can take its place
    std::uint32_t forks = 0;
    std::uint32_t live = 0;  // sandboxes that have a nursery of it
    std::uint32_t in_flight = 0;
    std::uint32_t late = 0;  // requests in a row that took too long
  };
  struct Prepared {
    std::vector<std::uint64_t> waiting;
    Clock::time_point again = Clock::time_point::max();  // when to try to start what is missing
    std::chrono::milliseconds pause{0};
  };
  struct Warming {
    std::string id;
    std::uint64_t boot = 0;  // the sandbox's token: another boot is another sandbox
    std::uint64_t sequence = 0;
    std::uint64_t zygote = 0;
    std::uint64_t token = 0;
    sys::UniqueFd report;
    Clock::time_point deadline;
  };

  // Long work, done by a worker.
  struct Job {
    enum class Kind : std::uint8_t {
      probe,     // does CRIU work here
      dump,      // writes memory; then the tree is ended, its disk settles, and
      seal,      // makes sure that all of it is on the host's disk
      snapshot,  // writes memory and copies the disk
      compact,   // makes one layer of many
    } kind = Kind::probe;
    std::string id;  // of the sandbox
    std::string snapshot;
    // Who is answered: one request for a dump or a snapshot, several for a probe or a kill.
    wire::Op op{};
    std::vector<std::uint64_t> waiting;
    std::optional<Worker> worker;
    std::uint64_t token = 0;
    Clock::time_point deadline = Clock::time_point::max();
    std::optional<Error> cancelled;
    wire::WrittenReply written;
  };

  Warden(LaunchHost host, sys::FileLock lock, sys::UniqueFd parent, std::string instance,
         sys::Poller poller);

  Result<void> find_left_behind();
  Result<Sandbox> adopt(const std::string& id);

  Result<void> on_event(const Watched& watched);
  Result<void> on_control();
  Result<void> handle(const wire::HelloRequest& request);
  Result<void> handle(const wire::CreateRequest& request);
  Result<void> handle(const wire::IdRequest& request);
  Result<void> handle(const wire::ListRequest& request);
  Result<void> handle(const wire::SetNetworkRequest& request);
  Result<void> handle(const wire::SetMemoryRequest& request);
  Result<void> handle(const wire::EgressSocketsRequest& request);
  Result<void> handle(const wire::TemplateRequest& request);
  Result<void> handle(const wire::SnapshotRequest& request);
  Result<void> handle(const wire::SnapshotIdRequest& request);
  Result<void> handle(const wire::PlainRequest& request);
  Result<void> destroy(const std::string& id, Sandbox& sandbox, std::uint64_t sequence);
  Result<void> thaw(const std::string& id, Sandbox& sandbox);
  Result<void> send_stats(const std::string& id, std::uint64_t sequence);
  Result<void> begin_launch(LaunchSpec spec, std::uint64_t sequence);

  // warden_life.cc: what takes more than one look.
  Result<void> boot_waiting(const std::string& id, Sandbox& sandbox, const Result<void>& outcome);
  Result<void> boot_again(const std::string& id, LaunchSpec spec, std::uint64_t sequence);
  Result<void> kill(Sandbox& sandbox, const std::string& id);
  Result<void> begin_kill(const std::string& id, Sandbox& sandbox, std::uint64_t sequence);
  Result<void> begin_freeze(const std::string& id, Sandbox& sandbox, std::uint64_t sequence);
  Result<void> end_freeze(Sandbox& sandbox, const Result<void>& outcome);
  Result<void> begin_settling(const std::string& id, Sandbox& sandbox);
  Result<void> end_settling(const std::string& id, Sandbox& sandbox, const Result<void>& outcome);
  // One look, without waiting: is it there?
  Result<bool> settle(const std::string& id, Sandbox& sandbox);
  Result<void> look_again(const std::string& id);
  Result<void> unmark(const std::string& id, Sandbox& sandbox);
  sys::Space disk_space(const std::string& id, const Sandbox& sandbox) const;

  // warden_warm.cc: zygotes and what they put into sandboxes.
  Result<void> begin_warm(const std::string& id, Sandbox& sandbox, std::uint64_t sequence);
  Result<void> on_zygote(std::uint64_t number);
  Result<void> on_zygote_end(std::uint64_t number);
  Result<void> on_report(std::uint64_t number);
  Result<void> end_warm(std::uint64_t number, const Result<void>& outcome,
                        const wire::WarmReply& times);
  Result<void> fill_up(const std::string& template_id);
  Result<void> end_zygote(std::uint64_t number, const char* why);
  Result<void> answer_prepare(const std::string& template_id, const Result<void>& outcome);
  std::size_t count_zygotes(const std::string& template_id, bool ready) const;
  void forget_nursery(Sandbox& sandbox);
  Result<void> on_warm_deadlines(Clock::time_point now);
  Clock::time_point next_warm_deadline() const;

  // warden_replace.cc: creates that replace.
  Result<void> put_aside(const std::string& id);
  void put_back(const std::string& id);
  Result<void> drop_aside(const std::string& id);
  Result<void> end_interrupted_replaces();

  // warden_memory.cc: memory in files.
  Result<void> list_snapshots(const wire::ListRequest& request);
  // warden_compact.cc: layers that became many.
  Result<void> look_for_long_chains();
  Result<void> compact_later(const runtime::SnapshotId& snapshot);
  Result<void> compact_next();
  Result<void> on_compacted(std::uint64_t number, const Result<void>& outcome);
  // Before a snapshot is removed: nobody works on it any more.
  Result<void> stop_compacting(const runtime::SnapshotId& snapshot);
  // What all sandboxes and launches lie over.
  Result<UsedLayers> used_layers() const;
  void let_go_of_layers();
  Result<void> begin_dump(const std::string& id, Sandbox& sandbox, std::uint64_t sequence);
  Result<void> begin_write(const std::string& id, Sandbox& sandbox, wire::Op op,
                           std::uint64_t sequence, Result<Worker> worker);
  Result<void> fill_dump(const std::string& id, const Sandbox& sandbox, DumpInput& input);
  Result<void> begin_seal(const std::string& id, Sandbox& sandbox, wire::Op op,
                          std::vector<std::uint64_t> waiting);
  Result<void> start_worker(std::uint64_t number, Result<Worker> worker);
  Result<void> cancel_job(Job& job, Error why);
  Result<void> on_job(std::uint64_t number);
  Result<void> on_worker_end(std::uint64_t number, Result<WorkerMessage> result);
  Result<void> on_dumped(std::uint64_t number, Sandbox& sandbox);
  Result<void> on_released(const Job& job);
  Result<void> end_job(std::uint64_t number, const Result<void>& outcome, std::string_view step);
  Result<void> on_job_deadlines(Clock::time_point now);
  Clock::time_point next_job_deadline() const;
  // What an earlier warden left of dumps and restores; waits for one that is under way.
  Result<void> tidy_memory(const std::string& id, const sys::UniqueFd& directory, Sandbox& sandbox);
  // Of a dumped sandbox: from now on it is dead.
  Result<void> drop_memory(const std::string& id, Sandbox& sandbox);
  Result<void> look_for_memory(const std::string& id, Sandbox& sandbox);
  bool remove_some_used_memory(const std::string& id);
  void reap_strays();

  Result<void> on_launch(const std::string& id);
  Result<void> on_process_end(const std::string& id);
  Result<void> finish_removal(const std::string& id);
  void close_network();
  Ipv4 address_of(const Sandbox& sandbox) const;
  Result<void> remove_all_of(const std::string& id, Sandbox& sandbox);
  Result<void> on_deadlines();
  // Work that can wait, a piece at a time. False: there is none.
  bool tidy();
  std::optional<std::chrono::milliseconds> next_timeout() const;

  Result<sys::Cgroup> cgroup_of(const std::string& id) const;
  Result<void> end_launch(std::map<std::string, Pending>::iterator it, const Error& error);
  Result<void> reply(wire::Op op, std::uint64_t sequence, const Result<void>& outcome);
  template <class Message>
  Result<void> send(const Message& message, std::span<const sys::UniqueFd> fds = {});
  std::uint64_t watch(Watched::Kind kind, const std::string& id, std::uint64_t number = 0) {
    watched_.emplace(++last_token_, Watched{kind, id, number});
    return last_token_;
  }

  LaunchHost host_;
  sys::FileLock lock_;
  sys::UniqueFd parent_;  // HOME/sandboxes
  std::string instance_;
  sys::Poller poller_;
  sys::UniqueFd control_;
  bool greeted_ = false;
  gid_t server_gid_ = 0;
  std::uint32_t zygote_forks_ = 0;
  std::uint64_t last_token_ = 0;
  std::map<std::uint64_t, Watched> watched_;
  std::map<std::string, Pending> launches_;
  std::map<std::string, Sandbox> sandboxes_;
  std::map<std::string, Sandbox> asides_;  // see put_aside
  std::uint64_t last_number_ = 0;
  std::map<std::uint64_t, Zygote> zygotes_;
  std::map<std::uint64_t, sys::Child> ending_;  // zygotes that were killed
  std::map<std::string, Prepared> prepared_;
  std::map<std::uint64_t, Warming> warmings_;
  std::map<std::uint64_t, Job> jobs_;
  std::deque<runtime::SnapshotId> to_compact_;       // one after the other
  std::set<runtime::SnapshotId> to_let_go_;          // compacted, but somebody lies over the layers
  std::optional<wire::MemorySupportReply> support_;  // once it was found out
  std::deque<std::string> stale_memory_;  // sandboxes that may have an image that was used
  std::deque<std::string> with_layers_;   // sandboxes that still hold layers, or did
};

// An error as part of an answer.
void fill(wire::Reply& reply, const Error& error, std::string_view step);
// Waits for the server's hello and answers it with an error: for a warden that could not start.
void refuse_service(const sys::UniqueFd& control, const Error& error);

}  // namespace atl::jail
