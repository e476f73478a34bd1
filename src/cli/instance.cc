#include "cli/instance.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <filesystem>

#include "base/log.h"
#include "cli/collect.h"

namespace atl::cli {
namespace {

constexpr std::string_view kRunPrefix = "run-";

net::Task<void> destroy_all(runtime::JailRuntime& runtime, bool& clean) {
  auto listing = runtime.list();
  auto ids = co_await std::move(listing);
  if (!ids.ok()) {
    log::warn("cannot list what a dead run left behind", {{"error", ids.error().message}});
    co_return;
  }
  clean = true;
  for (const auto& [id, condition, address] : *ids) {
    auto destroying = runtime.destroy(id);
    if (auto gone = co_await std::move(destroying);
        !gone.ok() && gone.error().code != Errc::not_found) {
      log::warn("cannot remove what a dead run left behind",
                {{"sandbox", id.str()}, {"error", gone.error().message}});
      clean = false;
    }
  }
  auto collecting = remove_snapshots(runtime, [](const auto&) { return true; });
  auto removed = co_await std::move(collecting);
  if (!removed.ok() || removed->failed > 0) clean = false;
}

void remove_run_files(const Home& home, const std::string& name) {
  std::error_code ignored;  // what cannot be removed now is tried again by the next sweep
  for (const char* suffix : {".db", ".db-wal", ".db-shm", ".lock"}) {
    std::filesystem::remove(home.path() + "/state/" + name + suffix, ignored);
  }
}

}  // namespace

Result<Instance> Instance::claim(const Home& home, std::string name, ServerUser owner) {
  const std::string path =
      name == kMainInstance ? home.lock_file() : home.path() + "/state/" + name + ".lock";
  sys::UniqueFd lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) return errno_error("open " + path);
  if (::geteuid() == 0 && ::fchown(lock.get(), owner.uid, owner.gid) != 0)
    return errno_error("own " + path);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return errno_error("lock " + path);
    return make_error(Errc::already_exists,
                      "another process uses " + home.path() +
                          ". FIX: stop it with `atoll down`, or choose another --home");
  }
  return Instance(std::move(name), path, std::move(lock));
}

Instance Instance::inherit(const Home& home, std::string name, int lock) {
  ::fcntl(lock, F_SETFD, FD_CLOEXEC);
  return Instance(std::move(name), home.lock_file(), sys::UniqueFd(lock));
}

Instance::~Instance() {
  if (lock_ && name_ != kMainInstance) ::unlink(path_.c_str());
}

Result<std::unique_ptr<runtime::JailRuntime>> start_runtime(boost::asio::io_context& io,
                                                            const Home& home,
                                                            const std::string& instance,
                                                            ServerUser user) {
  if (::geteuid() != 0) {
    return make_error(Errc::permission_denied,
                      "sandboxes need namespaces, mounts and cgroups, so this command needs root");
  }
  runtime::WardenOptions options;
  options.home = home.path();
  options.instance = instance;
  options.templates = home.templates();
  options.tools = home.tools();
  options.server_gid = user.gid;
  ATOLL_TRY_ASSIGN(options.warden_path, find_program("atoll-warden"));
  ATOLL_TRY_ASSIGN(options.agent_path, find_program("atoll-agent"));
  ATOLL_TRY_ASSIGN(options.kernels_path, find_kernels());
  return runtime::JailRuntime::start(io, std::move(options));
}

Result<std::size_t> sweep_dead_runs(const Home& home, ServerUser user) {
  std::size_t swept = 0;
  std::error_code ec;
  for (const auto& entry : std::filesystem::directory_iterator(home.path() + "/state", ec)) {
    const std::string file = entry.path().filename().string();
    if (!file.starts_with(kRunPrefix) || !file.ends_with(".lock")) continue;
    const std::string name = file.substr(0, file.size() - std::string_view(".lock").size());
    auto claimed = Instance::claim(home, name, user);
    if (!claimed.ok()) continue;  // it lives
    log::info("removing what a dead run left behind", {{"instance", name}});
    boost::asio::io_context io;
    bool clean = false;
    {
      ATOLL_TRY_ASSIGN(auto runtime, start_runtime(io, home, name, user));
      boost::asio::co_spawn(io, destroy_all(*runtime, clean),
                            [&io](std::exception_ptr) { io.stop(); });
      io.run_for(std::chrono::seconds(30));
    }
    if (clean) {
      remove_run_files(home, name);
      ::rmdir((home.path() + "/sandboxes/" + name).c_str());
      ++swept;
    }
  }
  return swept;
}

}  // namespace atl::cli
