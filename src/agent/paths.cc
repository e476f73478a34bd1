#include "agent/paths.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/encoding.h"

namespace atl::agent {
namespace {

Result<void> make_one(const std::string& path, const User& user) {
  if (::mkdir(path.c_str(), 0755) != 0) {
    // A process of the sandbox may have made it since it was found missing.
    struct stat st{};
    if (errno == EEXIST && ::stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode)) return {};
    return os_error(Errc::internal, "failed to create directory: mkdir", path, errno);
  }
  // Through a descriptor that follows no link: what is chowned is a directory at that name, not
  // what somebody swaps in.
  const int fd = ::open(path.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return os_error(Errc::internal, "failed to chown directory: open", path, errno);
  const int failed = ::fchownat(fd, "", user.uid, user.gid, AT_EMPTY_PATH) != 0 ? errno : 0;
  ::close(fd);
  if (failed != 0)
    return os_error(Errc::internal, "failed to chown directory: chown", path, failed);
  return {};
}

}  // namespace

std::string os_error_text(int err) {
  std::string text = std::strerror(err);
  if (text.size() > 1 && std::islower(static_cast<unsigned char>(text[1]))) {
    text[0] = char(std::tolower(static_cast<unsigned char>(text[0])));
  }
  return text;
}

Error os_error(Errc code, std::string_view operation, std::string_view path, int err) {
  std::string message(operation);
  message.append(" ").append(path).append(": ").append(os_error_text(err));
  return Error{code, err, std::move(message)};
}

std::string clean_path(std::string_view path) {
  const bool rooted = !path.empty() && path[0] == '/';
  std::vector<std::string_view> kept;
  while (!path.empty()) {
    const std::size_t end = path.find('/');
    const std::string_view part = path.substr(0, end);
    path.remove_prefix(end == std::string_view::npos ? path.size() : end + 1);
    if (part.empty() || part == ".") continue;
    if (part != "..") {
      kept.push_back(part);
    } else if (!kept.empty() && kept.back() != "..") {
      kept.pop_back();
    } else if (!rooted) {
      kept.push_back(part);
    }
  }
  std::string out = rooted ? "/" : "";
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (i > 0) out += '/';
    out += kept[i];
  }
  return out.empty() ? "." : out;
}

std::string parent_path(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return clean_path(path.substr(0, slash + 1));
}

std::string_view base_name(std::string_view path) {
  if (path.empty()) return ".";
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  if (path == "/") return path;
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

std::string join_path(std::string_view directory, std::string_view name) {
  std::string out(directory);
  if (out.empty() || out.back() != '/') out += '/';
  out += name;
  return out;
}

Result<std::string> resolve_path(std::string_view path, const User& user,
                                 std::string_view default_workdir) {
  if (path.find('\0') != std::string_view::npos) {
    return make_error(Errc::invalid_argument, "path contains a NUL byte");
  }
  if (!is_valid_utf8(path)) return make_error(Errc::invalid_argument, "path is not valid UTF-8");
  if (path.size() >= PATH_MAX) {
    return make_error(Errc::invalid_argument,
                      "path is longer than " + std::to_string(PATH_MAX - 1) + " bytes");
  }
  if (path.empty()) path = default_workdir;
  if (!path.empty() && path[0] == '~') {
    if (path.size() > 1 && path[1] != '/') {
      return make_error(Errc::invalid_argument, "failed to expand path '" + std::string(path) +
                                                    "' for user '" + user.name +
                                                    "': cannot expand user-specific home dir");
    }
    path.remove_prefix(1);
    return clean_path(join_path(user.home, path));
  }
  if (!path.empty() && path[0] == '/') return std::string(path);
  return clean_path(join_path(user.home, path));
}

Result<void> ensure_dirs(std::string_view path, const User& user) {
  std::size_t at = 0;
  while (at < path.size()) {
    // [at, end) is the next component; `prefix` reaches from the root to its end.
    const std::size_t start = path.find_first_not_of('/', at);
    if (start == std::string_view::npos) break;
    std::size_t end = path.find('/', start);
    if (end == std::string_view::npos) end = path.size();
    at = end;
    const std::string prefix(path.substr(0, end));
    const std::string_view name = path.substr(start, end - start);
    struct stat st{};
    if (::stat(prefix.c_str(), &st) == 0) {
      if (!S_ISDIR(st.st_mode)) {
        return Error{Errc::internal, ENOTDIR, "path is a file: " + prefix};
      }
      continue;
    }
    if (errno != ENOENT) {
      return os_error(Errc::internal, "failed to stat directory: stat", prefix, errno);
    }
    if (name == "." || name == "..") {
      return os_error(Errc::internal, "failed to stat directory: stat", prefix, ENOENT);
    }
    ATOLL_TRY(make_one(prefix, user));
  }
  return {};
}

}  // namespace atl::agent
