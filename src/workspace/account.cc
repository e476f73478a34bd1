#include "workspace/account.h"

#include <algorithm>
#include <cerrno>

namespace atl::workspace {
namespace {

constexpr std::chrono::seconds kRecount{60};

Error full(std::string message) {
  // ENOSPC makes it 507 for clients of the API.
  return Error{Errc::resource_exhausted, ENOSPC, std::move(message)};
}

Result<void> set_within(std::uint64_t& value, const std::optional<std::uint64_t>& wanted,
                        std::uint64_t least, std::uint64_t most, const char* name) {
  if (!wanted) return {};
  if (*wanted < least || *wanted > most) {
    return make_error(Errc::invalid_argument, std::string(name) + " must be between " +
                                                  std::to_string(least) + " and " +
                                                  std::to_string(most));
  }
  value = *wanted;
  return {};
}

std::optional<std::uint64_t> number(const json::object& object, std::string_view name) {
  const auto* value = object.if_contains(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_uint64()) return value->as_uint64();
  if (value->is_int64() && value->as_int64() >= 0) return std::uint64_t(value->as_int64());
  return std::nullopt;
}

}  // namespace

Result<Quota> changed(Quota quota, const QuotaChange& change) {
  ATOLL_TRY(set_within(quota.max_bytes, change.max_bytes, 0, kMaxQuotaBytes, "maxBytes"));
  ATOLL_TRY(set_within(quota.max_files, change.max_files, 0, kMaxQuotaFiles, "maxFiles"));
  ATOLL_TRY(
      set_within(quota.keep_versions, change.keep_versions, 1, kMaxKeptVersions, "keepVersions"));
  return quota;
}

std::string encode_settings(const Settings& settings) {
  return json::serialize(json::object{{"version", 1},
                                      {"createdAt", to_rfc3339(settings.created_at)},
                                      {"maxBytes", settings.quota.max_bytes},
                                      {"maxFiles", settings.quota.max_files},
                                      {"keepVersions", settings.quota.keep_versions}});
}

Result<Settings> decode_settings(std::string_view text) {
  const Error bad = make_error(Errc::data_loss, "the settings of a workspace cannot be read");
  auto parsed = parse_json(text);
  if (!parsed.ok() || !parsed->is_object()) return bad;
  const json::object& object = parsed->as_object();
  const auto* created = object.if_contains("createdAt");
  const auto bytes = number(object, "maxBytes");
  const auto files = number(object, "maxFiles");
  const auto keep = number(object, "keepVersions");
  if (number(object, "version") != 1 || !bytes || !files || !keep) return bad;
  if (created == nullptr || !created->is_string()) return bad;
  const auto at = parse_rfc3339(created->as_string());
  if (!at) return bad;
  return Settings{Quota{*bytes, *files, std::max<std::uint64_t>(*keep, 1)}, *at};
}

Account::Account(std::optional<Settings> settings, Quota defaults, Usage usage)
    : settings_(std::move(settings)), defaults_(defaults), usage_(usage) {}

bool Account::exists() const {
  std::lock_guard lock(mutex_);
  return settings_.has_value();
}

Settings Account::settings() const {
  std::lock_guard lock(mutex_);
  return settings_ ? *settings_ : Settings{defaults_, {}};
}

void Account::set(std::optional<Settings> settings) {
  std::lock_guard lock(mutex_);
  settings_ = std::move(settings);
}

Usage Account::usage() const {
  std::lock_guard lock(mutex_);
  return usage_;
}

void Account::published(std::uint64_t size, bool new_file) {
  std::lock_guard lock(mutex_);
  usage_.bytes += size;
  ++usage_.versions;
  if (new_file) ++usage_.files;
}

void Account::removed(std::uint64_t size, bool last_of_file) {
  std::lock_guard lock(mutex_);
  usage_.bytes -= std::min(usage_.bytes, size);
  if (usage_.versions > 0) --usage_.versions;
  if (last_of_file && usage_.files > 0) --usage_.files;
}

void Account::recount(std::optional<Settings> settings, Usage usage) {
  std::lock_guard lock(mutex_);
  settings_ = std::move(settings);
  usage_ = usage;
}

void Account::count_after(std::chrono::steady_clock::duration took) {
  // At most one part in a hundred of the time is spent on it.
  const auto wait = std::max<std::chrono::steady_clock::duration>(kRecount, took * 100);
  std::lock_guard lock(mutex_);
  fresh_until_ = std::chrono::steady_clock::now() + wait;
}

bool Account::is_fresh() const {
  std::lock_guard lock(mutex_);
  return std::chrono::steady_clock::now() < fresh_until_;
}

Result<void> Account::reserve(std::uint64_t bytes) {
  std::lock_guard lock(mutex_);
  const std::uint64_t taken = usage_.bytes + reserved_;
  if (bytes > quota().max_bytes || taken > quota().max_bytes - bytes) {
    return full("the workspace's quota of " + std::to_string(quota().max_bytes) +
                " bytes is used up (" + std::to_string(usage_.bytes) +
                " are kept, old versions counted). Delete files, or raise maxBytes");
  }
  reserved_ += bytes;
  return {};
}

void Account::release(std::uint64_t bytes) {
  std::lock_guard lock(mutex_);
  reserved_ -= std::min(reserved_, bytes);
}

Result<void> Account::check_new_file() const {
  std::lock_guard lock(mutex_);
  if (usage_.files < quota().max_files) return {};
  return full("the workspace's quota of " + std::to_string(quota().max_files) +
              " files is used up. Delete files, or raise maxFiles");
}

Result<void> Reservation::reach(std::uint64_t bytes) {
  if (bytes <= bytes_) return {};
  ATOLL_TRY(account_->reserve(bytes - bytes_));
  bytes_ = bytes;
  return {};
}

}  // namespace atl::workspace
