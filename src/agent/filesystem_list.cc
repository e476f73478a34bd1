#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <vector>

#include "agent/entry.h"
#include "agent/filesystem_tree.h"
#include "agent/paths.h"
#include "agent/slice.h"

namespace atl::agent {
namespace {

struct CloseDir {
  void operator()(DIR* dir) const { ::closedir(dir); }
};

struct Level {
  std::string directory;  // where it really is
  std::string shown;      // what clients see
  std::vector<std::string> names;
  std::size_t next = 0;
};

// Sorted names of a directory, at most `limit` + 1 of them.
Result<std::vector<std::string>> names_in(const std::string& path, std::size_t limit) {
  const std::unique_ptr<DIR, CloseDir> dir(::opendir(path.c_str()));
  if (dir == nullptr) return os_error(Errc::internal, "open", path, errno);
  std::vector<std::string> names;
  while (names.size() <= limit) {
    errno = 0;
    const dirent* entry = ::readdir(dir.get());
    if (entry == nullptr) {
      if (errno != 0) return os_error(Errc::internal, "readdir", path, errno);
      break;
    }
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<std::string> resolve_root(const std::string& path) {
  const std::unique_ptr<char, decltype(&::free)> resolved(::realpath(path.c_str(), nullptr),
                                                          &::free);
  if (resolved == nullptr) {
    const int err = errno;
    if (err == ENOENT) {
      return os_error(Errc::not_found, "lstat", path, err).with("path not found");
    }
    if (err == ELOOP) {
      return Error{Errc::failed_precondition, err,
                   "cyclic symlink or chain >255 links at \"" + path + "\""};
    }
    return os_error(Errc::internal, "lstat", path, err).with("error resolving symlink");
  }
  struct stat st{};
  if (::stat(resolved.get(), &st) != 0) {
    return os_error(errno == ENOENT ? Errc::not_found : Errc::internal, "stat", path, errno)
        .with("path not found");
  }
  if (!S_ISDIR(st.st_mode)) {
    return make_error(Errc::invalid_argument, "path is not a directory: " + path);
  }
  return std::string(resolved.get());
}

Error too_many() {
  return make_error(Errc::resource_exhausted,
                    "the listing has more than " + std::to_string(kMaxListedEntries) + " entries");
}

}  // namespace

net::Task<Result<void>> list_tree(std::string path, std::uint32_t depth, const UserDb& users,
                                  filesystem::ListDirResponse& out) {
  ATOLL_CO_TRY_ASSIGN(std::string root, resolve_root(path));
  Slice slice;
  std::vector<Level> stack;
  Level top{root, clean_path(path), {}, 0};
  auto first = names_in(top.directory, kMaxListedEntries);
  if (!first.ok()) {
    co_return std::move(first).error().with("error reading directory " + path);
  }
  top.names = std::move(first).value();
  stack.push_back(std::move(top));
  while (!stack.empty()) {
    if (slice.due()) co_await slice.yield();
    Level& level = stack.back();
    if (level.next == level.names.size()) {
      stack.pop_back();
      continue;
    }
    const std::string& name = level.names[level.next++];
    const std::string real = join_path(level.directory, name);
    filesystem::EntryInfo entry;
    if (auto read = read_entry(real, users, entry); !read.ok()) {
      if (read.error().code == Errc::not_found) continue;  // vanished meanwhile
      co_return std::move(read).error().with("error reading directory " + level.shown);
    }
    const std::string shown = join_path(level.shown, name);
    entry.set_path(to_valid_utf8(shown));
    const bool enter = entry.type() == filesystem::FILE_TYPE_DIRECTORY &&
                       !entry.has_symlink_target() && stack.size() < depth;
    *out.add_entries() = std::move(entry);
    if (std::size_t(out.entries_size()) > kMaxListedEntries) co_return too_many();
    if (!enter) continue;
    auto names = names_in(real, kMaxListedEntries);
    if (!names.ok()) {
      const int err = names.error().sys_errno;
      if (err == ENOENT || err == ENOTDIR) continue;
      co_return std::move(names).error().with("error reading directory " + shown);
    }
    stack.push_back(Level{real, shown, std::move(names).value(), 0});
  }
  co_return Result<void>();
}

}  // namespace atl::agent
