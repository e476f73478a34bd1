#include "agent/watch.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <unordered_set>

#include "agent/paths.h"
#include "agent/slice.h"

namespace atl::agent {
namespace {

constexpr std::uint32_t kMask = IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM | IN_ATTRIB | IN_MODIFY |
                                IN_DELETE | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR;

// NFS, CIFS, SMB, SMB2, FUSE: changes made by others there raise no events.
constexpr std::array<std::uint32_t, 5> kNetworkMagic = {0x6969, 0xFF534D42, 0x517B, 0xFE534D42,
                                                        0x65735546};

struct Child {
  std::string name;
  bool directory = false;
};

struct CloseDir {
  void operator()(DIR* dir) const { ::closedir(dir); }
};

// What is in a directory; nothing if it is gone.
std::vector<Child> children_of(const std::string& path) {
  std::vector<Child> children;
  const std::unique_ptr<DIR, CloseDir> dir(::opendir(path.c_str()));
  if (dir == nullptr) return children;
  while (const dirent* entry = ::readdir(dir.get())) {
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    bool directory = entry->d_type == DT_DIR;
    if (entry->d_type == DT_UNKNOWN) {
      struct stat st{};
      directory = ::fstatat(::dirfd(dir.get()), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                  S_ISDIR(st.st_mode);
    }
    children.push_back({std::string(name), directory});
  }
  std::sort(children.begin(), children.end(),
            [](const Child& a, const Child& b) { return a.name < b.name; });
  return children;
}

std::string below(const std::string& directory, const std::string& name) {
  return directory.empty() ? name : directory + "/" + name;
}

bool is_below(std::string_view path, std::string_view directory) {
  return path == directory || (path.size() > directory.size() && path.starts_with(directory) &&
                               path[directory.size()] == '/');
}

}  // namespace

net::Task<Result<std::unique_ptr<Watcher>>> Watcher::create(std::string path, WatchDepth depth,
                                                            NetworkMounts mounts) {
  struct stat st{};
  if (::stat(path.c_str(), &st) != 0) {
    const Errc code = errno == ENOENT ? Errc::not_found : Errc::internal;
    co_return os_error(code, "stat", path, errno).with("path " + path + " not found");
  }
  if (!S_ISDIR(st.st_mode)) {
    co_return make_error(Errc::invalid_argument, "path " + path + " not a directory");
  }
  struct statfs fs{};
  if (mounts == NetworkMounts::refuse && ::statfs(path.c_str(), &fs) == 0 &&
      std::find(kNetworkMagic.begin(), kNetworkMagic.end(), std::uint32_t(fs.f_type)) !=
          kNetworkMagic.end()) {
    co_return make_error(Errc::invalid_argument,
                         "cannot watch path on network filesystem: " + path);
  }
  Fd inotify(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!inotify) {
    const int err = errno;
    co_return Error{Errc::internal, err, "error creating watcher: " + os_error_text(err)};
  }
  std::unique_ptr<Watcher> watcher(new Watcher(std::move(inotify), std::move(path), depth));
  ATOLL_CO_TRY(watcher->add_watch(""));
  if (depth == WatchDepth::tree) {
    ATOLL_CO_TRY(co_await watcher->add_existing_tree());
  }
  co_return watcher;
}

std::string Watcher::absolute(const std::string& relative) const {
  return relative.empty() ? path_ : join_path(path_, relative);
}

std::string Watcher::path_of(const WatchEvent& event) const {
  return event.name == "." ? path_ : clean_path(join_path(path_, event.name));
}

Result<int> Watcher::add_watch(const std::string& relative) {
  // The watched path itself may be a link; inside of the tree links are not followed.
  const std::uint32_t mask = kMask | (relative.empty() ? 0U : std::uint32_t(IN_DONT_FOLLOW));
  const int wd = ::inotify_add_watch(inotify_.get(), absolute(relative).c_str(), mask);
  if (wd < 0) {
    return os_error(Errc::internal, "error adding path to watcher:", absolute(relative), errno);
  }
  directories_[wd] = relative;
  return wd;
}

net::Task<Result<void>> Watcher::add_existing_tree() {
  Slice slice;
  std::vector<std::string> open = {""};
  while (!open.empty()) {
    const std::string directory = std::move(open.back());
    open.pop_back();
    for (const Child& child : children_of(absolute(directory))) {
      if (slice.due()) co_await slice.yield();
      if (!child.directory) continue;
      std::string relative = below(directory, child.name);
      if (auto added = add_watch(relative); !added.ok()) {
        const int err = added.error().sys_errno;
        if (err == ENOENT || err == ENOTDIR) continue;  // vanished or replaced meanwhile
        co_return std::move(added).error();
      }
      open.push_back(std::move(relative));
    }
  }
  co_return Result<void>();
}

Result<void> Watcher::drain() {
  if (failure_) return *failure_;
  if (auto read = read_queue(); !read.ok()) failure_ = std::move(read).error();
  while (!failure_ && !queue_.empty()) {
    const Record record = std::move(queue_.front());
    queue_.pop_front();
    process(record);
  }
  if (failure_) return *failure_;
  return {};
}

std::vector<WatchEvent> Watcher::take() {
  std::vector<WatchEvent> events(std::make_move_iterator(events_.begin()),
                                 std::make_move_iterator(events_.end()));
  events_.clear();
  return events;
}

Result<void> Watcher::read_queue() {
  alignas(inotify_event) char buffer[64 * 1024];
  while (true) {
    const ssize_t n = ::read(inotify_.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return {};
    if (n <= 0) {
      return Error{Errc::internal, errno, "error reading watcher: " + os_error_text(errno)};
    }
    for (const char* at = buffer; at < buffer + n;) {
      inotify_event event{};
      std::memcpy(&event, at, sizeof event);
      const char* name = at + sizeof event;
      queue_.push_back({event.wd, event.mask, event.cookie,
                        event.len > 0 ? std::string(name, ::strnlen(name, event.len)) : ""});
      at += sizeof event + event.len;
    }
    if (queue_.size() > kMaxBuffered) {
      return make_error(Errc::internal, "watcher: too many events to keep up with");
    }
  }
}

void Watcher::process(const Record& record) {
  if ((record.mask & IN_Q_OVERFLOW) != 0) {
    failure_ = make_error(Errc::internal, "watcher: event queue overflow");
    return;
  }
  settle_departed(record);
  const auto directory = directories_.find(record.wd);
  if (directory == directories_.end()) return;  // a watch that was given up
  if ((record.mask & IN_IGNORED) != 0) {
    directories_.erase(directory);
    return;
  }
  if (record.name.empty()) {
    // About the directory itself. Its parent reports the same for all but the watched one.
    if (directory->second.empty()) emit_mask(".", record.mask);
    return;
  }
  const std::string relative = below(directory->second, record.name);
  const bool is_directory = (record.mask & IN_ISDIR) != 0 && depth_ == WatchDepth::tree;
  if (is_directory && (record.mask & IN_MOVED_FROM) != 0) {
    departed_ = Departed{record.cookie, relative};
  }
  if (is_directory && (record.mask & (IN_CREATE | IN_MOVED_TO)) != 0) {
    const bool moved = (record.mask & IN_MOVED_TO) != 0;
    if (moved && departed_ && departed_->cookie == record.cookie) {
      rename_tree(departed_->path, relative);
      departed_.reset();
      emit_mask(relative, record.mask);
      return;
    }
    directory_appeared(relative, moved);
    return;
  }
  emit_mask(relative, record.mask);
}

// A departed directory came back under another name if the very next record says so; anything else
// means that it left the tree.
void Watcher::settle_departed(const Record& record) {
  if (!departed_) return;
  if ((record.mask & IN_MOVED_TO) != 0 && record.cookie == departed_->cookie) return;
  // MOVE_SELF of the directory itself comes between or after the two.
  if ((record.mask & IN_MOVE_SELF) != 0) return;
  forget_tree(departed_->path);
  departed_.reset();
}

void Watcher::forget_tree(const std::string& relative) {
  for (auto it = directories_.begin(); it != directories_.end();) {
    if (!it->second.empty() && is_below(it->second, relative)) {
      ::inotify_rm_watch(inotify_.get(), it->first);  // fails only if the kernel dropped it already
      it = directories_.erase(it);
    } else {
      ++it;
    }
  }
}

void Watcher::rename_tree(const std::string& from, const std::string& to) {
  for (auto& [wd, relative] : directories_) {
    if (!relative.empty() && is_below(relative, from)) relative = to + relative.substr(from.size());
  }
}

void Watcher::directory_appeared(const std::string& relative, bool moved) {
  const auto added = add_watch(relative);
  emit(relative, filesystem::EVENT_TYPE_CREATE);
  // Gone again, or replaced by something else: its own records tell the rest.
  if (!added.ok()) {
    const int err = added.error().sys_errno;
    if (err != ENOENT && err != ENOTDIR) failure_ = added.error();
    return;
  }
  if (!moved) return report_contents(relative, *added);
  // What a moved tree contains is not new; it only has to be watched.
  std::vector<std::string> open = {relative};
  while (!open.empty()) {
    const std::string directory = std::move(open.back());
    open.pop_back();
    for (const Child& child : children_of(absolute(directory))) {
      if (!child.directory) continue;
      std::string inner = below(directory, child.name);
      if (add_watch(inner).ok()) open.push_back(std::move(inner));
    }
  }
}

void Watcher::report_contents(const std::string& relative, int wd) {
  const std::vector<Child> children = children_of(absolute(relative));
  if (children.empty()) return;
  if (auto read = read_queue(); !read.ok()) {
    failure_ = std::move(read).error();
    return;
  }
  std::unordered_set<std::string> told;
  std::unordered_set<std::string> written;
  for (const Record& record : queue_) {
    if (record.wd != wd) continue;
    if ((record.mask & (IN_CREATE | IN_MOVED_TO)) != 0) told.insert(record.name);
    if ((record.mask & IN_MODIFY) != 0) written.insert(record.name);
  }
  for (const Child& child : children) {
    if (failure_) return;
    if (told.contains(child.name)) continue;
    const std::string inner = below(relative, child.name);
    if (child.directory) {
      directory_appeared(inner, false);
      continue;
    }
    emit(inner, filesystem::EVENT_TYPE_CREATE);
    struct stat st{};
    if (!written.contains(child.name) && ::lstat(absolute(inner).c_str(), &st) == 0 &&
        S_ISREG(st.st_mode) && st.st_size > 0) {
      emit(inner, filesystem::EVENT_TYPE_WRITE);
    }
  }
}

void Watcher::emit_mask(const std::string& name, std::uint32_t mask) {
  if ((mask & (IN_CREATE | IN_MOVED_TO)) != 0) emit(name, filesystem::EVENT_TYPE_CREATE);
  if ((mask & (IN_MOVED_FROM | IN_MOVE_SELF)) != 0) emit(name, filesystem::EVENT_TYPE_RENAME);
  if ((mask & IN_ATTRIB) != 0) emit(name, filesystem::EVENT_TYPE_CHMOD);
  if ((mask & IN_MODIFY) != 0) emit(name, filesystem::EVENT_TYPE_WRITE);
  if ((mask & (IN_DELETE | IN_DELETE_SELF)) != 0) emit(name, filesystem::EVENT_TYPE_REMOVE);
}

void Watcher::emit(std::string name, filesystem::EventType type) {
  WatchEvent event{std::move(name), type};
  // The kernel merges equal records that stand next to each other unread; reading early must not
  // undo that.
  if (!events_.empty() && events_.back() == event) return;
  if (events_.size() >= kMaxBuffered) {
    failure_ = make_error(Errc::internal, "watcher: too many events that nobody took");
    return;
  }
  events_.push_back(std::move(event));
}

}  // namespace atl::agent
