#include "cli/metrics.h"

#include <dirent.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>

namespace atl::cli {
namespace {

class Text {
 public:
  void family(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    fmt::format_to(std::back_inserter(out_), "# HELP {} {}\n# TYPE {} {}\n", name, help, name,
                   type);
  }
  template <class Value>
  void sample(std::string_view labels, Value value) {
    fmt::format_to(std::back_inserter(out_), "{}{} {}\n", name_, labels, value);
  }
  template <class Value>
  void one(std::string_view name, std::string_view type, std::string_view help, Value value) {
    family(name, type, help);
    sample("", value);
  }
  std::string take() { return std::move(out_); }

 private:
  std::string name_;
  std::string out_;
};

// By rank; `sorted` is not empty.
double quantile(const std::vector<double>& sorted, double part) {
  const auto rank = std::size_t(part * double(sorted.size() - 1) + 0.5);
  return sorted[std::min(rank, sorted.size() - 1)];
}

void quantiles(Text& text, std::string_view name, std::string_view help,
               std::vector<double> seconds) {
  if (seconds.empty()) return;
  std::sort(seconds.begin(), seconds.end());
  text.family(name, "gauge", help);
  text.sample("{quantile=\"0.5\"}", quantile(seconds, 0.5));
  text.sample("{quantile=\"0.9\"}", quantile(seconds, 0.9));
  text.sample("{quantile=\"0.99\"}", quantile(seconds, 0.99));
  text.sample("{quantile=\"1\"}", seconds.back());
}

std::uint64_t count_entries(const char* path) {
  DIR* directory = ::opendir(path);
  if (directory == nullptr) return 0;
  std::uint64_t count = 0;
  while (const dirent* entry = ::readdir(directory)) {
    if (entry->d_name[0] != '.') ++count;
  }
  ::closedir(directory);
  return count > 0 ? count - 1 : 0;  // without the directory itself
}

// Names of templates are [a-z0-9-_]: nothing to escape.
void pool_families(Text& text, const engine::PoolStatistics& pool) {
  using Figures = engine::PoolFigures;
  const auto per_tier = [&](std::string_view name, std::string_view type, std::string_view help,
                            auto ready, auto skeleton) {
    if (pool.templates.empty()) return;
    text.family(name, type, help);
    for (const Figures& one : pool.templates) {
      text.sample(fmt::format("{{template=\"{}\",tier=\"ready\"}}", one.name), one.*ready);
      text.sample(fmt::format("{{template=\"{}\",tier=\"skeleton\"}}", one.name), one.*skeleton);
    }
  };
  const auto per_template = [&](std::string_view name, std::string_view help, auto member) {
    if (pool.templates.empty()) return;
    text.family(name, "counter", help);
    for (const Figures& one : pool.templates)
      text.sample(fmt::format("{{template=\"{}\"}}", one.name), one.*member);
  };
  const auto quantiles = [&](std::vector<double> seconds, std::string_view labels) {
    if (seconds.empty()) return;
    std::sort(seconds.begin(), seconds.end());
    for (const auto& [name, part] : {std::pair("0.5", 0.5), std::pair("0.99", 0.99)})
      text.sample(fmt::format("{{{}quantile=\"{}\"}}", labels, name), quantile(seconds, part));
  };
  per_tier("atoll_pool_sandboxes", "gauge", "Sandboxes that wait to be handed out.",
           &Figures::ready, &Figures::skeletons);
  per_tier("atoll_pool_target", "gauge", "How many shall wait.", &Figures::ready_target,
           &Figures::skeleton_target);
  per_tier("atoll_pool_hits_total", "counter", "Creates that got one.", &Figures::ready_hits,
           &Figures::skeleton_hits);
  per_tier("atoll_pool_misses_total", "counter", "Creates that found none.", &Figures::ready_misses,
           &Figures::skeleton_misses);
  per_template("atoll_pool_refills_total", "Sandboxes made ahead.", &Figures::refills);
  per_template("atoll_pool_refill_failures_total", "Those that could not be made as planned.",
               &Figures::refill_failures);
  per_template("atoll_pool_died_total", "Those that ended before a client had them.",
               &Figures::died);
  if (!pool.ready_seconds.empty() || !pool.skeleton_seconds.empty()) {
    text.family("atoll_pool_refill_seconds", "gauge", "Making one ahead, the last, by quantile.");
    quantiles(pool.ready_seconds, "tier=\"ready\",");
    quantiles(pool.skeleton_seconds, "tier=\"skeleton\",");
  }
  text.one("atoll_zygotes_prepared", "gauge", "Templates whose zygotes can fork.", pool.zygotes);
  text.one("atoll_warm_failures_total", "counter", "Zygotes' forks into sandboxes that failed.",
           pool.warm_failures);
  if (!pool.warm_seconds.empty()) {
    text.family("atoll_warm_seconds", "gauge", "A zygote's fork into a sandbox, by quantile.");
    quantiles(pool.warm_seconds, "");
  }
}

}  // namespace

ProcessFigures process_figures() {
  ProcessFigures out;
  std::ifstream statm("/proc/self/statm");
  std::uint64_t size = 0;
  std::uint64_t resident = 0;
  if (statm >> size >> resident) out.rss_bytes = resident * std::uint64_t(::sysconf(_SC_PAGESIZE));
  out.open_descriptors = count_entries("/proc/self/fd");
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) == 0) {
    const auto seconds = [](const timeval& t) {
      return double(t.tv_sec) + double(t.tv_usec) / 1e6;
    };
    out.cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  }
  return out;
}

