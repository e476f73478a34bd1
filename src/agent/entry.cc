#include "agent/entry.h"

#include <limits.h>
#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <memory>

#include "agent/file_io.h"
#include "agent/paths.h"
#include "base/encoding.h"

namespace atl::agent {
namespace {

// The years 1 to 9999: what a Timestamp can say. A file may claim any time.
constexpr std::int64_t kFirstSecond = -62'135'596'800;
constexpr std::int64_t kLastSecond = 253'402'300'799;

filesystem::FileType type_of(mode_t mode) {
  if (S_ISREG(mode)) return filesystem::FILE_TYPE_FILE;
  if (S_ISDIR(mode)) return filesystem::FILE_TYPE_DIRECTORY;
  return filesystem::FILE_TYPE_UNSPECIFIED;
}

void fill_target(const std::string& path, filesystem::EntryInfo& out) {
  const std::unique_ptr<char, decltype(&::free)> resolved(::realpath(path.c_str(), nullptr),
                                                          &::free);
  struct stat target{};
  if (resolved == nullptr || ::stat(resolved.get(), &target) != 0) {
    out.set_symlink_target(to_valid_utf8(path));
    return;
  }
  out.set_symlink_target(to_valid_utf8(resolved.get()));
  out.set_type(type_of(target.st_mode));
  out.set_mode(target.st_mode & 0777);
}

}  // namespace

Result<void> read_entry(const std::string& path, const UserDb& users, filesystem::EntryInfo& out) {
  struct stat st{};
  if (::lstat(path.c_str(), &st) != 0) {
    return os_error(errno == ENOENT ? Errc::not_found : Errc::internal, "lstat", path, errno);
  }
  out.set_name(to_valid_utf8(base_name(path)));
  out.set_path(to_valid_utf8(path));
  out.set_size(st.st_size);
  out.set_permissions(permission_text(st.st_mode));
  out.set_owner(to_valid_utf8(users.user_name(st.st_uid)));
  out.set_group(to_valid_utf8(users.group_name(st.st_gid)));
  out.mutable_modified_time()->set_seconds(
      std::clamp<std::int64_t>(st.st_mtim.tv_sec, kFirstSecond, kLastSecond));
  out.mutable_modified_time()->set_nanos(std::int32_t(st.st_mtim.tv_nsec));
  if (S_ISLNK(st.st_mode)) {
    fill_target(path, out);
  } else {
    out.set_type(type_of(st.st_mode));
    out.set_mode(st.st_mode & 0777);
  }
  for (auto& [key, value] : read_metadata(path)) (*out.mutable_metadata())[key] = value;
  return {};
}

std::string permission_text(mode_t mode) {
  std::string text;
  // The order of the letters is the order of Go's mode bits, which clients were made for.
  if (S_ISDIR(mode)) text += 'd';
  if (S_ISLNK(mode)) text += 'L';
  if (S_ISBLK(mode) || S_ISCHR(mode)) text += 'D';
  if (S_ISFIFO(mode)) text += 'p';
  if (S_ISSOCK(mode)) text += 'S';
  if ((mode & S_ISUID) != 0) text += 'u';
  if ((mode & S_ISGID) != 0) text += 'g';
  if (S_ISCHR(mode)) text += 'c';
  if ((mode & S_ISVTX) != 0) text += 't';
  if (text.empty()) text = "-";
  static constexpr std::string_view kBits = "rwxrwxrwx";
  for (std::size_t i = 0; i < kBits.size(); ++i) {
    text += (mode & (1U << (kBits.size() - 1 - i))) != 0 ? kBits[i] : '-';
  }
  return text;
}

std::string to_valid_utf8(std::string_view bytes) {
  if (is_valid_utf8(bytes)) return std::string(bytes);
  std::string out;
  while (!bytes.empty()) {
    std::size_t length = 1;
    while (length <= 4 && length <= bytes.size() && !is_valid_utf8(bytes.substr(0, length))) {
      ++length;
    }
    if (length > 4 || length > bytes.size()) {
      out += "\xEF\xBF\xBD";
      length = 1;
    } else {
      out += bytes.substr(0, length);
    }
    bytes.remove_prefix(length);
  }
  return out;
}

}  // namespace atl::agent
