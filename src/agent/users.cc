#include "agent/users.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "base/encoding.h"

namespace atl::agent {
namespace {

constexpr std::size_t kMaxTableBytes = 8 << 20;

// The file's text, or nothing if it is not a regular file. O_NONBLOCK because the sandbox may have
// put a FIFO there.
std::string read_table(const std::string& path) {
  std::string text;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return text;
  struct stat st{};
  if (::fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
    char buffer[16384];
    ssize_t n = 0;
    while (text.size() < kMaxTableBytes && (n = ::read(fd, buffer, sizeof buffer)) > 0) {
      text.append(buffer, std::size_t(n));
    }
  }
  ::close(fd);
  return text;
}

template <class Fn>
void each_line(std::string_view text, Fn fn) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    fn(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// uid_t and gid_t are 32-bit; the all-ones value means "no change" to chown and is never a user.
std::optional<std::uint32_t> parse_id(std::string_view text) {
  std::uint32_t id = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (ec != std::errc() || end != text.data() + text.size() || id == UINT32_MAX)
    return std::nullopt;
  return id;
}

}  // namespace

bool UserDb::Stamp::operator==(const Stamp& other) const {
  auto same = [](const timespec& a, const timespec& b) {
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
  };
  return dev == other.dev && ino == other.ino && size == other.size && same(mtime, other.mtime) &&
         same(ctime, other.ctime);
}

UserDb::Stamp UserDb::stamp_of(const std::string& path) {
  struct stat st{};
  if (::stat(path.c_str(), &st) != 0) return {};
  return {st.st_dev, st.st_ino, st.st_size, st.st_mtim, st.st_ctim};
}

void UserDb::refresh() {
  const Stamp passwd = stamp_of(passwd_path_);
  const Stamp group = stamp_of(group_path_);
  if (loaded_ && passwd == passwd_stamp_ && group == group_stamp_) return;
  passwd_stamp_ = passwd;
  group_stamp_ = group;
  loaded_ = true;
  load_group();
  load_passwd();
}

void UserDb::load_group() {
  group_names_.clear();
  memberships_.clear();
  each_line(read_table(group_path_), [this](std::string_view line) {
    const auto fields = split(line, ':');
    if (fields.size() < 4 || fields[0].empty()) return;
    const auto gid = parse_id(fields[2]);
    if (!gid) return;
    group_names_.try_emplace(*gid, fields[0]);
    for (std::string_view member : split(fields[3], ',')) {
      if (!member.empty()) memberships_.emplace(member, *gid);
    }
  });
}

void UserDb::load_passwd() {
  users_.clear();
  user_names_.clear();
  each_line(read_table(passwd_path_), [this](std::string_view line) {
    const auto fields = split(line, ':');
    if (fields.size() < 7 || fields[0].empty()) return;
    const auto uid = parse_id(fields[2]);
    const auto gid = parse_id(fields[3]);
    if (!uid || !gid) return;
    User user{std::string(fields[0]), *uid, *gid, {*gid}, std::string(fields[5]),
              std::string(fields[6])};
    if (user.home.empty()) user.home = "/";
    const auto [first, last] = memberships_.equal_range(user.name);
    for (auto it = first; it != last; ++it) {
      if (std::find(user.groups.begin(), user.groups.end(), it->second) == user.groups.end()) {
        user.groups.push_back(it->second);
      }
    }
    std::sort(user.groups.begin() + 1, user.groups.end());
    user_names_.try_emplace(*uid, user.name);
    users_.try_emplace(user.name, std::move(user));
  });
}

Result<User> UserDb::find(std::string_view name) {
  refresh();
  const auto it = users_.find(name);
  if (it == users_.end()) {
    return make_error(Errc::unauthenticated, "user: unknown user " + std::string(name));
  }
  return it->second;
}

std::string UserDb::user_name(uid_t uid) const {
  const auto it = user_names_.find(uid);
  return it != user_names_.end() ? it->second : std::to_string(uid);
}

std::string UserDb::group_name(gid_t gid) const {
  const auto it = group_names_.find(gid);
  return it != group_names_.end() ? it->second : std::to_string(gid);
}

UserDb& system_users() {
  static UserDb db;
  return db;
}

std::optional<std::string> basic_username(std::string_view authorization) {
  static constexpr std::string_view kScheme = "basic ";
  if (authorization.size() < kScheme.size()) return std::nullopt;
  for (std::size_t i = 0; i < kScheme.size(); ++i) {
    const char c = authorization[i];
    if ((c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c) != kScheme[i]) return std::nullopt;
  }
  const auto decoded = base64_decode(authorization.substr(kScheme.size()));
  if (!decoded) return std::nullopt;
  const std::size_t colon = decoded->find(':');
  if (colon == std::string::npos) return std::nullopt;
  return decoded->substr(0, colon);
}

Result<User> select_user(std::string_view authorization, std::string_view default_user) {
  const auto named = basic_username(authorization);
  const std::string_view name = named ? std::string_view(*named) : default_user;
  auto user = lookup_user(name);
  if (!user.ok()) {
    // The name goes into a JSON message, which must be UTF-8.
    const std::string shown = is_valid_utf8(name) ? std::string(name) : "?";
    return make_error(Errc::unauthenticated, "invalid username: '" + shown + "'");
  }
  return user;
}

}  // namespace atl::agent
