#include <algorithm>
#include <limits>

#include "store/statements.h"

namespace atl::store {
namespace {

// Rows of one transaction: others wait for the lock no longer than this takes.
constexpr std::size_t kBatch = 100;

constexpr std::int64_t kAlways = std::numeric_limits<std::int64_t>::max();

}  // namespace

Result<void> Store::insert_metrics(const std::vector<Sample>& samples) {
  for (std::size_t first = 0; first < samples.size(); first += kBatch) {
    std::lock_guard lock(mutex_);
    const std::size_t last = std::min(first + kBatch, samples.size());
    ATOLL_TRY(in_transaction([&]() -> Result<void> {
      for (std::size_t i = first; i < last; ++i) {
        const auto& [id, coarse, metric] = samples[i];
        Use use(statements_->insert_metric);
        use->bind(1, id.str());
        use->bind(2, to_ns(metric.at));
        use->bind(3, std::int64_t(coarse));
        use->bind(4, std::int64_t(metric.cpu_count));
        use->bind(5, metric.cpu_used_pct);
        use->bind(6, std::int64_t(metric.mem_used));
        use->bind(7, std::int64_t(metric.mem_total));
        use->bind(8, std::int64_t(metric.mem_cache));
        use->bind(9, std::int64_t(metric.disk_used));
        use->bind(10, std::int64_t(metric.disk_total));
        ATOLL_TRY(use->run());
      }
      return {};
    }));
  }
  return {};
}

Result<std::vector<MetricRecord>> Store::metrics(const SandboxId& id, Timestamp from, Timestamp to,
                                                 std::size_t limit) {
  std::lock_guard lock(mutex_);
  Use use(statements_->metrics);
  use->bind(1, id.str());
  use->bind(2, to_ns(from));
  use->bind(3, to_ns(to));
  use->bind(4, std::int64_t(limit));
  std::vector<MetricRecord> records;
  for (;;) {
    ATOLL_TRY_ASSIGN(const bool there, use->step());
    if (!there) break;
    MetricRecord metric;
    metric.at = from_ns(use->integer(0));
    metric.cpu_count = std::uint32_t(use->integer(1));
    metric.cpu_used_pct = use->real(2);
    metric.mem_used = std::uint64_t(use->integer(3));
    metric.mem_total = std::uint64_t(use->integer(4));
    metric.mem_cache = std::uint64_t(use->integer(5));
    metric.disk_used = std::uint64_t(use->integer(6));
    metric.disk_total = std::uint64_t(use->integer(7));
    records.push_back(metric);
  }
  std::reverse(records.begin(), records.end());  // the newest were read, in falling order
  return records;
}

Result<std::int64_t> Store::purge_metrics(Timestamp fine_before, Timestamp all_before) {
  std::int64_t removed = 0;
  for (const auto& [coarse, before] : {std::pair(0, fine_before), std::pair(1, all_before)}) {
    for (;;) {
      std::lock_guard lock(mutex_);
      Use use(statements_->purge_metrics);
      use->bind(1, std::int64_t(coarse));
      use->bind(2, to_ns(before));
      written_ = true;
      ATOLL_TRY(use->run());
      removed += main_.changes();
      if (main_.changes() == 0) break;
    }
  }
  return removed;
}

Result<void> Store::append_logs(const SandboxId& id, const std::vector<LogLine>& lines) {
  for (std::size_t first = 0; first < lines.size(); first += kBatch) {
    std::lock_guard lock(mutex_);
    const std::size_t last = std::min(first + kBatch, lines.size());
    ATOLL_TRY(in_transaction([&]() -> Result<void> {
      for (std::size_t i = first; i < last; ++i) {
        ATOLL_TRY(write_log(id, lines[i]));
      }
      return {};
    }));
  }
  return {};
}

Result<void> Store::write_log(const SandboxId& id, const LogLine& line) {
  Use use(statements_->insert_log);
  use->bind(1, id.str());
  use->bind(2, to_ns(line.record.at));
  use->bind(3, std::int64_t(line.record.level));
  use->bind(4, line.record.message);
  use->bind(5, to_json(line.record.fields));
  if (!line.boot_id.empty()) {
    use->bind(6, line.boot_id);
    use->bind(7, line.agent_seq);
  }
  return use->run();
}

Result<std::vector<LogRecord>> Store::logs(const SandboxId& id, const LogFilter& filter) {
  std::lock_guard lock(mutex_);
  Use use(filter.newest_first ? statements_->logs_backward : statements_->logs_forward);
  use->bind(1, id.str());
  use->bind(2, filter.from ? to_ns(*filter.from) : 0);
  use->bind(3, filter.to ? to_ns(*filter.to) : kAlways);
  use->bind(4, std::int64_t(filter.least));
  use->bind(5, filter.search);
  use->bind(6, std::int64_t(filter.limit));
  std::vector<LogRecord> records;
  for (;;) {
    ATOLL_TRY_ASSIGN(const bool there, use->step());
    if (!there) return records;
    LogRecord record;
    record.at = from_ns(use->integer(0));
    record.level = LogLevel(std::clamp<std::int64_t>(use->integer(1), 0, int(LogLevel::error)));
    record.message = use->text(2);
    ATOLL_TRY_ASSIGN(record.fields, map_from_json(use->text(3)));
    records.push_back(std::move(record));
  }
}

Result<std::int64_t> Store::last_agent_seq(const SandboxId& id, const std::string& boot_id) {
  std::lock_guard lock(mutex_);
  Use use(statements_->last_agent_seq);
  use->bind(1, id.str());
  use->bind(2, boot_id);
  ATOLL_TRY(use->step());
  return use->is_null(0) ? 0 : use->integer(0);
}

Result<void> Store::trim_logs(const SandboxId& id, std::size_t keep) {
  std::lock_guard lock(mutex_);
  Use use(statements_->trim_logs);
  use->bind(1, id.str());
  use->bind(2, std::int64_t(keep));
  written_ = true;
  return use->run();
}

}  // namespace atl::store
