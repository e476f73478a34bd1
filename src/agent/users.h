// The sandbox's users and groups, read from /etc/passwd and /etc/group.
//
// The agent is a static binary, so there is no NSS: the two files are parsed here. They belong to
// the sandbox and may hold anything; malformed lines are skipped and only the first mebibytes are
// looked at. Parsed tables are kept and read again when a file's identity, size or times change.
// Not thread-safe: the agent has one thread.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"

namespace atl::agent {

struct User {
  std::string name;
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;  // supplementary ones, the primary group first
  std::string home;
  std::string shell;

  bool operator==(const User&) const = default;
};

class UserDb {
 public:
  explicit UserDb(std::string passwd = "/etc/passwd", std::string group = "/etc/group")
      : passwd_path_(std::move(passwd)), group_path_(std::move(group)) {}

  // Errors: unauthenticated "user: unknown user <name>".
  Result<User> find(std::string_view name);
  // The name, or the number as text if nobody has it. These look only at the tables in memory: call
  // `refresh` (or `find`) once per request before them.
  std::string user_name(uid_t uid) const;
  std::string group_name(gid_t gid) const;
  // Reads the files again if they changed: two stat calls otherwise.
  void refresh();

 private:
  struct Stamp {
    dev_t dev = 0;
    ino_t ino = 0;
    off_t size = -1;
    struct timespec mtime{};
    struct timespec ctime{};
    bool operator==(const Stamp& other) const;
  };
  static Stamp stamp_of(const std::string& path);
  void load_passwd();
  void load_group();

  std::string passwd_path_;
  std::string group_path_;
  Stamp passwd_stamp_;
  Stamp group_stamp_;
  bool loaded_ = false;
  std::map<std::string, User, std::less<>> users_;
  std::unordered_map<uid_t, std::string> user_names_;
  std::unordered_map<gid_t, std::string> group_names_;
  std::unordered_multimap<std::string, gid_t> memberships_;
};

// The tables of the machine the agent runs in.
UserDb& system_users();
inline Result<User> lookup_user(std::string_view name) { return system_users().find(name); }

// User name of an `Authorization` header if it is a well-formed Basic one; other schemes are
// ignored.
std::optional<std::string> basic_username(std::string_view authorization);

// Who a call acts as: the Basic user if there is one, else the default user.
// Errors: unauthenticated "invalid username: '<name>'".
Result<User> select_user(std::string_view authorization, std::string_view default_user);

}  // namespace atl::agent
