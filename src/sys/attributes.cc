#include "sys/attributes.h"

#include <fcntl.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <climits>

namespace atl::sys {
namespace {

// The calls for attributes take no O_PATH descriptor; the link in procfs leads to the file itself.
std::string name_of(const UniqueFd& file) { return "/proc/self/fd/" + std::to_string(file.get()); }

constexpr std::size_t kMaxValue = 65536;  // XATTR_SIZE_MAX, XATTR_LIST_MAX

}  // namespace

Result<std::optional<std::string>> get_attribute(const UniqueFd& file, const std::string& name) {
  std::string value(256, '\0');
  for (;;) {
    const ssize_t n = ::getxattr(name_of(file).c_str(), name.c_str(), value.data(), value.size());
    if (n >= 0) {
      value.resize(std::size_t(n));
      return std::optional<std::string>(std::move(value));
    }
    if (errno == ENODATA || errno == ENOTSUP) return std::optional<std::string>();
    if (errno != ERANGE || value.size() >= kMaxValue) return errno_error("attribute " + name);
    value.resize(kMaxValue);
  }
}

Result<std::vector<std::string>> list_attributes(const UniqueFd& file) {
  std::string names(1024, '\0');
  for (;;) {
    const ssize_t n = ::listxattr(name_of(file).c_str(), names.data(), names.size());
    if (n < 0 && errno == ENOTSUP) return std::vector<std::string>();
    if (n < 0 && errno == ERANGE && names.size() < kMaxValue) {
      names.resize(kMaxValue);
      continue;
    }
    if (n < 0) return errno_error("list attributes");
    std::vector<std::string> out;
    for (std::size_t at = 0; at < std::size_t(n); at += out.back().size() + 1)
      out.emplace_back(names.c_str() + at);
    return out;
  }
}

Result<void> set_attribute(const UniqueFd& file, const std::string& name, std::string_view value) {
  if (::setxattr(name_of(file).c_str(), name.c_str(), value.data(), value.size(), 0) != 0)
    return errno_error("set attribute " + name);
  return {};
}

Result<void> give_owner(const UniqueFd& file, const struct stat& info) {
  if (::fchownat(file.get(), "", info.st_uid, info.st_gid, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) !=
      0)
    return errno_error("chown");
  return {};
}

Result<void> give_mode_and_times(const UniqueFd& file, const struct stat& info) {
  if (!S_ISLNK(info.st_mode) && ::chmod(name_of(file).c_str(), info.st_mode & 07777) != 0)
    return errno_error("chmod");
  const timespec times[2] = {info.st_atim, info.st_mtim};
  // With AT_EMPTY_PATH a link itself is meant.
  if (::utimensat(file.get(), "", times, AT_EMPTY_PATH) != 0) return errno_error("utimensat");
  return {};
}

Result<void> make_node(const UniqueFd& dir, const std::string& name, mode_t type, dev_t device) {
  if (::mknodat(dir.get(), name.c_str(), (type & S_IFMT) | 0600, device) != 0)
    return errno_error("mknod " + name);
  return {};
}

Result<std::string> read_link(const UniqueFd& link) {
  std::string target(PATH_MAX, '\0');
  const ssize_t n = ::readlinkat(link.get(), "", target.data(), target.size());
  if (n < 0) return errno_error("readlink");
  target.resize(std::size_t(n));
  return target;
}

}  // namespace atl::sys
