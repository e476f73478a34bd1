#include "cli/home.h"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace atl::cli {
namespace {

Result<void> ensure_dir(const std::string& path, unsigned mode, ServerUser owner) {
  if (::mkdir(path.c_str(), mode) != 0 && errno != EEXIST) return errno_error("make " + path);
  const int fd = ::open(path.c_str(), O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_RDONLY);
  if (fd < 0) return errno_error("open " + path);
  Result<void> result;
  if (::geteuid() == 0 && (::fchown(fd, owner.uid, owner.gid) != 0 || ::fchmod(fd, mode) != 0)) {
    result = errno_error("set the owner of " + path);
  }
  ::close(fd);
  return result;
}

}  // namespace

Result<ServerUser> find_server_user() {
  if (::geteuid() != 0) return ServerUser{::geteuid(), ::getegid()};
  const passwd* entry = ::getpwnam("atoll");
  if (entry == nullptr) {
    return make_error(Errc::failed_precondition,
                      "the system user 'atoll' does not exist. FIX: useradd --system --user-group "
                      "--no-create-home atoll");
  }
  return ServerUser{entry->pw_uid, entry->pw_gid};
}

Home Home::at(std::string path) { return Home(std::move(path)); }

Result<Home> Home::open(std::string path, ServerUser owner) {
  std::error_code ec;
  std::filesystem::create_directories(path, ec);
  if (ec) return errno_error("make the home " + path, ec.value());
  const ServerUser root{0, 0};
  ATOLL_TRY(ensure_dir(path, 0755, root));
  ATOLL_TRY(ensure_dir(path + "/templates", 0755, root));
  ATOLL_TRY(ensure_dir(path + "/tools", 0755, root));
  ATOLL_TRY(ensure_dir(path + "/sandboxes", 0700, root));
  ATOLL_TRY(ensure_dir(path + "/snapshots", 0700, root));
  ATOLL_TRY(ensure_dir(path + "/state", 0700, owner));
  ATOLL_TRY(ensure_dir(path + "/workspaces", 0700, owner));
  ATOLL_TRY(ensure_dir(path + "/keys", 0700, owner));
  ATOLL_TRY(ensure_dir(path + "/logs", 0755, owner));
  return Home(std::move(path));
}

std::string Home::templates() const {
  const char* shared = std::getenv("ATOLL_TEMPLATES");
  return shared != nullptr && *shared != '\0' ? shared : path_ + "/templates";
}

std::string Home::tools() const {
  const char* shared = std::getenv("ATOLL_TOOLS");
  return shared != nullptr && *shared != '\0' ? shared : path_ + "/tools";
}

std::string default_home(const std::string& option) {
  std::string path = option;
  if (path.empty()) {
    const char* env = std::getenv("ATOLL_HOME");
    path = env != nullptr && *env != '\0' ? env : "/var/lib/atoll";
  }
  std::error_code ec;
  const auto absolute = std::filesystem::absolute(path, ec);
  std::string out = (ec ? std::filesystem::path(path) : absolute).lexically_normal().string();
  while (out.size() > 1 && out.back() == '/') out.pop_back();
  return out;
}

Result<std::string> find_program(const std::string& name) {
  std::error_code ec;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", ec);
  if (ec) return errno_error("find this program", ec.value());
  const auto dir = self.parent_path();
  // Installed side by side, or as the build lays them out: cmd/atoll/atoll,
  // cmd/atoll-warden/atoll-warden.
  for (const auto& candidate : {dir / name, dir.parent_path() / name / name}) {
    if (::access(candidate.c_str(), X_OK) == 0) return candidate.string();
  }
  return make_error(Errc::not_found, name + " is missing beside " + self.string());
}

Result<std::string> find_kernels() {
  std::error_code ec;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", ec);
  if (ec) return errno_error("find this program", ec.value());
  const auto dir = self.parent_path();
  for (const auto& candidate : {dir.parent_path() / "lib" / "kernels", dir / "kernels"}) {
    if (std::filesystem::is_directory(candidate, ec)) return candidate.string();
  }
  return make_error(Errc::not_found, "lib/kernels is missing beside " + self.string());
}

Result<void> become(ServerUser user) {
  if (::geteuid() == 0) {
    if (user.uid == 0)
      return make_error(Errc::failed_precondition, "the server must not run as root");
    if (::setgroups(0, nullptr) != 0 || ::setresgid(user.gid, user.gid, user.gid) != 0 ||
        ::setresuid(user.uid, user.uid, user.uid) != 0) {
      return errno_error("become the user atoll");
    }
    if (::setuid(0) == 0)
      return make_error(Errc::internal, "root could be taken back after dropping it");
  }
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return errno_error("no_new_privs");
  return {};
}

Result<void> make_owned_dir(const std::string& path, ServerUser owner) {
  struct stat st{};
  if (::stat(path.c_str(), &st) == 0) return {};
  return ensure_dir(path, 0700, owner);
}

Result<std::string> read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return errno_error("read " + path);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

Result<void> write_file(const std::string& path, std::string_view text, unsigned mode, Sync sync) {
  const std::string temp = path + ".new";
  const int fd = ::open(temp.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode);
  if (fd < 0) return errno_error("write " + temp);
  const bool written = ::write(fd, text.data(), text.size()) == ssize_t(text.size()) &&
                       (sync == Sync::no || ::fsync(fd) == 0);
  const int err = errno;
  ::close(fd);
  if (!written) return errno_error("write " + temp, err);
  if (::rename(temp.c_str(), path.c_str()) != 0) return errno_error("rename to " + path);
  return {};
}

}  // namespace atl::cli
