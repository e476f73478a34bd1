// Pool: sandboxes made ahead of creates, per template, and the zygotes that make kernels warm.
//
// Theory of operation. A template has two shelves: *ready* sandboxes (agent, nursery, a Python
// kernel that has been warmed) and *skeletons* (agent only). A create takes from the first, else
// from the second, else boots one. One loop puts back what was taken: one boot at a time, only when
// no create waits, a moment after the last create, with back-off after failures, within the
// machine's memory and the engine's limit of sandboxes. What was made for an older build of a
// template, is too old, too many or dead is destroyed.
//
// What lies in the pool has an id and no row in the store: nobody can name it, it counts as
// nobody's, and the next start of the server removes it if this one dies. The same loop starts the
// zygotes of templates that have one (Runtime::prepare), and starts them again when they are lost.
//
// Threads: every function may be called from any thread; the mutex is a leaf, held briefly.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/completion.h"
#include "engine/gate.h"
#include "engine/pool_size.h"
#include "engine/tasks.h"
#include "net/stream.h"
#include "runtime/runtime.h"
#include "templates/catalog.h"

namespace atl::engine {

enum class Tier : std::uint8_t { ready, skeleton, on_demand };
std::string_view to_string(Tier tier);

struct PoolOptions {
  // Per template in use, more after bursts. Zero: none of that kind.
  std::size_t ready = 0;
  std::size_t skeletons = 0;
  std::size_t times = 4;  // most, as a multiple of the above
  bool zygotes = false;   // ask the runtime for warm kernels
  // Filled before anybody asks; other templates from their first create on, until nobody has asked
  // for `keep_unused`.
  std::vector<std::string> from_start = {"base", "code-interpreter-v1"};
  std::chrono::milliseconds keep_unused = std::chrono::minutes(30);
  std::chrono::milliseconds max_age = std::chrono::minutes(30);
  std::chrono::milliseconds look_every{2'000};  // for new templates, and for what got too old
  std::chrono::milliseconds quiet{50};          // no boot so soon after a create
  std::function<Memory()> memory = machine_memory;
};

// Of one template, for /metrics.
struct PoolFigures {
  std::string name;
  std::size_t ready = 0, skeletons = 0, ready_target = 0, skeleton_target = 0;
  std::uint64_t ready_hits = 0, ready_misses = 0, skeleton_hits = 0, skeleton_misses = 0;
  std::uint64_t refills = 0, refill_failures = 0, died = 0;
};
struct PoolStatistics {
  std::vector<PoolFigures> templates;
  std::vector<double> ready_seconds, skeleton_seconds;  // of the last refills; bounded
  std::vector<double> warm_seconds;                     // of the last `Runtime::warm`; bounded
  std::uint64_t warm_failures = 0;
  std::size_t zygotes = 0;  // templates whose zygotes can fork
};

class Pool {
 public:
  struct Entry {
    SandboxId id;
    std::string boot_id;
    Ipv4 address;
    std::uint32_t memory_mb = 0;  // that it was made with
    Tier tier = Tier::skeleton;
    PoolClock::time_point born{};
  };
  // What it needs of the engine; all outlive it.
  struct Needs {
    runtime::Runtime& runtime;
    templates::Catalog& templates;
    Gate& gate;
    Tasks& tasks;
    std::size_t max_sandboxes = 0;
    std::uint32_t max_pids = 0;
    std::function<std::size_t()> others;  // sandboxes that have an owner; called without the mutex
    std::function<net::Task<Result<std::unique_ptr<net::Stream>>>(SandboxId)> dial;
    std::function<net::Task<void>(SandboxId)> destroy;  // until it is gone
  };

  Pool(Needs needs, PoolOptions options);
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  bool enabled() const { return options_.ready + options_.skeletons > 0 || options_.zygotes; }
  // Makes, looks after and destroys until `stop`.
  net::Task<void> run();
  // Nothing is handed out any more; everything is being destroyed, as tasks of the engine.
  void stop();

  // The best there is for a sandbox of this template. Notes the demand either way.
  std::optional<Entry> take(const templates::Template& base);
  // The network that entries are made with.
  const runtime::NetworkPolicy& network() const { return network_; }
  // Its first process ended. False: it is not of the pool.
  bool died(const SandboxId& id);
  // A hand-out failed: what it was is of no use.
  void note_bad(const templates::Template& base);
  // Puts a nursery into a new sandbox of this root, as a task of the engine. Null: there is no
  // zygote for it. Set, however it went: failures are counted and harm nobody.
  std::shared_ptr<Completion> warm(const SandboxId& id, const std::string& template_dir);

  PoolStatistics statistics() const;

 private:
  enum class Kernel : std::uint8_t { unknown, yes, no };  // is there an interpreter inside?
  struct Bin {
    templates::Template base;
    std::vector<Entry> ready;  // oldest first, as below
    std::vector<Entry> skeletons;
    Demand demand;
    Kernel kernel = Kernel::unknown;
    int failures = 0;  // in a row
    PoolClock::time_point next_try{};
    PoolFigures figures;
  };
  struct Zygote {
    enum class State : std::uint8_t { none, preparing, prepared };
    State state = State::none;
    int failures = 0;
    PoolClock::time_point next_try{};
  };
  struct Job {
    templates::Template base;
    Tier tier = Tier::skeleton;
  };
  struct Plan {
    std::optional<Job> job;
    std::chrono::milliseconds look_again{0};
  };
  // Durations of the last so many.
  struct Window {
    void add(double seconds);
    std::vector<double> values;
    std::size_t next = 0;
  };

  net::Task<void> look_after();
  void follow_templates(const std::vector<templates::Template>& all);
  void start_zygotes_locked(PoolClock::time_point now);
  net::Task<void> prepare(std::string dir);
  void retire_locked(const Memory& memory, std::size_t others, PoolClock::time_point now);
  Plan plan_locked(const Memory& memory, std::size_t others, PoolClock::time_point now) const;
  net::Task<void> refill(Job job, Gate::Pass pass, std::shared_ptr<Completion> done);
  net::Task<Result<Entry>> make(const Job& job, SandboxId id);
  net::Task<Tier> warm_up(const templates::Template& base, SandboxId id);
  net::Task<void> run_warm(SandboxId id, std::string dir, std::shared_ptr<Completion> done);
  net::Task<Result<void>> timed_warm(SandboxId id, std::string dir);

  bool in_use_locked(const Bin& bin, PoolClock::time_point now) const;
  bool prepared_locked(const std::string& dir) const;
  std::size_t target_locked(const Bin& bin, Tier tier, PoolClock::time_point now) const;
  std::size_t size_locked() const;
  void destroy_locked(std::vector<Entry>& shelf, std::size_t count);
  void wake_locked();

  const Needs needs_;
  const PoolOptions options_;
  const runtime::NetworkPolicy network_;

  mutable std::mutex mutex_;  // guards all below
  bool stopped_ = false;
  std::map<std::string, Bin> bins_;        // by template id
  std::map<std::string, Zygote> zygotes_;  // by directory of the root
  std::optional<SandboxId> making_;
  bool making_died_ = false;
  PoolClock::time_point last_take_{};
  std::shared_ptr<net::asio::steady_timer> timer_;
  Window ready_seconds_, skeleton_seconds_, warm_seconds_;
  std::uint64_t warm_failures_ = 0;
};

}  // namespace atl::engine
