#include "agent/file_io.h"

#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <vector>

#include "agent/paths.h"
#include "base/encoding.h"

namespace atl::agent {
namespace {

constexpr std::size_t kMaxXattrList = 64 * 1024;  // XATTR_LIST_MAX of Linux
constexpr std::size_t kMaxXattrValue = 64 * 1024;

Error io_error(std::string_view what, int err) {
  return Error{is_disk_full(err) ? Errc::resource_exhausted : Errc::internal, err,
               std::string(what) + ": " + os_error_text(err)};
}

// Names that begin with the prefix. `List` and `Get` are listxattr/getxattr on a path or on a
// descriptor.
template <class List>
std::vector<std::string> metadata_names(List list) {
  std::vector<std::string> names;
  char small[1024];
  std::vector<char> large;
  char* data = small;
  ssize_t size = list(small, sizeof small);
  if (size < 0 && errno == ERANGE) {
    large.resize(kMaxXattrList);
    data = large.data();
    size = list(large.data(), large.size());
  }
  std::string_view rest(data, size > 0 ? std::size_t(size) : 0);
  while (!rest.empty()) {
    const std::string_view name = rest.substr(0, rest.find('\0'));
    rest.remove_prefix(std::min(name.size() + 1, rest.size()));
    if (name.size() > kMetadataPrefix.size() && name.starts_with(kMetadataPrefix)) {
      names.emplace_back(name);
    }
  }
  return names;
}

template <class Get>
std::optional<std::string> attribute_value(Get get) {
  char small[1024];
  ssize_t size = get(small, sizeof small);
  if (size >= 0) return std::string(small, std::size_t(size));
  if (errno != ERANGE) return std::nullopt;
  std::string large(kMaxXattrValue, '\0');
  size = get(large.data(), large.size());
  if (size < 0) return std::nullopt;
  large.resize(std::size_t(size));
  return large;
}

template <class List, class Get>
Metadata collect(List list, Get get) {
  Metadata found;
  for (const std::string& name : metadata_names(list)) {
    auto value =
        attribute_value([&](char* into, std::size_t size) { return get(name, into, size); });
    std::string key = name.substr(kMetadataPrefix.size());
    if (value && is_valid_utf8(key) && is_valid_utf8(*value)) {
      found.emplace(std::move(key), std::move(*value));
    }
  }
  return found;
}

}  // namespace

bool is_disk_full(int err) { return err == ENOSPC || err == EDQUOT; }

Result<std::size_t> read_file(int fd, std::span<char> into) {
  while (true) {
    const ssize_t n = ::read(fd, into.data(), into.size());
    if (n >= 0) return std::size_t(n);
    if (errno != EINTR) return io_error("read", errno);
  }
}

Result<std::size_t> read_file_at(int fd, std::span<char> into, std::uint64_t offset) {
  while (true) {
    const ssize_t n = ::pread(fd, into.data(), into.size(), off_t(offset));
    if (n >= 0) return std::size_t(n);
    if (errno != EINTR) return io_error("read", errno);
  }
}

Result<void> write_file(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io_error("write", errno);
    bytes.remove_prefix(std::size_t(n));
  }
  return {};
}

Metadata read_metadata(const std::string& path) {
  return collect(
      [&](char* into, std::size_t size) { return ::listxattr(path.c_str(), into, size); },
      [&](const std::string& name, char* into, std::size_t size) {
        return ::getxattr(path.c_str(), name.c_str(), into, size);
      });
}

Metadata read_metadata(int fd) {
  return collect([&](char* into, std::size_t size) { return ::flistxattr(fd, into, size); },
                 [&](const std::string& name, char* into, std::size_t size) {
                   return ::fgetxattr(fd, name.c_str(), into, size);
                 });
}

Result<void> replace_metadata(int fd, const Metadata& wanted) {
  const auto names =
      metadata_names([&](char* into, std::size_t size) { return ::flistxattr(fd, into, size); });
  for (const std::string& name : names) {
    if (wanted.contains(name.substr(kMetadataPrefix.size()))) continue;
    if (::fremovexattr(fd, name.c_str()) != 0 && errno != ENODATA && errno != EOPNOTSUPP) {
      return io_error("remove metadata", errno);
    }
  }
  for (const auto& [key, value] : wanted) {
    const std::string name = std::string(kMetadataPrefix) + key;
    const auto current = attribute_value(
        [&](char* into, std::size_t size) { return ::fgetxattr(fd, name.c_str(), into, size); });
    if (current == value) continue;
    if (::fsetxattr(fd, name.c_str(), value.data(), value.size(), 0) != 0) {
      if (errno == EOPNOTSUPP) return {};
      return io_error("set metadata", errno);
    }
  }
  return {};
}

}  // namespace atl::agent
