// Account: the figures and limits of one workspace in this process, and what writes under way have
// reserved of them. Any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "store/timestamp.h"

namespace atl::workspace {

struct Quota {
  std::uint64_t max_bytes = 10ull << 30;  // of all versions
  std::uint64_t max_files = 100'000;
  std::uint64_t keep_versions = 10;  // of each file
  bool operator==(const Quota&) const = default;
};
// What is not given stays.
struct QuotaChange {
  std::optional<std::uint64_t> max_bytes;
  std::optional<std::uint64_t> max_files;
  std::optional<std::uint64_t> keep_versions;
};
inline constexpr std::uint64_t kMaxQuotaBytes = 1ull << 50;
inline constexpr std::uint64_t kMaxQuotaFiles = 1'000'000;
inline constexpr std::uint64_t kMaxKeptVersions = 1000;
// invalid_argument: beyond what can be.
Result<Quota> changed(Quota quota, const QuotaChange& change);

struct Usage {
  std::uint64_t bytes = 0;
  std::uint64_t files = 0;
  std::uint64_t versions = 0;
};

// What is kept of a workspace: {"version": 1, "createdAt", "maxBytes", "maxFiles", "keepVersions"}.
struct Settings {
  Quota quota;
  Timestamp created_at{};
};
std::string encode_settings(const Settings& settings);
// data_loss: not settings.
Result<Settings> decode_settings(std::string_view text);

class Account {
 public:
  Account(std::optional<Settings> settings, Quota defaults, Usage usage);

  bool exists() const;
  Settings settings() const;  // the defaults when it does not exist yet
  void set(std::optional<Settings> settings);
  Usage usage() const;
  // After a version was published or removed.
  void published(std::uint64_t size, bool new_file);
  void removed(std::uint64_t size, bool last_of_file);
  // Figures counted anew; what is reserved stays reserved.
  void recount(std::optional<Settings> settings, Usage usage);
  // Counting takes `took`: when it is worth while again.
  void count_after(std::chrono::steady_clock::duration took);
  bool is_fresh() const;

  // resource_exhausted with ENOSPC: the quota of bytes. `release` gives them back.
  Result<void> reserve(std::uint64_t bytes);
  void release(std::uint64_t bytes);
  // The same for the number of files.
  Result<void> check_new_file() const;

 private:
  mutable std::mutex mutex_;
  std::optional<Settings> settings_;
  const Quota defaults_;
  Usage usage_;
  std::uint64_t reserved_ = 0;
  std::chrono::steady_clock::time_point fresh_until_;

  const Quota& quota() const { return settings_ ? settings_->quota : defaults_; }
};

// Bytes reserved for one write, given back with it.
class Reservation {
 public:
  explicit Reservation(std::shared_ptr<Account> account) : account_(std::move(account)) {}
  ~Reservation() { account_->release(bytes_); }
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  // At least so many in all.
  Result<void> reach(std::uint64_t bytes);

 private:
  std::shared_ptr<Account> account_;
  std::uint64_t bytes_ = 0;
};

}  // namespace atl::workspace
