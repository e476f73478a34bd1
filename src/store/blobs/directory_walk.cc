#include "store/blobs/directory_walk.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

namespace atl::blobs {
namespace {

struct Name {
  std::string order;  // a directory's has a '/' at its end, as in the keys below it
  bool directory() const { return order.back() == '/'; }
};

Result<std::vector<Name>> read_names(int dir, std::string_view only) {
  std::vector<Name> out;
  // A descriptor of its own: the position in a directory belongs to the open file.
  const int fd = ::openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errno_error("open a directory of blobs");
  DIR* stream = ::fdopendir(fd);
  if (stream == nullptr) {
    const int err = errno;
    ::close(fd);
    return errno_error("read a directory of blobs", err);
  }
  errno = 0;
  while (const dirent* entry = ::readdir(stream)) {
    const std::string_view name = entry->d_name;
    if (name.front() == '.' || !name.starts_with(only)) continue;
    bool directory = entry->d_type == DT_DIR;
    if (entry->d_type == DT_UNKNOWN) {
      struct stat st{};
      directory =
          ::fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
    }
    out.push_back({std::string(name) + (directory ? "/" : "")});
    errno = 0;
  }
  const int err = errno;
  ::closedir(stream);
  if (err != 0) return errno_error("read a directory of blobs", err);
  std::sort(out.begin(), out.end(), [](const Name& a, const Name& b) { return a.order < b.order; });
  return out;
}

class Walk {
 public:
  Walk(std::string prefix, std::string after, std::size_t limit)
      : prefix_(std::move(prefix)), after_(std::move(after)), limit_(limit) {}

  // `at` is the key of the directory, with its '/'.
  Result<void> visit(int dir, const std::string& at, std::string_view only) {
    ATOLL_TRY_ASSIGN(const std::vector<Name> names, read_names(dir, only));
    for (const Name& name : names) {
      const std::string key = at + name.order;
      if (name.directory()) {
        // All of its keys are before `after`.
        if (key < after_ && !after_.starts_with(key)) continue;
        ATOLL_TRY(enter(dir, name.order, key));
      } else if (key > after_) {
        ATOLL_TRY(take(dir, name.order, key));
      }
      if (page_.more) break;
    }
    return {};
  }

  Page finish() && { return std::move(page_); }

 private:
  Result<void> enter(int dir, const std::string& name, const std::string& key) {
    const sys::UniqueFd below(
        ::openat(dir, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
    if (!below) {
      if (errno == ENOENT) return {};  // removed meanwhile
      return errno_error("open a directory of blobs");
    }
    return visit(below.get(), key, {});
  }

  Result<void> take(int dir, const std::string& name, const std::string& key) {
    struct stat st{};
    if (::fstatat(dir, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno == ENOENT) return {};
      return errno_error("look at a blob");
    }
    if (page_.items.size() == limit_) {
      page_.more = true;
      return {};
    }
    page_.items.push_back({key, std::uint64_t(st.st_size)});
    return {};
  }

  const std::string prefix_;
  const std::string after_;
  const std::size_t limit_;
  Page page_;
};

}  // namespace

Result<Page> list_files(const sys::UniqueFd& top, const std::string& prefix,
                        const std::string& after, std::size_t limit) {
  // Straight to the directory that holds all of them.
  const std::size_t slash = prefix.rfind('/');
  const std::string base = slash == std::string::npos ? "" : prefix.substr(0, slash + 1);
  const std::string only = prefix.substr(base.size());
  const sys::UniqueFd dir(::openat(top.get(), base.empty() ? "." : base.c_str(),
                                   O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!dir) {
    if (errno == ENOENT || errno == ENOTDIR) return Page{};
    return errno_error("open a directory of blobs");
  }
  Walk walk(prefix, after, limit);
  ATOLL_TRY(walk.visit(dir.get(), base, only));
  return std::move(walk).finish();
}

}  // namespace atl::blobs
