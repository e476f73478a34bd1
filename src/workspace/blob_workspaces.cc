// Files of workspaces: written, read, listed, removed. manage.cc has whole workspaces, transfer.cc
// the ways from and to sandboxes.
#include "workspace/blob_workspaces.h"

#include <algorithm>

#include "base/log.h"
#include "store/blobs/key.h"
#include "workspace/digest.h"

namespace atl::workspace {
namespace {

constexpr std::size_t kListPage = 1000;
constexpr std::size_t kMaxAccounts = 4096;
constexpr std::size_t kMaxTeam = 60;  // bytes of its name in keys
constexpr std::size_t kMaxListed = 1'000'000;

// What comes in: counted, hashed and held against the quota on its way.
struct Inflow {
  Inflow(client::Source from, std::optional<std::uint64_t> announced,
         std::shared_ptr<Account> account)
      : source(std::move(from)), length(announced), reservation(std::move(account)) {}
  client::Source source;
  std::optional<std::uint64_t> length;
  Reservation reservation;
  Digest digest;
  std::uint64_t size = 0;
};

net::Task<Result<std::size_t>> read_inflow(std::shared_ptr<Inflow> inflow, std::span<char> into) {
  auto reading = inflow->source(into);
  ATOLL_CO_TRY_ASSIGN(const std::size_t count, co_await std::move(reading));
  inflow->size += count;
  if (inflow->length &&
      (count == 0 ? inflow->size != *inflow->length : inflow->size > *inflow->length)) {
    co_return make_error(Errc::invalid_argument, "the content is not as long as was announced (" +
                                                     std::to_string(*inflow->length) + " bytes)");
  }
  ATOLL_CO_TRY(inflow->reservation.reach(inflow->size));
  inflow->digest.update({into.data(), count});
  co_return count;
}

class VersionReader final : public Reader {
 public:
  VersionReader(File file, std::unique_ptr<blobs::Reader> content)
      : file_(std::move(file)), content_(std::move(content)) {}
  const File& file() const override { return file_; }
  net::Task<Result<std::size_t>> read_some(std::span<char> into) override {
    return content_->read_some(into);
  }

