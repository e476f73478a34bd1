// Home: the data directory of a server (ATOLL_HOME), and who may touch what in it.
//
//   HOME/            root 0755   nothing here can be renamed by the unprivileged server
//   HOME/templates/  root 0755   read-only layers
//   HOME/sandboxes/  root 0700   the warden's: disks of sandboxes
//   HOME/state/      atoll 0700  state.db, server.json, locks
//   HOME/keys/       atoll 0700  API key and token seed, files 0600
//   HOME/logs/       atoll 0755  server.log of a detached server
#pragma once

#include <string>

#include "base/result.h"

namespace atl::cli {

// The unprivileged identity of the server.
struct ServerUser {
  unsigned uid = 0;
  unsigned gid = 0;
};

Result<ServerUser> find_server_user();

class Home {
 public:
  // Makes what is missing; needs root the first time.
  static Result<Home> open(std::string path, ServerUser owner);
  // Only names the paths: for commands that look at a home which may not exist.
  static Home at(std::string path);

  const std::string& path() const { return path_; }
  std::string templates() const;  // ATOLL_TEMPLATES, if set, is shared by several homes
  std::string state_db() const { return path_ + "/state/state.db"; }
  std::string server_file() const { return path_ + "/state/server.json"; }
  std::string lock_file() const { return path_ + "/state/server.lock"; }
  std::string keys() const { return path_ + "/keys"; }
  std::string key_file() const { return path_ + "/keys/default.key"; }
  std::string admin_token_file() const { return path_ + "/keys/admin.token"; }
  // The CA of `atoll cert` for clients; keys/ is closed to them.
  std::string ca_file() const { return path_ + "/ca.pem"; }
  std::string log_file() const { return path_ + "/logs/server.log"; }

 private:
  explicit Home(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// --home, else ATOLL_HOME, else /var/lib/atoll; made absolute.
std::string default_home(const std::string& option);
// A program that is installed or built beside this one.
Result<std::string> find_program(const std::string& name);
// The directory of runners that the build assembles beside the programs.
Result<std::string> find_kernels();
// Gives up root for good; fails closed. Call after the warden was started and privileged sockets
// are bound.
Result<void> become(ServerUser user);

Result<std::string> read_file(const std::string& path);
// Writes a new file and renames it into place. With Sync::no it may be empty after a power cut: for
// what only means something while its writer lives.
enum class Sync { yes, no };
Result<void> write_file(const std::string& path, std::string_view text, unsigned mode,
                        Sync sync = Sync::yes);

}  // namespace atl::cli
