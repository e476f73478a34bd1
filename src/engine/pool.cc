#include "engine/pool.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/this_coro.hpp>

#include "base/log.h"
#include "egress/policy.h"
#include "net/wake.h"

namespace atl::engine {
namespace {

namespace asio = net::asio;

constexpr std::chrono::milliseconds kBusy{10};       // creates are under way
constexpr std::chrono::milliseconds kPatience{200};  // creates never stop: one boot in so long
constexpr int kColdAfter = 3;  // failures of a zygote until kernels are started cold
// What one more may cost; the real figures are about half (bench/).
constexpr std::uint64_t kWarmCost = 8ull << 20;
constexpr std::uint64_t kColdCost = 256ull << 20;

// Can a sandbox that was made for the one be used for the other?
bool same_boot(const templates::Template& a, const templates::Template& b) {
  return a.build_id == b.build_id && a.dir == b.dir && a.cpu_count == b.cpu_count &&
         a.memory_mb == b.memory_mb && a.disk_mb == b.disk_mb;
}

std::optional<Pool::Entry> take_first(std::vector<Pool::Entry>& shelf) {
  if (shelf.empty()) return std::nullopt;
  Pool::Entry entry = std::move(shelf.front());
  shelf.erase(shelf.begin());
  return entry;
}

bool remove(std::vector<Pool::Entry>& shelf, const SandboxId& id) {
  return std::erase_if(shelf, [&](const Pool::Entry& entry) { return entry.id == id; }) > 0;
}

}  // namespace

std::string_view to_string(Tier tier) {
  switch (tier) {
    case Tier::ready:
      return "ready";
    case Tier::skeleton:
      return "skeleton";
    case Tier::on_demand:
      return "on_demand";
  }
  return "unknown";
}

Pool::Pool(Needs needs, PoolOptions options)
    : needs_(std::move(needs)),
      options_(std::move(options)),
      network_(egress::for_kernel(egress::Policy())) {}

net::Task<void> Pool::run() {
  if (!enabled()) co_return;
  auto timer = std::make_shared<asio::steady_timer>(co_await asio::this_coro::executor);
  auto wait = std::chrono::milliseconds(0);
  auto looked = PoolClock::time_point();
  std::optional<PoolClock::time_point> held;  // since when creates keep it from working
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      if (stopped_) co_return;
      timer_ = timer;
      timer->expires_after(wait);
    }
    co_await timer->async_wait(asio::as_tuple(asio::use_awaitable));
    const auto now = PoolClock::now();
    {
      // A create and its client's first call have the machine for themselves.
      std::lock_guard lock(mutex_);
      if (stopped_) co_return;
      const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(now - last_take_);
      if (since < options_.quiet && now - held.value_or(now) < kPatience) {
        if (!held) held = now;
        wait = options_.quiet - since;
        continue;
      }
    }
    held.reset();
    const Memory memory = options_.memory();
    const std::size_t others = needs_.others();
    if (now - looked >= options_.look_every) {
      looked = now;
      const auto all = needs_.templates.list();
      follow_templates(all);
    }
    Plan plan;
    {
      std::lock_guard lock(mutex_);
      if (stopped_) co_return;
      start_zygotes_locked(now);
      retire_locked(memory, others, now);
      plan = plan_locked(memory, others, now);
    }
    wait = plan.look_again;
    if (!plan.job) continue;
    auto pass = needs_.gate.enter_if_idle();
    if (!pass) {
      wait = kBusy;
      continue;
    }
    const auto done = std::make_shared<Completion>();
    if (!needs_.tasks.spawn("pool", refill(std::move(*plan.job), std::move(*pass), done)))
      co_return;
    while (!done->is_set()) {
      auto made = done->wait(std::chrono::minutes(1));
      co_await std::move(made);
    }
    wait = std::chrono::milliseconds(0);
  }
}

void Pool::stop() {
  std::lock_guard lock(mutex_);
  stopped_ = true;
  for (auto& [id, bin] : bins_) {
    destroy_locked(bin.ready, bin.ready.size());
    destroy_locked(bin.skeletons, bin.skeletons.size());
  }
  wake_locked();
}

