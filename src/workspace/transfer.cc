// Between workspaces and sandboxes: files and folders, streamed, one after the other.
//
// Each file is one write: it shows its old version until it is whole, and what was copied before a
// failure stays. Links inside a folder are not followed: what they lead to may be anywhere in the
// sandbox. All that the sandbox says is untrusted: names are checked like those of any client, and
// the tree that it shows is bounded.
#include <algorithm>

#include "workspace/blob_workspaces.h"

namespace atl::workspace {
namespace {

constexpr std::size_t kMaxFiles = 10'000;
constexpr std::size_t kMaxFolders = 10'000;
constexpr std::size_t kMaxTreeDepth = 32;
constexpr std::size_t kMaxSkipped = 1000;  // that are reported one by one

struct Found {
  std::string path;      // inside the sandbox
  std::string relative;  // to the folder
};

struct Tree {
  std::vector<Found> files;
  std::vector<Skipped> skipped;
  void skip(const std::string& path, std::string reason) {
    if (skipped.size() < kMaxSkipped) skipped.push_back({path, std::move(reason)});
  }
};

Error too_much(const char* what, std::size_t limit) {
  return make_error(Errc::invalid_argument, "the folder has more than " + std::to_string(limit) +
                                                " " + what + ". Save parts of it");
}

std::string last_name(std::string_view path) {
  while (!path.empty() && path.back() == '/') path.remove_suffix(1);
  return std::string(path.substr(path.rfind('/') + 1));
}

std::string joined(const std::string& folder, const std::string& relative) {
  return folder.ends_with('/') ? folder + relative : folder + "/" + relative;
}

// A name that a sandbox gave, as one component.
bool is_component(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos;
}

struct Folder {
  std::string path;
  std::string relative;  // with '/' at its end, or empty
  std::size_t depth = 0;
};

net::Task<Result<Tree>> walk(client::Inside from, std::string top) {
  Tree tree;
  std::vector<Folder> waiting{{std::move(top), "", 1}};
  std::size_t folders = 1;
  while (!waiting.empty()) {
    const Folder folder = std::move(waiting.back());
    waiting.pop_back();
    auto listing = client::list_directory(from, folder.path);
    ATOLL_CO_TRY_ASSIGN(const std::vector<client::Entry> entries, co_await std::move(listing));
    for (const client::Entry& entry : entries) {
      const std::string path = joined(folder.path, entry.name);
      if (!is_component(entry.name)) {
        tree.skip(path, "not a file name");
      } else if (!entry.symlink_target.empty() || entry.type == client::EntryType::symlink) {
        tree.skip(path, "a symbolic link");
      } else if (entry.type == client::EntryType::file) {
        if (tree.files.size() == kMaxFiles) co_return too_much("files", kMaxFiles);
        tree.files.push_back({path, folder.relative + entry.name});
      } else if (entry.type == client::EntryType::directory) {
        if (folder.depth == kMaxTreeDepth) {
          tree.skip(path, "too deep");
          continue;
        }
        if (++folders > kMaxFolders) co_return too_much("folders", kMaxFolders);
        waiting.push_back({path, folder.relative + entry.name + "/", folder.depth + 1});
      } else {
        tree.skip(path, "not a regular file");
      }
    }
  }
  std::sort(tree.files.begin(), tree.files.end(),
            [](const Found& a, const Found& b) { return a.relative < b.relative; });
  co_return tree;
}

net::Task<Result<std::size_t>> read_download(std::shared_ptr<client::Download> download,
                                             std::span<char> into) {
  auto reading = download->read_some(into);
  co_return co_await std::move(reading);
}

net::Task<Result<std::size_t>> read_version(std::shared_ptr<Reader> reader, std::span<char> into) {
  auto reading = reader->read_some(into);
  co_return co_await std::move(reading);
}

net::Task<Result<File>> save_file(Workspaces& workspaces, std::string team, std::string workspace,
                                  client::Inside from, std::string sandbox_path, std::string path) {
  auto opening = client::Download::open(std::move(from), std::move(sandbox_path));
  ATOLL_CO_TRY_ASSIGN(client::Download opened, co_await std::move(opening));
  auto download = std::make_shared<client::Download>(std::move(opened));
  const std::optional<std::uint64_t> size = download->size();
  auto writing = workspaces.write(
      std::move(team), std::move(workspace), std::move(path),
      [download](std::span<char> into) { return read_download(download, into); }, size);
  co_return co_await std::move(writing);
}

net::Task<Result<File>> load_file(Workspaces& workspaces, std::string team, std::string workspace,
                                  std::string path, std::string version, client::Inside to,
                                  std::string sandbox_path) {
  auto opening =
      workspaces.read(std::move(team), std::move(workspace), std::move(path), std::move(version));
  ATOLL_CO_TRY_ASSIGN(std::unique_ptr<Reader> opened, co_await std::move(opening));
  const std::shared_ptr<Reader> reader = std::move(opened);
  auto sending = client::upload(
      std::move(to), std::move(sandbox_path),
      [reader](std::span<char> into) { return read_version(reader, into); }, reader->file().size);
  ATOLL_CO_TRY(co_await std::move(sending));
  co_return reader->file();
}

Result<void> check_sandbox_path(const std::string& path) {
  if (path.empty()) return make_error(Errc::invalid_argument, "invalid path: it is empty");
  if (path.find('\0') != std::string::npos || path.size() > 4096)
    return make_error(Errc::invalid_argument, "invalid path inside the sandbox");
  return {};
}

}  // namespace

net::Task<Result<Copied>> BlobWorkspaces::save_all(std::string team, std::string workspace,
                                                   client::Inside from, std::string sandbox_path,
                                                   std::string workspace_path) {
  ATOLL_CO_TRY(check_name(workspace));
  ATOLL_CO_TRY(check_sandbox_path(sandbox_path));
  if (workspace_path.empty()) workspace_path = "/" + last_name(sandbox_path);
  auto asking = client::stat_file(from, sandbox_path);
  ATOLL_CO_TRY_ASSIGN(const client::Entry entry, co_await std::move(asking));
  if (entry.type != client::EntryType::file && entry.type != client::EntryType::directory) {
    co_return make_error(Errc::invalid_argument, sandbox_path + " is neither a file nor a folder");
  }
  Copied out;
  if (entry.type == client::EntryType::file) {
    if (workspace_path.ends_with('/')) workspace_path += last_name(sandbox_path);
    auto saving = save_file(*this, team, workspace, from, sandbox_path, workspace_path);
    ATOLL_CO_TRY_ASSIGN(File file, co_await std::move(saving));
    out.files.push_back(std::move(file));
    co_return out;
  }
  ATOLL_CO_TRY_ASSIGN(const std::string folder, normalise_folder(workspace_path));
  auto walking = walk(from, sandbox_path);
  ATOLL_CO_TRY_ASSIGN(Tree tree, co_await std::move(walking));
  for (const Found& found : tree.files) {
    auto target = normalise_path(joined(folder, found.relative));
    if (!target.ok()) {
      tree.skip(found.path, target.error().message);
      continue;
    }
    auto saving = save_file(*this, team, workspace, from, found.path, std::move(*target));
    auto saved = co_await std::move(saving);
    if (saved.ok()) {
      out.files.push_back(std::move(*saved));
    } else if (saved.error().code == Errc::not_found ||
               saved.error().code == Errc::permission_denied) {
      tree.skip(found.path, saved.error().message);  // gone meanwhile, or not to be read
    } else {
      co_return std::move(saved).error().with("save " + found.path);
    }
  }
  out.skipped = std::move(tree.skipped);
  co_return out;
}

net::Task<Result<Copied>> BlobWorkspaces::load_all(std::string team, std::string workspace,
                                                   std::string workspace_path, std::string version,
                                                   client::Inside to, std::string sandbox_path) {
  ATOLL_CO_TRY_ASSIGN(const Place place, place_of(team, workspace));
  ATOLL_CO_TRY_ASSIGN(const std::string path, normalise_folder(workspace_path));
  if (sandbox_path.empty()) sandbox_path = path == "/" ? "." : last_name(path);
  ATOLL_CO_TRY(check_sandbox_path(sandbox_path));
  Copied out;
  std::vector<Version> versions;
  if (path != "/" && !workspace_path.ends_with('/')) {
    auto asking = versions_of(place, path);
    ATOLL_CO_TRY_ASSIGN(versions, co_await std::move(asking));
  }
  if (!versions.empty()) {
    if (sandbox_path.ends_with('/')) sandbox_path += last_name(path);
    auto loading = load_file(*this, team, workspace, path, version, to, sandbox_path);
    ATOLL_CO_TRY_ASSIGN(File file, co_await std::move(loading));
    out.files.push_back(std::move(file));
    co_return out;
  }
  EntryQuery query{.prefix = path, .limit = kMaxFiles};
  auto listing = entries(team, workspace, std::move(query));
  ATOLL_CO_TRY_ASSIGN(const EntryPage page, co_await std::move(listing));
  const std::string below = path == "/" ? "/" : path + "/";
  for (const File& file : page.items) {
    if (!file.path.starts_with(below)) continue;  // a file of the folder's own name
    if (!version.empty())
      co_return make_error(Errc::invalid_argument,
                           "a version is of one file, and " + path + " is a folder");
    const std::string relative = file.path.substr(below.size());
    auto loading =
        load_file(*this, team, workspace, file.path, {}, to, joined(sandbox_path, relative));
    auto loaded = co_await std::move(loading);
    if (!loaded.ok()) co_return std::move(loaded).error().with("load " + file.path);
    out.files.push_back(std::move(*loaded));
  }
  if (out.files.empty())
    co_return make_error(Errc::not_found, "there is nothing at " + path + " in the workspace");
  if (!page.next.empty()) co_return too_much("files", kMaxFiles);
  co_return out;
}

net::Task<Result<std::vector<File>>> BlobWorkspaces::save(std::string team, std::string workspace,
                                                          client::Inside from,
                                                          std::string sandbox_path,
                                                          std::string workspace_path) {
  auto saving = save_all(std::move(team), std::move(workspace), std::move(from),
                         std::move(sandbox_path), std::move(workspace_path));
  ATOLL_CO_TRY_ASSIGN(Copied copied, co_await std::move(saving));
  co_return std::move(copied.files);
}

net::Task<Result<std::vector<File>>> BlobWorkspaces::load(std::string team, std::string workspace,
                                                          std::string workspace_path,
                                                          client::Inside to,
                                                          std::string sandbox_path) {
  auto loading = load_all(std::move(team), std::move(workspace), std::move(workspace_path), {},
                          std::move(to), std::move(sandbox_path));
  ATOLL_CO_TRY_ASSIGN(Copied copied, co_await std::move(loading));
  co_return std::move(copied.files);
}

}  // namespace atl::workspace