 private:
  File file_;
  std::unique_ptr<blobs::Reader> content_;
};

net::Task<Result<std::size_t>> read_shared(std::shared_ptr<Reader> reader, std::span<char> into) {
  auto reading = reader->read_some(into);
  co_return co_await std::move(reading);
}

Error no_file(const std::string& path) {
  return make_error(Errc::not_found, "there is no file " + path + " in the workspace");
}

Error no_version(const std::string& path, const std::string& version) {
  return make_error(Errc::not_found, "there is no version " + version + " of " + path);
}

}  // namespace

BlobWorkspaces::BlobWorkspaces(blobs::BlobStore& store, std::string server, Quota defaults,
                               TeamName team_name)
    : store_(store),
      server_(std::move(server)),
      defaults_(defaults),
      team_name_(std::move(team_name)) {}
BlobWorkspaces::~BlobWorkspaces() = default;

std::string BlobWorkspaces::stored_team(const std::string& team) const {
  const std::string name = team_name_ ? team_name_(team) : team;
  if (blobs::encode_segment(name).size() <= kMaxTeam) return name;
  Digest digest;
  digest.update(name);
  return "#" + digest.finish_hex().substr(0, 48);
}

Result<Place> BlobWorkspaces::place_of(const std::string& team, std::string workspace) const {
  ATOLL_TRY(check_name(workspace));
  return Place{stored_team(team), std::move(workspace)};
}

net::Task<Result<Turns::Turn>> BlobWorkspaces::turn(const Place& place,
                                                    std::chrono::milliseconds limit) {
  return turns_.take(place.settings(), limit);
}

BlobWorkspaces::AccountPtr& BlobWorkspaces::cached(const Place& place) {
  if (accounts_.size() >= kMaxAccounts) {
    std::erase_if(accounts_, [](const auto& entry) { return entry.second.use_count() == 1; });
  }
  return accounts_[place];
}

net::Task<Result<std::optional<Settings>>> BlobWorkspaces::read_settings(Place place) {
  auto asking = store_.get_text(place.settings(), 4096);
  auto text = co_await std::move(asking);
  if (!text.ok()) {
    if (text.error().code == Errc::not_found) co_return std::optional<Settings>();
    co_return std::move(text).error();
  }
  ATOLL_CO_TRY_ASSIGN(Settings settings, decode_settings(*text));
  co_return std::optional<Settings>(std::move(settings));
}

net::Task<Result<BlobWorkspaces::AccountPtr>> BlobWorkspaces::account(Place place) {
  AccountPtr known;
  {
    std::lock_guard lock(mutex_);
    const auto found = accounts_.find(place);
    if (found != accounts_.end()) known = found->second;
  }
  if (known && (!store_.shared() || known->is_fresh())) co_return known;
  const auto began = std::chrono::steady_clock::now();
  auto asking = read_settings(place);
  ATOLL_CO_TRY_ASSIGN(const std::optional<Settings> settings, co_await std::move(asking));
  Usage usage;
  std::string last;
  std::string after;
  for (bool more = true; more;) {
    auto listing = store_.list(place.entries(), after, kListPage);
    ATOLL_CO_TRY_ASSIGN(const blobs::Page page, co_await std::move(listing));
    for (const blobs::Blob& blob : page.items) {
      const auto version = parse_entry(place, blob.key);
      if (!version) continue;
      usage.bytes += version->file.size;
      ++usage.versions;
      if (version->file.path != last) ++usage.files;
      last = version->file.path;
    }
    if (!page.items.empty()) after = page.items.back().key;
    more = page.more;
  }
  if (known) {
    known->recount(settings, usage);
  } else {
    std::lock_guard lock(mutex_);
    AccountPtr& slot = cached(place);
    if (!slot) slot = std::make_shared<Account>(settings, defaults_, usage);
    known = slot;
  }
  known->count_after(std::chrono::steady_clock::now() - began);
  co_return known;
}

net::Task<Result<BlobWorkspaces::AccountPtr>> BlobWorkspaces::account_in_turn(
    Place place, std::chrono::milliseconds limit) {
  auto taking = turn(place, limit);
  ATOLL_CO_TRY_ASSIGN(const Turns::Turn mine, co_await std::move(taking));
  auto opening = account(place);
  co_return co_await std::move(opening);
}

net::Task<Result<void>> BlobWorkspaces::ensure_exists(Place place, AccountPtr account) {
  if (account->exists()) co_return Result<void>();
  // Another server may have made it since the account was opened.
  auto asking = read_settings(place);
  ATOLL_CO_TRY_ASSIGN(std::optional<Settings> there, co_await std::move(asking));
  if (there) {
    account->set(std::move(there));
    co_return Result<void>();
  }
  Settings settings{defaults_, now()};
  auto putting = store_.put_text(place.settings(), encode_settings(settings));
  ATOLL_CO_TRY(co_await std::move(putting));
  account->set(settings);
  co_return Result<void>();
}

net::Task<Result<std::vector<Version>>> BlobWorkspaces::versions_of(Place place, std::string path) {
  std::vector<Version> out;
  std::string after;
  for (bool more = true; more;) {
    auto listing = store_.list(place.versions(path), after, kListPage);
    ATOLL_CO_TRY_ASSIGN(const blobs::Page page, co_await std::move(listing));
    for (const blobs::Blob& blob : page.items) {
      if (auto version = parse_entry(place, blob.key)) out.push_back(std::move(*version));
    }
    if (!page.items.empty()) after = page.items.back().key;
    more = page.more;
  }
  co_return out;
}

net::Task<Result<File>> BlobWorkspaces::publish(Place place, AccountPtr account, Version& version) {
  auto taking = turn(place);
  ATOLL_CO_TRY_ASSIGN(const Turns::Turn mine, co_await std::move(taking));
  auto asking = versions_of(place, version.file.path);
  ATOLL_CO_TRY_ASSIGN(std::vector<Version> older, co_await std::move(asking));
  if (older.empty()) {
    ATOLL_CO_TRY(account->check_new_file());
  }
  // Also when the clock went back, the newest version is the last one.
  Timestamp at = now();
  if (!older.empty())
    at = std::max(at, older.back().file.modified_at + std::chrono::microseconds(1));
  version.file.version = make_version(at);
  version.file.modified_at = at;
  auto existing = ensure_exists(place, account);
  ATOLL_CO_TRY(co_await std::move(existing));
  auto putting = store_.put_text(entry_key(place, version), {});
  ATOLL_CO_TRY(co_await std::move(putting));
  account->published(version.file.size, older.empty());

  const std::size_t keep = account->settings().quota.keep_versions;
  if (older.size() + 1 > keep) {
    older.resize(older.size() + 1 - keep);
    // The new version is there: that an old one cannot be removed now is no failure.
    auto removing = remove_versions(place, account, std::move(older), Rest::stays);
    if (auto removed = co_await std::move(removing); !removed.ok())
      log::warn("an old version of a workspace's file stays", {{"error", removed.error().message}});
  }
  co_return version.file;
}

net::Task<Result<void>> BlobWorkspaces::remove_versions(Place place, AccountPtr account,
                                                        std::vector<Version> versions, Rest rest) {
  for (const Version& version : versions) {
    auto entry = store_.remove(entry_key(place, version));
    ATOLL_CO_TRY(co_await std::move(entry));
    account->removed(version.file.size, rest == Rest::gone && &version == &versions.back());
    auto content = store_.remove(place.content(version.data));
    ATOLL_CO_TRY(co_await std::move(content));
  }
  co_return Result<void>();
}

net::Task<Result<File>> BlobWorkspaces::write(std::string team, std::string workspace,
                                              std::string path, client::Source source,
                                              std::optional<std::uint64_t> length) {
  ATOLL_CO_TRY_ASSIGN(const Place place, place_of(team, std::move(workspace)));
  ATOLL_CO_TRY_ASSIGN(path, normalise_path(path));
  auto opening = account_in_turn(place);
  ATOLL_CO_TRY_ASSIGN(const AccountPtr account, co_await std::move(opening));
  if (!account->check_new_file().ok()) {
    auto asking = versions_of(place, path);
    ATOLL_CO_TRY_ASSIGN(const std::vector<Version> older, co_await std::move(asking));
    if (older.empty()) {
      ATOLL_CO_TRY(account->check_new_file());
    }
  }
  auto inflow = std::make_shared<Inflow>(std::move(source), length, account);
  // Refused before anything is read, if that is known already.
  if (length) {
    ATOLL_CO_TRY(inflow->reservation.reach(*length));
  }

  Version version;
  version.file.path = std::move(path);
  version.data = make_data(server_, now());
  auto putting = store_.put(place.content(version.data),
                            [inflow](std::span<char> into) { return read_inflow(inflow, into); });
  ATOLL_CO_TRY_ASSIGN(version.file.size, co_await std::move(putting));
  version.file.sha256 = inflow->digest.finish_hex();
  auto publishing = publish(place, account, version);
  auto published = co_await std::move(publishing);
  if (!published.ok()) {
    auto undoing = take_back(place, std::move(version));
    co_await std::move(undoing);
  }
  co_return published;
}

// The entry may be there although its put has failed: the answer may be all that was lost. So it
// goes first, and as long as it may name the content, that stays.
net::Task<void> BlobWorkspaces::take_back(Place place, Version version) {
  if (!version.file.version.empty()) {
    auto entry = store_.remove(entry_key(place, version));
    if (auto removed = co_await std::move(entry); !removed.ok()) {
      log::warn("a version that was not published may be there all the same",
                {{"error", removed.error().message}});
      co_return;
    }
  }
  auto content = store_.remove(place.content(version.data));
  if (auto removed = co_await std::move(content); !removed.ok())
    log::warn("unpublished content stays until the next start",
              {{"error", removed.error().message}});
}

net::Task<Result<std::unique_ptr<Reader>>> BlobWorkspaces::read(std::string team,
                                                                std::string workspace,
                                                                std::string path,
                                                                std::string version) {
  ATOLL_CO_TRY_ASSIGN(const Place place, place_of(team, std::move(workspace)));
  ATOLL_CO_TRY_ASSIGN(path, normalise_path(path));
  if (!version.empty() && !time_of_version(version))
    co_return make_error(Errc::invalid_argument, "not a version: " + version);
  // A version may be removed between the look at the list and the opening: then there is a newer.
  for (int attempt = 0;; ++attempt) {
    auto asking = versions_of(place, path);
    ATOLL_CO_TRY_ASSIGN(std::vector<Version> all, co_await std::move(asking));
    if (all.empty()) co_return no_file(path);
    auto chosen = std::prev(all.end());
    if (!version.empty()) {
      chosen = std::find_if(all.begin(), all.end(),
                            [&](const Version& v) { return v.file.version == version; });
      if (chosen == all.end()) co_return no_version(path, version);
    }
    auto opening = store_.get(place.content(chosen->data));
    auto content = co_await std::move(opening);
    if (!content.ok()) {
      if (content.error().code == Errc::not_found && attempt < 3) continue;
      if (content.error().code == Errc::not_found)
        co_return make_error(Errc::data_loss, "the content of " + path + " is missing");
      co_return std::move(content).error();
    }
    if ((*content)->size() != chosen->file.size)
      co_return make_error(Errc::data_loss, "the content of " + path + " is incomplete");
    co_return std::make_unique<VersionReader>(std::move(chosen->file), std::move(*content));
  }
}

net::Task<Result<EntryPage>> BlobWorkspaces::entries(std::string team, std::string workspace,
                                                     EntryQuery query) {
  ATOLL_CO_TRY_ASSIGN(const Place place, place_of(team, std::move(workspace)));
  ATOLL_CO_TRY_ASSIGN(const std::string folder, normalise_folder(query.prefix));
  std::string after;
  if (!query.after.empty()) {
    ATOLL_CO_TRY_ASSIGN(const std::string path, normalise_path(query.after));
    after = place.versions(path) + "~";  // behind all of its versions
  }
  EntryPage out;
  std::vector<File> group;  // versions of one path, oldest first
  const auto flush = [&] {
    if (group.empty()) return;
    for (auto file = group.rbegin(); file != group.rend(); ++file) {
      out.items.push_back(std::move(*file));
      if (!query.all_versions) break;
    }
    group.clear();
  };
  for (bool more = true; more;) {
    auto listing = store_.list(place.below(folder), after, kListPage);
    ATOLL_CO_TRY_ASSIGN(const blobs::Page page, co_await std::move(listing));
    for (const blobs::Blob& blob : page.items) {
      auto version = parse_entry(place, blob.key);
      if (!version) continue;
      if (!group.empty() && group.back().path != version->file.path) {
        const std::string last = group.back().path;
        flush();
        if (out.items.size() >= query.limit) {
          out.next = last;
          co_return out;
        }
      }
      group.push_back(std::move(version->file));
    }
    if (!page.items.empty()) after = page.items.back().key;
    more = page.more;
  }
  flush();
  co_return out;
}

net::Task<Result<std::vector<File>>> BlobWorkspaces::list(std::string team, std::string workspace,
                                                          std::string prefix) {
  EntryQuery query{.prefix = std::move(prefix), .limit = kMaxListed};
  auto listing = entries(std::move(team), std::move(workspace), std::move(query));
  ATOLL_CO_TRY_ASSIGN(EntryPage page, co_await std::move(listing));
  co_return std::move(page.items);
}

net::Task<Result<std::vector<File>>> BlobWorkspaces::versions(std::string team,
                                                              std::string workspace,
                                                              std::string path) {
  ATOLL_CO_TRY_ASSIGN(const Place place, place_of(team, std::move(workspace)));
  ATOLL_CO_TRY_ASSIGN(path, normalise_path(path));
  auto asking = versions_of(place, path);
  ATOLL_CO_TRY_ASSIGN(std::vector<Version> all, co_await std::move(asking));
  if (all.empty()) co_return no_file(path);
  std::vector<File> out;
  for (auto version = all.rbegin(); version != all.rend(); ++version)
    out.push_back(std::move(version->file));
  co_return out;
}

net::Task<Result<File>> BlobWorkspaces::restore(std::string team, std::string workspace,
                                                std::string path, std::string version) {
  if (version.empty()) co_return make_error(Errc::invalid_argument, "which version?");
  auto opening = read(team, workspace, path, std::move(version));
  ATOLL_CO_TRY_ASSIGN(std::unique_ptr<Reader> opened, co_await std::move(opening));
  const std::shared_ptr<Reader> reader = std::move(opened);
  auto writing = write(
      std::move(team), std::move(workspace), std::move(path),
      [reader](std::span<char> into) { return read_shared(reader, into); }, reader->file().size);
  co_return co_await std::move(writing);
}

net::Task<Result<void>> BlobWorkspaces::remove(std::string team, std::string workspace,
                                               std::string path) {
  ATOLL_CO_TRY_ASSIGN(const Place place, place_of(team, std::move(workspace)));
  ATOLL_CO_TRY_ASSIGN(path, normalise_path(path));
  auto taking = turn(place);
  ATOLL_CO_TRY_ASSIGN(const Turns::Turn mine, co_await std::move(taking));
  auto opening = account(place);
  ATOLL_CO_TRY_ASSIGN(const AccountPtr account, co_await std::move(opening));
  auto asking = versions_of(place, path);
  ATOLL_CO_TRY_ASSIGN(std::vector<Version> all, co_await std::move(asking));
  if (all.empty()) co_return no_file(path);
  auto removing = remove_versions(place, account, std::move(all), Rest::gone);
  co_return co_await std::move(removing);
}

}  // namespace atl::workspace