std::string exposition(const MetricsInput& input) {
  const engine::Statistics& s = input.engine;
  Text text;
  text.family("atoll_sandboxes", "gauge", "Sandboxes by state.");
  text.sample("{state=\"creating\"}", s.creating);
  text.sample("{state=\"running\"}", s.running);
  text.sample("{state=\"pausing\"}", s.pausing);
  text.sample("{state=\"paused\"}", s.paused);
  text.sample("{state=\"resuming\"}", s.resuming);
  text.sample("{state=\"killing\"}", s.killing);
  text.one("atoll_creates_waiting", "gauge", "Creates that wait in line.", s.waiting_creates);
  text.one("atoll_creates_total", "counter", "Sandboxes created.", s.created);
  text.one("atoll_create_failures_total", "counter", "Creates that failed.", s.create_failures);
  text.one("atoll_creates_refused_total", "counter", "Creates refused by a limit.", s.refused);
  text.one("atoll_kills_total", "counter", "Sandboxes killed, whatever the reason.", s.killed);
  text.one("atoll_expired_total", "counter", "Sandboxes whose time was over.", s.expired);
  text.one("atoll_pauses_total", "counter", "Pauses.", s.paused_total);
  text.one("atoll_resumes_total", "counter", "Resumes.", s.resumed_total);
  text.one("atoll_adopted_total", "counter", "Sandboxes of an earlier server found again.",
           s.adopted);
  text.one("atoll_lost_total", "counter", "Sandboxes that ended by themselves.", s.lost);
  text.family("atoll_paused_sandboxes", "gauge", "Paused sandboxes by where their memory is.");
  text.sample("{tier=\"frozen\"}", s.paused_frozen);
  text.sample("{tier=\"dumped\"}", s.paused_dumped);
  text.sample("{tier=\"disk\"}", s.paused_disk);
  text.family("atoll_paused_memory_bytes", "gauge", "Memory of paused sandboxes, in RAM or files.");
  text.sample("{tier=\"frozen\"}", s.frozen_bytes);
  text.sample("{tier=\"dumped\"}", s.dumped_bytes);
  text.one("atoll_dumps_total", "counter", "Memory written to files.", s.dumps);
  text.one("atoll_dumps_cancelled_total", "counter", "Dumps given up for a resume or a kill.",
           s.dumps_cancelled);
  text.one("atoll_dump_failures_total", "counter", "Dumps that were refused or failed.",
           s.dump_failures);
  text.one("atoll_restores_total", "counter", "Memory read back from files.", s.restores);
  text.one("atoll_restore_failures_total", "counter", "Restores that failed.", s.restore_failures);
  quantiles(text, "atoll_dump_seconds", "Duration of the last dumps, by quantile.", s.dump_seconds);
  quantiles(text, "atoll_restore_seconds", "Duration of the last restores, by quantile.",
            s.restore_seconds);
  text.one("atoll_snapshots", "gauge", "Snapshots that clients can name.", s.snapshots);
  text.one("atoll_snapshots_total", "counter", "Snapshots made, those of forks too.",
           s.snapshots_total);
  text.one("atoll_snapshot_failures_total", "counter", "Snapshots that were not made.",
           s.snapshot_failures);
  text.one("atoll_forks_total", "counter", "Copies made by forks.", s.forks_total);
  text.one("atoll_fork_failures_total", "counter", "Copies that were not made.", s.fork_failures);
  text.one("atoll_rollbacks_total", "counter", "Sandboxes put back to a snapshot.",
           s.rollbacks_total);
  text.one("atoll_rollback_failures_total", "counter", "Rollbacks that failed.",
           s.rollback_failures);
  quantiles(text, "atoll_snapshot_pause_seconds",
            "How long sources of the last snapshots stood still, by quantile.",
            s.snapshot_pause_seconds);
  quantiles(text, "atoll_create_seconds", "Duration of the last creates, by quantile.",
            s.create_seconds);
  pool_families(text, s.pool);
  text.one("atoll_http_requests_total", "counter", "Requests to the API and to sandboxes.",
           input.requests);
  text.one("atoll_http_requests_in_flight", "gauge", "Requests that are being answered.",
           input.in_flight);
  text.one("atoll_http_connections", "gauge", "Connections of clients.", input.connections);
  text.one("process_resident_memory_bytes", "gauge", "Memory of the server.",
           input.process.rss_bytes);
  text.one("process_open_fds", "gauge", "Open descriptors of the server.",
           input.process.open_descriptors);
  text.one("process_cpu_seconds_total", "counter", "Processor time of the server.",
           input.process.cpu_seconds);
  text.one("atoll_uptime_seconds", "gauge", "Since this server process started.",
           input.uptime_seconds);
  return text.take();
}

}  // namespace atl::cli
