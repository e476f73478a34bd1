// Files by descriptor: opening without following symbolic links, kernel files, sparse copies,
// removal of trees, locks.
//
// Paths below a directory descriptor are resolved by openat2 with RESOLVE_BENEATH |
// RESOLVE_NO_SYMLINKS: neither "..", nor a link, nor a magic link of /proc leads out or elsewhere.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "sys/fd.h"

namespace atl::sys {

// An absolute path that the administrator gave us or that the kernel defines.
Result<UniqueFd> open_trusted(const std::string& path, int flags, mode_t mode = 0);
// A path below `dir`, as said above. An empty path reopens the directory itself.
Result<UniqueFd> open_beneath(const UniqueFd& dir, const std::string& path, int flags,
                              mode_t mode = 0);

// At most `limit` bytes; a longer file is an error (out_of_range).
Result<std::string> read_all(const UniqueFd& file, std::size_t limit);
// Up to `size` bytes from `offset`; less at the end of the file.
Result<std::string> read_at(const UniqueFd& file, std::uint64_t offset, std::size_t size);
Result<std::string> read_beneath(const UniqueFd& dir, const std::string& path,
                                 std::size_t limit = 1 << 20);
Result<std::string> read_trusted(const std::string& path, std::size_t limit = 1 << 20);
// One write(2) of the whole text, as files of the kernel want it.
Result<void> write_value(const UniqueFd& file, std::string_view text);
Result<void> write_beneath(const UniqueFd& dir, const std::string& path, std::string_view text);
// Creates (never replaces) a file with content and mode; `owner` as uid and gid.
Result<void> create_file(const UniqueFd& dir, const std::string& path, std::string_view text,
                         mode_t mode, uid_t owner);

// The same for files that must never be seen half written: the name appears with the whole content
// or not at all, also if the writer dies. EEXIST if the name is taken.
Result<void> publish_file(const UniqueFd& dir, const std::string& name, std::string_view text,
                          mode_t mode);

enum class IfExists { fail, keep };
Result<void> make_dir(const UniqueFd& dir, const std::string& name, mode_t mode, IfExists existing);
Result<void> change_owner(const UniqueFd& dir, const std::string& name, uid_t owner,
                          gid_t group);                                     // not through links
Result<struct stat> stat_at(const UniqueFd& dir, const std::string& name);  // not through links
Result<struct stat> stat_of(const UniqueFd& file);
// Names in a directory, without "." and "..".
Result<std::vector<std::string>> list_dir(const UniqueFd& dir);
Result<void> remove_file(const UniqueFd& dir,
                         const std::string& name);                      // fine if it does not exist
Result<void> remove_dir(const UniqueFd& dir, const std::string& name);  // fine if it does not exist
// Removes `name` below `dir` with all that is in it; does not cross into other filesystems; fine if
// it does not exist.
Result<void> remove_tree(const UniqueFd& dir, const std::string& name);

Result<void> make_symlink(const UniqueFd& dir, const std::string& name, const std::string& target);
// A character device with exactly this mode.
Result<void> make_device(const UniqueFd& dir, const std::string& name, unsigned major,
                         unsigned minor, mode_t mode);
// Gives a file that was opened with O_TMPFILE its name.
Result<void> link_as(const UniqueFd& file, const UniqueFd& dir, const std::string& name);
// Another name for what `from` is, in one step. EEXIST if `to` is taken.
Result<void> rename_within(const UniqueFd& dir, const std::string& from, const std::string& to);
// The same, but `to` goes if it is taken.
Result<void> rename_over(const UniqueFd& dir, const std::string& from, const std::string& to);
Result<void> set_size(const UniqueFd& file, std::uint64_t bytes);
Result<void> set_mode(const UniqueFd& file, mode_t mode);
Result<void> set_times(const UniqueFd& file, const timespec& accessed, const timespec& modified);
// The same by name, for what has no descriptor of that kind: a socket. Follows links.
Result<void> set_mode_at(const UniqueFd& dir, const std::string& name, mode_t mode);
Result<void> flush_to_disk(const UniqueFd& file);
Result<void> write_at(const UniqueFd& file, std::uint64_t offset, std::string_view bytes);
// An exclusive flock(2) of the open file itself, which whoever holds a copy of the descriptor holds
// too: a loop device on it, for example. False: another open file of the same file has it.
Result<bool> try_lock(const UniqueFd& file);

struct Space {
  std::uint64_t used = 0;
  std::uint64_t total = 0;
  bool overlay = false;  // told by an overlay: the numbers are those of its upper layer
};
// Of the filesystem below an open file (O_PATH will do).
Result<Space> space_of(const UniqueFd& file);

enum class Presence { present, absent, unknown };
Presence presence_of(const std::string& path);
Result<void> random_bytes(std::span<std::byte> into);
bool is_executable(const std::string& path);
// /proc/PID/fd/N: a name for an open file that other programs of the same user can open while it is
// open here.
std::string path_of(const UniqueFd& file);

// Appends all of `from` to `to`.
Result<void> copy_content(const UniqueFd& from, const UniqueFd& to);
// Makes `to` (empty) a copy of `from` in which holes stay holes; shares the blocks where the
// filesystem can.
Result<void> copy_sparse(const UniqueFd& from, const UniqueFd& to);

// An exclusive flock(2), held until destruction. Held by another: failed_precondition.
class FileLock {
 public:
  // Locks the directory `name` below `dir` itself; makes it first if need be. Waits a little for a
  // holder that is going.
  static Result<FileLock> acquire_dir(const UniqueFd& dir, const std::string& name, mode_t mode,
                                      std::chrono::milliseconds at_most);
  const UniqueFd& fd() const { return file_; }

 private:
  explicit FileLock(UniqueFd file) : file_(std::move(file)) {}
  UniqueFd file_;
};

}  // namespace atl::sys
