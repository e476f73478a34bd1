// Recursive removal by descriptors, so that no path gets too long and no link is followed.
//
// The way down is a stack of directories. Only the deepest kOpenLevels are held open; a closed one
// is found again from its child by
// "..", and its identity is compared, because the sandbox may move directories while we work.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <set>
#include <vector>

#include "agent/file_io.h"
#include "agent/filesystem_tree.h"
#include "agent/paths.h"
#include "agent/slice.h"

namespace atl::agent {
namespace {

constexpr std::size_t kOpenLevels = 32;
constexpr std::size_t kBatch = 1024;

struct CloseDir {
  void operator()(DIR* dir) const { ::closedir(dir); }
};

struct Level {
  Fd fd;  // empty when closed to save descriptors
  dev_t device = 0;
  ino_t inode = 0;
  std::string name;  // in the level above
  std::vector<std::string> pending;
  std::set<std::string> failed;  // stays; not tried again
};

class Remover {
 public:
  explicit Remover(std::string path) : path_(std::move(path)) {}

  // The first failure; the walk goes on past it.
  void note(int err, const std::string& name) {
    if (first_error_ == 0) {
      first_error_ = err;
      failed_at_ = name;
    }
  }
  bool failed() const { return first_error_ != 0; }
  Error error() const {
    return os_error(Errc::internal, "unlinkat", failed_at_.empty() ? path_ : failed_at_,
                    first_error_);
  }

  // Unlinks a non-directory, or goes down into a directory (then stack_ has grown).
  void visit(int parent, const std::string& name) {
    if (::unlinkat(parent, name.c_str(), 0) == 0 || errno == ENOENT) return;
    const int unlink_error = errno;
    // EISDIR on Linux; EPERM on some filesystems, which may also mean just that.
    if (unlink_error != EISDIR && unlink_error != EPERM) return give_up(name, unlink_error);
    Fd fd(::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!fd) {
      if (errno == ENOENT) return;
      return give_up(name, errno == ENOTDIR || errno == ELOOP ? unlink_error : errno);
    }
    struct stat st{};
    if (::fstat(fd.get(), &st) != 0) return give_up(name, errno);
    if (stack_.size() >= kOpenLevels) stack_[stack_.size() - kOpenLevels].fd.reset();
    stack_.push_back(Level{std::move(fd), st.st_dev, st.st_ino, name, {}, {}});
  }

  // One step of work on the deepest directory.
  void step() {
    Level& level = stack_.back();
    if (!level.pending.empty()) {
      const std::string name = std::move(level.pending.back());
      level.pending.pop_back();
      return visit(level.fd.get(), name);
    }
    if (!read_batch(level)) return leave();
  }

  bool busy() const { return !stack_.empty(); }

 private:
  void give_up(const std::string& name, int err) {
    note(err, name_for_people(name));
    if (!stack_.empty()) stack_.back().failed.insert(name);
  }

  std::string name_for_people(const std::string& name) const {
    return stack_.empty() ? path_ : name;
  }

  // False when nothing more can be done in that directory.
  bool read_batch(Level& level) {
    const int again = ::openat(level.fd.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const std::unique_ptr<DIR, CloseDir> dir(again < 0 ? nullptr : ::fdopendir(again));
    if (dir == nullptr) {
      const int err = errno;
      if (again >= 0) ::close(again);
      note(err, level.name);
      return false;
    }
    while (level.pending.size() < kBatch) {
      const dirent* entry = ::readdir(dir.get());
      if (entry == nullptr) break;
      const std::string_view name = entry->d_name;
      if (name == "." || name == "..") continue;
      if (!level.failed.empty() && level.failed.contains(std::string(name))) continue;
      level.pending.emplace_back(name);
    }
    // A directory full of undeletable files would make every pass longer.
    return !level.pending.empty() && level.failed.size() < kBatch;
  }

  // Back to the level above, removing the directory that was left.
  void leave() {
    Level done = std::move(stack_.back());
    stack_.pop_back();
    int parent = AT_FDCWD;
    if (!stack_.empty()) {
      Level& above = stack_.back();
      if (!above.fd && !reopen(above, done.fd.get())) {
        note(EAGAIN, done.name);
        stack_.clear();  // the tree was moved under our feet: no safe way up
        return;
      }
      parent = above.fd.get();
    }
    if (::unlinkat(parent, done.name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT) {
      give_up(done.name, errno);
    }
  }

  static bool reopen(Level& above, int child) {
    Fd fd(::openat(child, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    struct stat st{};
    if (!fd || ::fstat(fd.get(), &st) != 0 || st.st_dev != above.device ||
        st.st_ino != above.inode) {
      return false;
    }
    above.fd = std::move(fd);
    return true;
  }

  std::string path_;
  std::vector<Level> stack_;
  int first_error_ = 0;
  std::string failed_at_;
};

bool is_root_directory(const std::string& path) {
  struct stat given{};
  struct stat root{};
  return ::lstat(path.c_str(), &given) == 0 && ::stat("/", &root) == 0 &&
         given.st_dev == root.st_dev && given.st_ino == root.st_ino;
}

}  // namespace

net::Task<Result<void>> remove_tree(std::string path) {
  // The kernel refuses to remove the root itself; without this check that would come out after
  // everything below it is gone.
  if (is_root_directory(path)) co_return os_error(Errc::internal, "unlinkat", path, EBUSY);
  // A trailing slash would follow a final link.
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  Remover remover(path);
  Slice slice;
  remover.visit(AT_FDCWD, path);
  while (remover.busy()) {
    if (slice.due()) co_await slice.yield();
    remover.step();
  }
  if (remover.failed()) co_return remover.error();
  co_return Result<void>();
}

}  // namespace atl::agent
