// How an entry of the pool is made: boot -> nursery -> kernel warmed -> on its shelf. And zygotes.
#include <algorithm>

#include "base/ids.h"
#include "base/log.h"
#include "engine/agent_client.h"
#include "engine/pool.h"
#include "engine/sandbox.h"

namespace atl::engine {
namespace {

constexpr std::chrono::milliseconds kAgentLimit{10'000};
constexpr std::chrono::milliseconds kUnsupported = std::chrono::hours(1);

double seconds_since(PoolClock::time_point from) {
  return std::chrono::duration<double>(PoolClock::now() - from).count();
}

}  // namespace

net::Task<void> Pool::refill(Job job, Gate::Pass pass, std::shared_ptr<Completion> done) {
  const SandboxId id = SandboxId::generate();
  {
    std::lock_guard lock(mutex_);
    making_ = id;
    making_died_ = false;
  }
  const auto began = PoolClock::now();
  auto making = guarded(make(job, id));
  auto made = co_await std::move(making);
  const double took = seconds_since(began);
  pass = Gate::Pass();
  bool wanted = false;
  {
    std::lock_guard lock(mutex_);
    making_.reset();
    const auto bin = bins_.find(job.base.id);
    const bool there = bin != bins_.end() && bin->second.base.build_id == job.base.build_id;
    if (there) {
      Bin& b = bin->second;
      const bool as_planned = made.ok() && (made->tier == job.tier || b.kernel == Kernel::no);
      b.failures = as_planned ? 0 : b.failures + 1;
      if (!as_planned) b.next_try = PoolClock::now() + back_off(b.failures);
      ++(as_planned ? b.figures.refills : b.figures.refill_failures);
      wanted = made.ok() && !stopped_ && !making_died_;
      if (wanted) {
        const bool ready = made->tier == Tier::ready;
        (ready ? ready_seconds_ : skeleton_seconds_).add(took);
        (ready ? b.ready : b.skeletons).push_back(*made);
      }
    }
  }
  if (!made.ok()) {
    log::warn("the pool was not refilled",
              {{"template", job.base.dir}, {"error", made.error().message}});
  }
  if (!wanted) {
    auto destroying = needs_.destroy(id);
    co_await std::move(destroying);
  } else {
    log::debug("pool", {{"sandbox", id.str()},
                        {"template", job.base.dir},
                        {"tier", to_string(made->tier)},
                        {"ms", std::to_string(int(took * 1000))}});
  }
  done->set();
}

net::Task<Result<Pool::Entry>> Pool::make(const Job& job, SandboxId id) {
  runtime::SandboxSpec spec{.id = id};
  spec.template_id = job.base.dir;
  spec.boot_id = random_uuid4();
  spec.limits.memory_bytes = std::uint64_t(job.base.memory_mb) << 20;
  spec.limits.cpu_millis = job.base.cpu_count * 1000;
  spec.limits.disk_bytes = std::uint64_t(job.base.disk_mb) << 20;
  spec.limits.pids = needs_.max_pids;
  spec.network = network_;
  Entry entry{.id = id,
              .boot_id = spec.boot_id,
              .address = {},
              .memory_mb = job.base.memory_mb,
              .tier = Tier::skeleton,
              .born = {}};
  auto creating = needs_.runtime.create(std::move(spec));
  ATOLL_CO_TRY_ASSIGN(const runtime::Created created, co_await std::move(creating));
  entry.address = created.address;
  if (job.tier == Tier::ready) {
    auto warming = warm_up(job.base, id);
    entry.tier = co_await std::move(warming);
  }
  if (entry.tier == Tier::skeleton) {
    // It answers; and its way to the agent is known before the hand-out.
    auto dialling = needs_.dial(id);
    ATOLL_CO_TRY_ASSIGN(auto stream, co_await std::move(dialling));
    auto asking = ask_health(std::move(stream), kAgentLimit);
    ATOLL_CO_TRY(co_await std::move(asking));
  }
  entry.born = PoolClock::now();
  co_return entry;
}

// A sandbox that cannot be warmed is a good skeleton.
net::Task<Tier> Pool::warm_up(const templates::Template& base, SandboxId id) {
  bool zygote = false;
  {
    std::lock_guard lock(mutex_);
    zygote = prepared_locked(base.dir);
  }
  if (zygote) {
    auto warming = timed_warm(id, base.dir);
    if (!(co_await std::move(warming)).ok()) co_return Tier::skeleton;
  }
  auto dialling = needs_.dial(id);
  auto stream = co_await std::move(dialling);
  if (!stream.ok()) co_return Tier::skeleton;
  auto asking = ask_warm(std::move(*stream), kAgentLimit);
  auto warmed = co_await std::move(asking);
  std::lock_guard lock(mutex_);
  const auto bin = bins_.find(base.id);
  if (bin != bins_.end()) {
    if (warmed.ok()) bin->second.kernel = Kernel::yes;
    if (!warmed.ok() && warmed.error().code == Errc::not_found) bin->second.kernel = Kernel::no;
  }
  if (!warmed.ok() && warmed.error().code != Errc::not_found) {
    log::debug("a kernel was not warmed",
               {{"sandbox", id.str()}, {"error", warmed.error().message}});
  }
  co_return warmed.ok() ? Tier::ready : Tier::skeleton;
}

std::shared_ptr<Completion> Pool::warm(const SandboxId& id, const std::string& template_dir) {
  {
    std::lock_guard lock(mutex_);
    if (stopped_ || !prepared_locked(template_dir)) return nullptr;
  }
  auto done = std::make_shared<Completion>();
  if (!needs_.tasks.spawn("warm", run_warm(id, template_dir, done))) return nullptr;
  return done;
}

net::Task<void> Pool::run_warm(SandboxId id, std::string dir, std::shared_ptr<Completion> done) {
  auto warming = timed_warm(std::move(id), std::move(dir));
  (void)co_await std::move(warming);
  done->set();
}

net::Task<Result<void>> Pool::timed_warm(SandboxId id, std::string dir) {
  const auto began = PoolClock::now();
  auto warming = guarded(needs_.runtime.warm(id));
  auto warmed = co_await std::move(warming);
  std::lock_guard lock(mutex_);
  if (warmed.ok()) {
    warm_seconds_.add(seconds_since(began));
    co_return warmed;
  }
  ++warm_failures_;
  log::debug("a sandbox was not warmed",
             {{"sandbox", id.str()}, {"error", warmed.error().message}});
  // The zygotes are gone: the loop starts them again.
  const auto zygote = zygotes_.find(dir);
  if (warmed.error().code == Errc::failed_precondition && zygote != zygotes_.end() &&
      zygote->second.state == Zygote::State::prepared) {
    zygote->second.state = Zygote::State::none;
    wake_locked();
  }
  co_return warmed;
}

// One at a time, those of templates in use first: each takes a processor for seconds.
void Pool::start_zygotes_locked(PoolClock::time_point now) {
  const auto in_use = [&](const std::string& dir) {
    return std::any_of(bins_.begin(), bins_.end(), [&](const auto& bin) {
      return bin.second.base.dir == dir && in_use_locked(bin.second, now);
    });
  };
  std::pair<const std::string, Zygote>* next = nullptr;
  for (auto& entry : zygotes_) {
    if (entry.second.state == Zygote::State::preparing) return;
    if (entry.second.state == Zygote::State::prepared || now < entry.second.next_try) continue;
    if (next == nullptr || (in_use(entry.first) && !in_use(next->first))) next = &entry;
  }
  if (next == nullptr) return;
  next->second.state = Zygote::State::preparing;
  if (!needs_.tasks.spawn("prepare", prepare(next->first)))
    next->second.state = Zygote::State::none;
}

net::Task<void> Pool::prepare(std::string dir) {
  const auto began = PoolClock::now();
  auto preparing = guarded(needs_.runtime.prepare(dir));
  auto prepared = co_await std::move(preparing);
  std::lock_guard lock(mutex_);
  const auto found = zygotes_.find(dir);
  if (found == zygotes_.end()) co_return;
  Zygote& zygote = found->second;
  if (prepared.ok()) {
    zygote = Zygote{.state = Zygote::State::prepared, .failures = 0, .next_try = {}};
    log::info("warm kernels can be made",
              {{"template", dir}, {"ms", std::to_string(int(seconds_since(began) * 1000))}});
  } else {
    zygote.state = Zygote::State::none;
    ++zygote.failures;
    const bool never = prepared.error().code == Errc::unimplemented;
    zygote.next_try = PoolClock::now() + (never ? kUnsupported : back_off(zygote.failures));
    if (never) zygote.failures = 1'000;  // kernels start cold from now on
    log::warn("warm kernels cannot be made yet",
              {{"template", dir}, {"error", prepared.error().message}});
  }
  wake_locked();
}

}  // namespace atl::engine
