#include "sys/files.h"

#include <dirent.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include <cerrno>
#include <memory>
#include <thread>

namespace atl::sys {
namespace {

constexpr int kMaxDepth = 512;

Result<void> remove_entries(UniqueFd dir, dev_t device, int depth);

Result<void> remove_entry(const UniqueFd& dir, const std::string& name, dev_t device, int depth) {
  if (::unlinkat(dir.get(), name.c_str(), 0) == 0 || errno == ENOENT) return {};
  if (errno != EISDIR && errno != EPERM) return errno_error(name);
  UniqueFd child(
      ::openat(dir.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!child) return errno_error(name);
  struct stat info{};
  if (::fstat(child.get(), &info) != 0) return errno_error(name);
  if (info.st_dev != device)
    return make_error(Errc::failed_precondition, name + " is on another filesystem");
  ATOLL_TRY(remove_entries(std::move(child), device, depth + 1));
  if (::unlinkat(dir.get(), name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT)
    return errno_error(name);
  return {};
}

Result<void> remove_entries(UniqueFd dir, dev_t device, int depth) {
  if (depth > kMaxDepth) return make_error(Errc::out_of_range, "directories nested too deep");
  ATOLL_TRY_ASSIGN(std::vector<std::string> names, list_dir(dir));
  for (const std::string& name : names) {
    ATOLL_TRY(remove_entry(dir, name, device, depth));
  }
  return {};
}

}  // namespace

Result<UniqueFd> open_trusted(const std::string& path, int flags, mode_t mode) {
  UniqueFd fd(::open(path.c_str(), flags | O_CLOEXEC, mode));
  if (!fd) return errno_error("open " + path);
  return fd;
}

Result<UniqueFd> open_beneath(const UniqueFd& dir, const std::string& path, int flags,
                              mode_t mode) {
  open_how how{};
  how.flags = std::uint64_t(std::uint32_t(flags | O_CLOEXEC));
  how.mode = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? mode : 0;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  // openat2 gives up with EAGAIN when a rename elsewhere made the walk ambiguous.
  for (int attempt = 0;; ++attempt) {
    const long fd =
        ::syscall(SYS_openat2, dir.get(), path.empty() ? "." : path.c_str(), &how, sizeof(how));
    if (fd >= 0) return UniqueFd(int(fd));
    if (errno != EAGAIN || attempt >= 16) return errno_error("open " + path);
  }
}

Result<std::string> read_all(const UniqueFd& file, std::size_t limit) {
  std::string out;
  char buffer[4096];
  for (;;) {
    const ssize_t n = ::read(file.get(), buffer, sizeof(buffer));
    if (n == 0) return out;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_error("read");
    if (out.size() + std::size_t(n) > limit) return make_error(Errc::out_of_range, "file too long");
    out.append(buffer, std::size_t(n));
  }
}

Result<std::string> read_at(const UniqueFd& file, std::uint64_t offset, std::size_t size) {
  std::string out(size, '\0');
  const ssize_t n = ::pread(file.get(), out.data(), size, off_t(offset));
  if (n < 0) return errno_error("pread");
  out.resize(std::size_t(n));
  return out;
}

Result<std::string> read_beneath(const UniqueFd& dir, const std::string& path, std::size_t limit) {
  ATOLL_TRY_ASSIGN(UniqueFd file, open_beneath(dir, path, O_RDONLY));
  return read_all(file, limit);
}

Result<std::string> read_trusted(const std::string& path, std::size_t limit) {
  ATOLL_TRY_ASSIGN(UniqueFd file, open_trusted(path, O_RDONLY));
  return read_all(file, limit);
}

Result<void> write_value(const UniqueFd& file, std::string_view text) {
  for (;;) {
    const ssize_t n = ::write(file.get(), text.data(), text.size());
    if (n == ssize_t(text.size())) return {};
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_error("write");
    return make_error(Errc::internal, "short write");
  }
}

Result<void> write_beneath(const UniqueFd& dir, const std::string& path, std::string_view text) {
  ATOLL_TRY_ASSIGN(UniqueFd file, open_beneath(dir, path, O_WRONLY));
  auto written = write_value(file, text);
  if (!written) return std::move(written).error().with(path);
  return {};
}

Result<void> create_file(const UniqueFd& dir, const std::string& path, std::string_view text,
                         mode_t mode, uid_t owner) {
  ATOLL_TRY_ASSIGN(UniqueFd file, open_beneath(dir, path, O_WRONLY | O_CREAT | O_EXCL, 0600));
  if (!text.empty()) {
    ATOLL_TRY(write_value(file, text));
  }
  if (::fchown(file.get(), owner, owner) != 0) return errno_error("chown " + path);
  if (::fchmod(file.get(), mode) != 0)
    return errno_error("chmod " + path);  // exact, whatever the umask
  return {};
}

Result<void> publish_file(const UniqueFd& dir, const std::string& name, std::string_view text,
                          mode_t mode) {
  ATOLL_TRY_ASSIGN(UniqueFd file, open_beneath(dir, "", O_TMPFILE | O_WRONLY, 0600));
  if (!text.empty()) {
    ATOLL_TRY(write_value(file, text));
  }
  if (::fchmod(file.get(), mode) != 0) return errno_error("chmod " + name);
  // By its name in procfs: AT_EMPTY_PATH needs a capability.
  const std::string unnamed = "/proc/self/fd/" + std::to_string(file.get());
  if (::linkat(AT_FDCWD, unnamed.c_str(), dir.get(), name.c_str(), AT_SYMLINK_FOLLOW) != 0)
    return errno_error("link " + name);
  return {};
}

Result<void> make_dir(const UniqueFd& dir, const std::string& name, mode_t mode,
                      IfExists existing) {
  if (::mkdirat(dir.get(), name.c_str(), mode) == 0) {
    ATOLL_TRY_ASSIGN(UniqueFd made, open_beneath(dir, name, O_RDONLY | O_DIRECTORY));
    if (::fchmod(made.get(), mode) != 0) return errno_error("chmod " + name);
    return {};
  }
  if (errno == EEXIST && existing == IfExists::keep) return {};
  return errno_error("mkdir " + name);
}

Result<void> change_owner(const UniqueFd& dir, const std::string& name, uid_t owner, gid_t group) {
  if (::fchownat(dir.get(), name.c_str(), owner, group, AT_SYMLINK_NOFOLLOW) != 0)
    return errno_error("chown " + name);
  return {};
}

Result<struct stat> stat_at(const UniqueFd& dir, const std::string& name) {
  struct stat info{};
  if (::fstatat(dir.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0)
    return errno_error("stat " + name);
  return info;
}

Result<struct stat> stat_of(const UniqueFd& file) {
  struct stat info{};
  if (::fstat(file.get(), &info) != 0) return errno_error("stat");
  return info;
}

Result<std::vector<std::string>> list_dir(const UniqueFd& dir) {
  // A descriptor of its own: fdopendir takes over the one it is given and moves its offset.
  UniqueFd own(::openat(dir.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!own) return errno_error("open directory");
  std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(own.get()), ::closedir);
  if (!stream) return errno_error("fdopendir");
  own.release();
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(stream.get());
    if (entry == nullptr) break;
    const std::string_view name(entry->d_name);
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) return errno_error("readdir");
  return names;
}

Result<void> remove_file(const UniqueFd& dir, const std::string& name) {
  if (::unlinkat(dir.get(), name.c_str(), 0) == 0 || errno == ENOENT) return {};
  return errno_error("unlink " + name);
}

Result<void> remove_dir(const UniqueFd& dir, const std::string& name) {
  if (::unlinkat(dir.get(), name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT) return {};
  return errno_error("rmdir " + name);
}

Result<void> remove_tree(const UniqueFd& dir, const std::string& name) {
  struct stat info{};
  if (::fstatat(dir.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return {};
    return errno_error("stat " + name);
  }
  return remove_entry(dir, name, info.st_dev, 0);
}

Result<void> make_symlink(const UniqueFd& dir, const std::string& name, const std::string& target) {
  if (::symlinkat(target.c_str(), dir.get(), name.c_str()) != 0)
    return errno_error("symlink " + name);
  return {};
}

Result<void> make_device(const UniqueFd& dir, const std::string& name, unsigned major,
                         unsigned minor, mode_t mode) {
  if (::mknodat(dir.get(), name.c_str(), S_IFCHR | mode, makedev(major, minor)) != 0)
    return errno_error("mknod " + name);
  if (::fchmodat(dir.get(), name.c_str(), mode, 0) != 0) return errno_error("chmod " + name);
  return {};
}

Result<void> link_as(const UniqueFd& file, const UniqueFd& dir, const std::string& name) {
  if (::linkat(file.get(), "", dir.get(), name.c_str(), AT_EMPTY_PATH) != 0)
    return errno_error("link " + name);
  return {};
}

Result<void> rename_within(const UniqueFd& dir, const std::string& from, const std::string& to) {
  if (::renameat2(dir.get(), from.c_str(), dir.get(), to.c_str(), RENAME_NOREPLACE) != 0)
    return errno_error("rename " + from);
  return {};
}

Result<void> rename_over(const UniqueFd& dir, const std::string& from, const std::string& to) {
  if (::renameat(dir.get(), from.c_str(), dir.get(), to.c_str()) != 0)
    return errno_error("rename " + from);
  return {};
}

Result<void> write_at(const UniqueFd& file, std::uint64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(file.get(), bytes.data(), bytes.size(), off_t(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_error("write");
    bytes.remove_prefix(std::size_t(n));
    offset += std::uint64_t(n);
  }
  return {};
}

Result<void> random_bytes(std::span<std::byte> into) {
  while (!into.empty()) {
    const ssize_t n = ::getrandom(into.data(), into.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_error("getrandom");
    into = into.subspan(std::size_t(n));
  }
  return {};
}

Result<void> set_size(const UniqueFd& file, std::uint64_t bytes) {
  if (::ftruncate(file.get(), off_t(bytes)) != 0) return errno_error("ftruncate");
  return {};
}

Result<void> set_mode(const UniqueFd& file, mode_t mode) {
  if (::fchmod(file.get(), mode) != 0) return errno_error("chmod");
  return {};
}

Result<void> set_times(const UniqueFd& file, const timespec& accessed, const timespec& modified) {
  const timespec times[2] = {accessed, modified};
  if (::futimens(file.get(), times) != 0) return errno_error("utimes");
  return {};
}

Result<bool> try_lock(const UniqueFd& file) {
  if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) return true;
  if (errno == EWOULDBLOCK) return false;
  return errno_error("flock");
}

Result<Space> space_of(const UniqueFd& file) {
  struct statfs info{};
  if (::fstatfs(file.get(), &info) != 0) return errno_error("fstatfs");
  const auto unit = std::uint64_t(info.f_bsize);
  Space out;
  out.total = std::uint64_t(info.f_blocks) * unit;
  out.used = std::uint64_t(info.f_blocks - info.f_bfree) * unit;
  out.overlay = info.f_type == OVERLAYFS_SUPER_MAGIC;
  return out;
}

Result<void> set_mode_at(const UniqueFd& dir, const std::string& name, mode_t mode) {
  if (::fchmodat(dir.get(), name.c_str(), mode, 0) != 0) return errno_error("fchmodat " + name);
  return {};
}

Result<void> flush_to_disk(const UniqueFd& file) {
  if (::fsync(file.get()) != 0) return errno_error("fsync");
  return {};
}

Presence presence_of(const std::string& path) {
  if (::access(path.c_str(), F_OK) == 0) return Presence::present;
  return errno == ENOENT ? Presence::absent : Presence::unknown;
}

bool is_executable(const std::string& path) { return ::access(path.c_str(), X_OK) == 0; }

std::string path_of(const UniqueFd& file) {
  return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(file.get());
}

Result<void> copy_content(const UniqueFd& from, const UniqueFd& to) {
  char buffer[1 << 16];
  for (;;) {
    const ssize_t n = ::read(from.get(), buffer, sizeof(buffer));
    if (n == 0) return {};
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_error("read");
    ATOLL_TRY(write_value(to, std::string_view(buffer, std::size_t(n))));
  }
}

namespace {

Result<void> copy_range(const UniqueFd& from, const UniqueFd& to, off_t begin, off_t end) {
  std::string buffer(256 << 10, '\0');
  while (begin < end) {
    const std::size_t most = std::min(buffer.size(), std::size_t(end - begin));
    const ssize_t n = ::pread(from.get(), buffer.data(), most, begin);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_error("read");
    if (n == 0) return make_error(Errc::data_loss, "the file shrank while it was copied");
    ATOLL_TRY(write_at(to, std::uint64_t(begin), std::string_view(buffer.data(), std::size_t(n))));
    begin += n;
  }
  return {};
}

}  // namespace

Result<void> copy_sparse(const UniqueFd& from, const UniqueFd& to) {
  if (::ioctl(to.get(), FICLONE, from.get()) == 0) return {};
  ATOLL_TRY_ASSIGN(struct stat info, stat_of(from));
  if (::ftruncate(to.get(), info.st_size) != 0) return errno_error("ftruncate");
  off_t position = 0;
  while (position < info.st_size) {
    off_t begin = ::lseek(from.get(), position, SEEK_DATA);
    if (begin < 0 && errno == ENXIO) break;  // only a hole is left
    if (begin < 0) return errno_error("lseek");
    const off_t end = ::lseek(from.get(), begin, SEEK_HOLE);
    if (end < 0) return errno_error("lseek");
    off_t target = begin;
    while (begin < end) {
      const ssize_t n =
          ::copy_file_range(from.get(), &begin, to.get(), &target, std::size_t(end - begin), 0);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EXDEV) {  // on two filesystems
        ATOLL_TRY(copy_range(from, to, begin, end));
        break;
      }
      if (n < 0) return errno_error("copy_file_range");
      if (n == 0) return make_error(Errc::data_loss, "the file shrank while it was copied");
    }
    position = end;
  }
  return {};
}

Result<FileLock> FileLock::acquire_dir(const UniqueFd& dir, const std::string& name, mode_t mode,
                                       std::chrono::milliseconds at_most) {
  const auto deadline = std::chrono::steady_clock::now() + at_most;
  for (;;) {
    ATOLL_TRY(make_dir(dir, name, mode, IfExists::keep));
    auto opened = open_beneath(dir, name, O_RDONLY | O_DIRECTORY);
    if (!opened && opened.error().sys_errno != ENOENT) return std::move(opened).error();
    if (opened && ::flock(opened->get(), LOCK_EX | LOCK_NB) == 0) {
      // The holder before us may have removed the directory between our open and our lock.
      ATOLL_TRY_ASSIGN(struct stat mine, stat_of(*opened));
      auto there = stat_at(dir, name);
      if (there && there->st_ino == mine.st_ino && there->st_dev == mine.st_dev)
        return FileLock(std::move(*opened));
    } else if (opened && errno != EWOULDBLOCK) {
      return errno_error("flock " + name);
    }
    if (std::chrono::steady_clock::now() >= deadline) {
      return make_error(Errc::failed_precondition, name + " is held by another process");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace atl::sys
