// Whole workspaces: made, looked at, removed; and what earlier lives left in the storage.
#include <unordered_set>

#include "base/log.h"
#include "store/blobs/key.h"
#include "workspace/blob_workspaces.h"

namespace atl::workspace {
namespace {

constexpr std::size_t kListPage = 1000;
constexpr std::size_t kMaxSuspects = 50'000;  // looked up at a time
// Of other servers: so long no upload takes.
constexpr std::chrono::hours kForeign{7 * 24};

Error no_workspace(const std::string& name) {
  return make_error(Errc::not_found, "there is no workspace '" + name + "'");
}

// Removes from `suspects` what a version of the workspace names.
net::Task<Result<void>> clear_named(blobs::BlobStore& store, Place place,
                                    std::unordered_set<std::string>& suspects) {
  std::string after;
  for (bool more = true; more;) {
    auto listing = store.list(place.entries(), after, kListPage);
    ATOLL_CO_TRY_ASSIGN(const blobs::Page page, co_await std::move(listing));
    for (const blobs::Blob& blob : page.items) {
      if (const auto version = parse_entry(place, blob.key)) suspects.erase(version->data);
    }
    if (!page.items.empty()) after = page.items.back().key;
    more = page.more;
  }
  co_return Result<void>();
}

net::Task<Result<std::size_t>> remove_unnamed(blobs::BlobStore& store, Place place,
                                              std::unordered_set<std::string> suspects) {
  auto clearing = clear_named(store, place, suspects);
  ATOLL_CO_TRY(co_await std::move(clearing));
  for (const std::string& data : suspects) {
    auto removing = store.remove(place.content(data));
    ATOLL_CO_TRY(co_await std::move(removing));
  }
  co_return suspects.size();
}

// All versions with their content. Content that no version names stays: somebody may be about to
// publish it.
net::Task<Result<void>> remove_versions_of(blobs::BlobStore& store, Place place) {
  for (;;) {
    auto listing = store.list(place.entries(), {}, kListPage);
    ATOLL_CO_TRY_ASSIGN(const blobs::Page page, co_await std::move(listing));
    for (const blobs::Blob& blob : page.items) {
      auto entry = store.remove(blob.key);
      ATOLL_CO_TRY(co_await std::move(entry));
      const auto version = parse_entry(place, blob.key);
      if (!version) continue;
      auto content = store.remove(place.content(version->data));
      ATOLL_CO_TRY(co_await std::move(content));
    }
    if (!page.more) co_return Result<void>();
  }
}

}  // namespace

net::Task<Result<void>> BlobWorkspaces::start() {
  const std::string mine = server_ + "-";
  auto cleaning = store_.clean_up([mine, began = began_](std::string_view key) {
    const auto data = data_of_key(key);
    return data && data->starts_with(mine) && *time_of_data(*data) < began;
  });
  co_return co_await std::move(cleaning);
}

net::Task<Result<std::size_t>> BlobWorkspaces::sweep() {
  std::size_t removed = 0;
  std::optional<Place> place;
  std::unordered_set<std::string> suspects;
  std::string after;
  for (bool more = true; more;) {
    auto listing = store_.list("d/", after, kListPage);
    ATOLL_CO_TRY_ASSIGN(const blobs::Page page, co_await std::move(listing));
    for (const blobs::Blob& blob : page.items) {
      const auto its = place_of_content(blob.key);
      const auto data = data_of_key(blob.key);
      if (!its || !data) continue;
      if (!suspects.empty() && (*place != *its || suspects.size() >= kMaxSuspects)) {
        auto removing = remove_unnamed(store_, *place, std::exchange(suspects, {}));
        ATOLL_CO_TRY_ASSIGN(const std::size_t count, co_await std::move(removing));
        removed += count;
      }
      place = its;
      const Timestamp at = *time_of_data(*data);
      if (data->starts_with(server_ + "-") ? at < began_ : at < began_ - kForeign)
        suspects.insert(*data);
    }
    if (!page.items.empty()) after = page.items.back().key;
    more = page.more;
  }
  if (!suspects.empty()) {
    auto removing = remove_unnamed(store_, *place, std::move(suspects));
    ATOLL_CO_TRY_ASSIGN(const std::size_t count, co_await std::move(removing));
    removed += count;
  }
  co_return removed;
}

net::Task<Result<NamePage>> BlobWorkspaces::names(std::string team, std::string after,
                                                  std::size_t limit) {
  const std::string prefix = "m/" + blobs::encode_segment(stored_team(team)) + "/";
  std::string key;
  if (!after.empty()) {
    ATOLL_CO_TRY(check_name(after));
    key = prefix + blobs::encode_segment(after);
  }
  auto listing = store_.list(prefix, key, limit);
  ATOLL_CO_TRY_ASSIGN(const blobs::Page page, co_await std::move(listing));
  NamePage out{{}, page.more};
  for (const blobs::Blob& blob : page.items) {
    if (auto name = blobs::decode_segment(std::string_view(blob.key).substr(prefix.size())))
      out.names.push_back(std::move(*name));
  }
  co_return out;
}

net::Task<Result<Info>> BlobWorkspaces::info(std::string team, std::string workspace,
                                             std::chrono::milliseconds patience) {
  ATOLL_CO_TRY_ASSIGN(const Place place, place_of(team, std::move(workspace)));
  auto opening = account_in_turn(place, patience);
  ATOLL_CO_TRY_ASSIGN(const AccountPtr account, co_await std::move(opening));
  if (!account->exists()) co_return no_workspace(place.name);
  const Settings settings = account->settings();
  co_return Info{place.name, settings.quota, account->usage(), settings.created_at};
}

net::Task<Result<Info>> BlobWorkspaces::configure(std::string team, std::string workspace,
                                                  QuotaChange change) {
  ATOLL_CO_TRY_ASSIGN(const Place place, place_of(team, std::move(workspace)));
  auto taking = turn(place);
  ATOLL_CO_TRY_ASSIGN(const Turns::Turn mine, co_await std::move(taking));
  auto opening = account(place);
  ATOLL_CO_TRY_ASSIGN(const AccountPtr account, co_await std::move(opening));
  // What is not given stays as whoever set it last has it, on whichever server.
  auto asking = read_settings(place);
  ATOLL_CO_TRY_ASSIGN(std::optional<Settings> there, co_await std::move(asking));
  account->set(std::move(there));
  const bool existed = account->exists();
  Settings settings = account->settings();
  if (!existed) settings.created_at = now();
  ATOLL_CO_TRY_ASSIGN(const Quota quota, changed(settings.quota, change));
  if (!existed || quota != settings.quota) {
    settings.quota = quota;
    auto putting = store_.put_text(place.settings(), encode_settings(settings));
    ATOLL_CO_TRY(co_await std::move(putting));
    account->set(settings);
  }
  co_return Info{place.name, quota, account->usage(), settings.created_at};
}

net::Task<Result<void>> BlobWorkspaces::remove_workspace(std::string team, std::string workspace) {
  ATOLL_CO_TRY_ASSIGN(const Place place, place_of(team, std::move(workspace)));
  auto taking = turn(place);
  ATOLL_CO_TRY_ASSIGN(const Turns::Turn mine, co_await std::move(taking));
  auto opening = account(place);
  ATOLL_CO_TRY_ASSIGN(const AccountPtr account, co_await std::move(opening));
  if (!account->exists()) co_return no_workspace(place.name);
  // Versions first, and the settings last: cut off half-way it can be repeated, and nothing that
  // was removed comes back with a new workspace of the name. A file that is being written is the
  // first one of a new workspace.
  auto removing = remove_versions_of(store_, place);
  ATOLL_CO_TRY(co_await std::move(removing));
  auto forgetting = store_.remove(place.settings());
  ATOLL_CO_TRY(co_await std::move(forgetting));
  account->recount(std::nullopt, {});
  co_return Result<void>();
}

net::Task<Result<std::size_t>> BlobWorkspaces::remove_folder(std::string team,
                                                             std::string workspace,
                                                             std::string path) {
  ATOLL_CO_TRY_ASSIGN(const std::string folder, normalise_folder(path));
  auto listing = list(team, workspace, folder);
  ATOLL_CO_TRY_ASSIGN(const std::vector<File> files, co_await std::move(listing));
  if (files.empty())
    co_return make_error(Errc::not_found, "there is nothing at " + folder + " in the workspace");
  std::size_t removed = 0;
  for (const File& file : files) {
    auto removing = remove(team, workspace, file.path);
    auto done = co_await std::move(removing);
    if (done.ok()) ++removed;
    if (!done.ok() && done.error().code != Errc::not_found) co_return std::move(done).error();
  }
  co_return removed;
}

}  // namespace atl::workspace
