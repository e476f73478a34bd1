// Home: the data directory of a server (ATOLL_HOME), and who may touch what in it.
//
//   HOME/            root 0755   nothing here can be renamed by the unprivileged server
//   HOME/templates/  root 0755   read-only layers
//   HOME/tools/      root 0755   programs of our own: CRIU
//   HOME/sandboxes/  root 0700   the warden's: disks of sandboxes
//   HOME/snapshots/  root 0700   the warden's: memory and disks of snapshots
//   HOME/state/      atoll 0700  state.db, server.json, locks
//   HOME/workspaces/ atoll 0700  files of workspaces, unless --blobs says otherwise
//   HOME/keys/       atoll 0700  API key, token seed, key of providers' secrets; files 0600
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
  std::string tools() const;      // ATOLL_TOOLS likewise
  std::string state_db() const { return path_ + "/state/state.db"; }
  std::string server_file() const { return path_ + "/state/server.json"; }
  std::string lock_file() const { return path_ + "/state/server.lock"; }
  // What this server is called among those that share a store of sessions.
  std::string node_file() const { return path_ + "/state/node.id"; }
  std::string workspaces() const { return path_ + "/workspaces"; }
  // This server's name in storage that servers share.
  std::string storage_id_file() const { return path_ + "/state/storage-id"; }
  std::string keys() const { return path_ + "/keys"; }
  std::string key_file() const { return path_ + "/keys/default.key"; }
  std::string admin_token_file() const { return path_ + "/keys/admin.token"; }
  // Seals the secrets of providers' settings.
  std::string provider_key_file() const { return path_ + "/keys/providers.key"; }
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

// Makes a directory of the server's own, if it is missing, as root.
Result<void> make_owned_dir(const std::string& path, ServerUser owner);

Result<std::string> read_file(const std::string& path);
// Writes a new file and renames it into place. With Sync::no it may be empty after a power cut: for
// what only means something while its writer lives.
enum class Sync { yes, no };
Result<void> write_file(const std::string& path, std::string_view text, unsigned mode,
                        Sync sync = Sync::yes);

}  // namespace atl::cli
