// BlobWorkspaces: workspaces in a BlobStore, and nowhere else: a server that starts anew, or
// another one on the same bucket, finds all of it there. names.h says how they are laid out.
//
// How a file is written: its content goes to the store under a name of its own while it is counted
// and hashed; then, in the workspace's turn, its version is published by one small blob, old
// versions beyond the limit are removed, and the figures are brought up to date. Whoever dies
// before that leaves the old version as it was; content that nothing names is removed by `sweep`.
//
// Figures (bytes, files) are counted once by listing and kept up to date in memory. With storage
// that servers share they are counted again after a minute (large ones later), so that there a
// quota may be exceeded by what others wrote meanwhile.
//
// Calls may come from any strand.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "store/blobs/blob_store.h"
#include "workspace/account.h"
#include "workspace/names.h"
#include "workspace/turns.h"
#include "workspace/workspaces.h"

namespace atl::workspace {

struct Info {
  std::string name;
  Quota quota;
  Usage usage;
  Timestamp created_at{};
};

struct EntryQuery {
  std::string prefix = "/";  // a folder, or a file
  bool all_versions = false;
  std::size_t limit = 1000;  // of versions; those of the last file are all there
  std::string after;         // a path, where the page before ended
};
struct EntryPage {
  std::vector<File> items;  // in the order of keys; versions of one file newest first
  std::string next;         // empty: that was all
};
struct NamePage {
  std::vector<std::string> names;
  bool more = false;
};

struct Skipped {
  std::string path;
  std::string reason;
};
struct Copied {
  std::vector<File> files;
  std::vector<Skipped> skipped;
};

class BlobWorkspaces final : public Workspaces {
 public:
  static constexpr std::chrono::seconds kPatience{60};  // with others who work on a workspace

  // What a team of this server is called in the storage, which servers with ids of their own may
  // share: its name. Any thread.
  using TeamName = std::function<std::string(const std::string& id)>;

  // `store` outlives it. `server` is this server's name in the storage, lower-case hex, kept over
  // restarts and used by no other. Without `team_name` teams are called what callers call them.
  BlobWorkspaces(blobs::BlobStore& store, std::string server, Quota defaults = {},
                 TeamName team_name = {});
  ~BlobWorkspaces() override;

  // Removes unfinished puts of an earlier life. Before the first call of another kind.
  net::Task<Result<void>> start();
  // Removes content that no version names, of earlier lives of this server, and of others after a
  // week. Beside other calls. How many.
  net::Task<Result<std::size_t>> sweep();

  net::Task<Result<NamePage>> names(std::string team, std::string after, std::size_t limit);
  // deadline_exceeded: it is busy for longer than `patience`.
  net::Task<Result<Info>> info(std::string team, std::string workspace,
                               std::chrono::milliseconds patience = kPatience);
  // Makes it if there is none. What is not given stays as it is.
  net::Task<Result<Info>> configure(std::string team, std::string workspace, QuotaChange change);
  // With all that is in it. not_found.
  net::Task<Result<void>> remove_workspace(std::string team, std::string workspace);

  net::Task<Result<EntryPage>> entries(std::string team, std::string workspace, EntryQuery query);
  // Of one file, newest first. not_found.
  net::Task<Result<std::vector<File>>> versions(std::string team, std::string workspace,
                                                std::string path);
  // A copy of an old version becomes the newest.
  net::Task<Result<File>> restore(std::string team, std::string workspace, std::string path,
                                  std::string version);
  // All files below a folder. How many; not_found: none.
  net::Task<Result<std::size_t>> remove_folder(std::string team, std::string workspace,
                                               std::string path);

  // As `save` and `load`, with what was left out. `workspace_path` empty: "/" and the last name of
  // the other; `sandbox_path` empty: that name in the home. A `version` is of one file.
  net::Task<Result<Copied>> save_all(std::string team, std::string workspace, client::Inside from,
                                     std::string sandbox_path, std::string workspace_path);
  net::Task<Result<Copied>> load_all(std::string team, std::string workspace,
                                     std::string workspace_path, std::string version,
                                     client::Inside to, std::string sandbox_path);

  // ---- Workspaces ----
  net::Task<Result<File>> write(std::string team, std::string workspace, std::string path,
                                client::Source source,
                                std::optional<std::uint64_t> length) override;
  net::Task<Result<std::unique_ptr<Reader>>> read(std::string team, std::string workspace,
                                                  std::string path, std::string version) override;
  net::Task<Result<std::vector<File>>> list(std::string team, std::string workspace,
                                            std::string prefix) override;
  // With all its versions.
  net::Task<Result<void>> remove(std::string team, std::string workspace,
                                 std::string path) override;
  net::Task<Result<std::vector<File>>> save(std::string team, std::string workspace,
                                            client::Inside from, std::string sandbox_path,
                                            std::string workspace_path) override;
  net::Task<Result<std::vector<File>>> load(std::string team, std::string workspace,
                                            std::string workspace_path, client::Inside to,
                                            std::string sandbox_path) override;

 private:
  using AccountPtr = std::shared_ptr<Account>;

  std::string stored_team(const std::string& team) const;
  // invalid_argument: the name.
  Result<Place> place_of(const std::string& team, std::string workspace) const;
  net::Task<Result<Turns::Turn>> turn(const Place& place,
                                      std::chrono::milliseconds limit = kPatience);
  // nullopt: there is none.
  net::Task<Result<std::optional<Settings>>> read_settings(Place place);
  // In the workspace's turn.
  net::Task<Result<AccountPtr>> account(Place place);
  net::Task<Result<AccountPtr>> account_in_turn(Place place,
                                                std::chrono::milliseconds limit = kPatience);
  net::Task<Result<void>> ensure_exists(Place place, AccountPtr account);
  // Completes `version`, which outlives the call; a failure needs `take_back`.
  net::Task<Result<File>> publish(Place place, AccountPtr account, Version& version);
  net::Task<void> take_back(Place place, Version version);
  // In the order given, oldest first: at no time does an old version look like the newest.
  enum class Rest { stays, gone };  // of the file
  net::Task<Result<void>> remove_versions(Place place, AccountPtr account,
                                          std::vector<Version> versions, Rest rest);
  net::Task<Result<std::vector<Version>>> versions_of(Place place, std::string path);
  AccountPtr& cached(const Place& place);

  blobs::BlobStore& store_;
  const std::string server_;
  const Quota defaults_;
  const TeamName team_name_;
  const Timestamp began_ = now();
  Turns turns_;
  std::mutex mutex_;
  std::map<Place, AccountPtr> accounts_;
};

}  // namespace atl::workspace