std::optional<Pool::Entry> Pool::take(const templates::Template& base) {
  if (!enabled()) return std::nullopt;
  std::lock_guard lock(mutex_);
  if (stopped_) return std::nullopt;
  const auto [found, fresh] = bins_.try_emplace(base.id);
  Bin& bin = found->second;
  if (fresh) bin.base = base;
  last_take_ = PoolClock::now();
  bin.demand.note(last_take_);
  std::optional<Entry> entry;
  if (same_boot(bin.base, base)) {
    if (options_.ready > 0 && bin.kernel != Kernel::no) {
      entry = take_first(bin.ready);
      ++(entry ? bin.figures.ready_hits : bin.figures.ready_misses);
    }
    if (!entry && options_.skeletons + options_.ready > 0) {
      entry = take_first(bin.skeletons);
      ++(entry ? bin.figures.skeleton_hits : bin.figures.skeleton_misses);
    }
  }
  wake_locked();
  return entry;
}

bool Pool::died(const SandboxId& id) {
  std::lock_guard lock(mutex_);
  if (making_ == id) {
    making_died_ = true;
    return true;
  }
  for (auto& [key, bin] : bins_) {
    if (!remove(bin.ready, id) && !remove(bin.skeletons, id)) continue;
    log::warn("a sandbox of the pool ended", {{"sandbox", id.str()}, {"template", bin.base.dir}});
    ++bin.figures.died;
    needs_.tasks.spawn("pool", needs_.destroy(id));
    wake_locked();
    return true;
  }
  return false;
}

void Pool::note_bad(const templates::Template& base) {
  std::lock_guard lock(mutex_);
  if (const auto found = bins_.find(base.id); found != bins_.end()) ++found->second.figures.died;
}

PoolStatistics Pool::statistics() const {
  PoolStatistics out;
  const auto now = PoolClock::now();
  std::lock_guard lock(mutex_);
  for (const auto& [id, bin] : bins_) {
    if (!in_use_locked(bin, now) && !bin.demand.last()) continue;
    PoolFigures figures = bin.figures;
    figures.name = bin.base.alias().empty() ? bin.base.id : std::string(bin.base.alias());
    figures.ready = bin.ready.size();
    figures.skeletons = bin.skeletons.size();
    figures.ready_target = target_locked(bin, Tier::ready, now);
    figures.skeleton_target = target_locked(bin, Tier::skeleton, now);
    out.templates.push_back(std::move(figures));
  }
  for (const auto& [dir, zygote] : zygotes_)
    out.zygotes += std::size_t(zygote.state == Zygote::State::prepared);
  out.ready_seconds = ready_seconds_.values;
  out.skeleton_seconds = skeleton_seconds_.values;
  out.warm_seconds = warm_seconds_.values;
  out.warm_failures = warm_failures_;
  return out;
}

// ---- inside ----

void Pool::follow_templates(const std::vector<templates::Template>& all) {
  std::lock_guard lock(mutex_);
  for (const templates::Template& base : all) {
    const auto [found, fresh] = bins_.try_emplace(base.id);
    Bin& bin = found->second;
    if (!fresh && !same_boot(bin.base, base)) {
      log::info("the pool of a template is made anew", {{"template", base.dir}});
      destroy_locked(bin.ready, bin.ready.size());
      destroy_locked(bin.skeletons, bin.skeletons.size());
      bin.kernel = Kernel::unknown;
      bin.failures = 0;
      bin.next_try = {};
      zygotes_.erase(bin.base.dir);
    }
    bin.base = base;
    if (options_.zygotes && base.zygote) zygotes_.try_emplace(base.dir);
  }
  for (auto it = bins_.begin(); it != bins_.end();) {
    Bin& bin = it->second;
    if (std::any_of(all.begin(), all.end(),
                    [&](const auto& base) { return base.id == it->first; })) {
      ++it;
      continue;
    }
    destroy_locked(bin.ready, bin.ready.size());
    destroy_locked(bin.skeletons, bin.skeletons.size());
    it = bins_.erase(it);
  }
  std::erase_if(zygotes_, [&](const auto& entry) {
    return std::none_of(all.begin(), all.end(),
                        [&](const auto& base) { return base.zygote && base.dir == entry.first; });
  });
}

void Pool::retire_locked(const Memory& memory, std::size_t others, PoolClock::time_point now) {
  for (auto& [id, bin] : bins_) {
    for (const auto& [shelf, tier] :
         {std::pair(&bin.ready, Tier::ready), std::pair(&bin.skeletons, Tier::skeleton)}) {
      const auto old = std::find_if(shelf->begin(), shelf->end(), [&](const Entry& entry) {
        return now - entry.born < options_.max_age;
      });
      destroy_locked(*shelf, std::size_t(old - shelf->begin()));
      const std::size_t target = target_locked(bin, tier, now);
      if (shelf->size() > target) destroy_locked(*shelf, shelf->size() - target);
    }
  }
  // One per look: what the others need now, and no more.
  if (size_locked() == 0) return;
  if (size_locked() + others <= needs_.max_sandboxes && judge(memory, 0) != MemoryVerdict::short_)
    return;
  for (auto& [id, bin] : bins_) {
    auto& shelf = bin.ready.empty() ? bin.skeletons : bin.ready;
    if (shelf.empty()) continue;
    destroy_locked(shelf, 1);
    return;
  }
}

Pool::Plan Pool::plan_locked(const Memory& memory, std::size_t others,
                             PoolClock::time_point now) const {
  Plan plan{.job = std::nullopt, .look_again = options_.look_every};
  if (size_locked() + others >= needs_.max_sandboxes) return plan;
  double lowest = 1;
  for (const auto& [id, bin] : bins_) {
    if (!in_use_locked(bin, now)) continue;
    if (now < bin.next_try) {
      plan.look_again = std::min(plan.look_again,
                                 std::chrono::ceil<std::chrono::milliseconds>(bin.next_try - now));
      continue;
    }
    for (const Tier tier : {Tier::ready, Tier::skeleton}) {
      const std::size_t want = target_locked(bin, tier, now);
      const std::size_t have = tier == Tier::ready ? bin.ready.size() : bin.skeletons.size();
      if (have >= want) continue;
      std::uint64_t cost = kWarmCost;
      if (tier == Tier::ready && !prepared_locked(bin.base.dir)) {
        cost = kColdCost;
        const auto zygote = zygotes_.find(bin.base.dir);
        // It will be there in a moment.
        if (zygote != zygotes_.end() && zygote->second.failures < kColdAfter) continue;
      }
      if (judge(memory, cost) != MemoryVerdict::plenty) continue;
      const double filled = double(have) / double(want);
      if (filled >= lowest) continue;
      lowest = filled;
      plan.job = Job{bin.base, tier};
    }
  }
  return plan;
}

bool Pool::in_use_locked(const Bin& bin, PoolClock::time_point now) const {
  if (bin.demand.last() && now - *bin.demand.last() < options_.keep_unused) return true;
  return std::any_of(bin.base.names.begin(), bin.base.names.end(), [&](const std::string& name) {
    return std::find(options_.from_start.begin(), options_.from_start.end(), name) !=
           options_.from_start.end();
  });
}

bool Pool::prepared_locked(const std::string& dir) const {
  const auto found = zygotes_.find(dir);
  return found != zygotes_.end() && found->second.state == Zygote::State::prepared;
}

std::size_t Pool::target_locked(const Bin& bin, Tier tier, PoolClock::time_point now) const {
  if (!in_use_locked(bin, now)) return 0;
  const std::size_t burst = bin.demand.burst(now);
  if (tier == Tier::skeleton) {
    return pool_target(options_.skeletons, options_.times, burst);
  }
  switch (bin.kernel) {
    case Kernel::no:
      return 0;
    case Kernel::unknown:
      return std::min<std::size_t>(options_.ready, 1);  // the first one tells
    case Kernel::yes:
      return pool_target(options_.ready, options_.times, burst);
  }
  return 0;
}

std::size_t Pool::size_locked() const {
  std::size_t size = making_ ? 1 : 0;
  for (const auto& [id, bin] : bins_) size += bin.ready.size() + bin.skeletons.size();
  return size;
}

void Pool::destroy_locked(std::vector<Entry>& shelf, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) needs_.tasks.spawn("pool", needs_.destroy(shelf[i].id));
  shelf.erase(shelf.begin(), shelf.begin() + std::ptrdiff_t(count));
}

void Pool::wake_locked() {
  if (timer_) net::wake(timer_);
}

void Pool::Window::add(double seconds) {
  constexpr std::size_t kMost = 1024;
  if (values.size() < kMost) {
    values.push_back(seconds);
  } else {
    values[next++ % kMost] = seconds;
  }
}

}  // namespace atl::engine
