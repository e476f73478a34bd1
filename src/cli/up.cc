#include "cli/up.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include "base/json.h"
#include "cli/home.h"
#include "sys/fd.h"

extern char** environ;

namespace atl::cli {
namespace {

constexpr std::chrono::seconds kStartLimit{60};
constexpr std::chrono::seconds kStopLimit{60};

// The lock is held by a running server for its whole life: free means that none runs.
bool lock_is_held(const std::string& path) {
  const sys::UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd) return false;
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return false;
  return errno == EWOULDBLOCK;
}

bool wait_for_exit(int pidfd, std::chrono::milliseconds limit) {
  pollfd p{pidfd, POLLIN, 0};
  return ::poll(&p, 1, int(limit.count())) == 1;
}

}  // namespace

Result<RunningServer> find_server(const std::string& home_path) {
  const Home home = Home::at(home_path);
  if (!lock_is_held(home.lock_file())) {
    return make_error(Errc::not_found, "no server runs for the home " + home_path);
  }
  ATOLL_TRY_ASSIGN(const std::string text, read_file(home.server_file()));
  ATOLL_TRY_ASSIGN(const json::value value, parse_json(text));
  RunningServer server;
  if (const auto* o = value.if_object()) {
    if (const auto* pid = o->if_contains("pid"); pid && pid->is_int64())
      server.pid = int(pid->as_int64());
    if (const auto* pid = o->if_contains("supervisor"); pid && pid->is_int64())
      server.supervisor = int(pid->as_int64());
    if (const auto* url = o->if_contains("url"); url && url->is_string())
      server.url = url->as_string().c_str();
    if (const auto* url = o->if_contains("metrics"); url && url->is_string())
      server.metrics_url = url->as_string().c_str();
  }
  if (server.pid <= 1) return make_error(Errc::data_loss, home.server_file() + " is damaged");
  return server;
}

Result<int> down(const std::string& home_path, Sandboxes sandboxes) {
  auto server = find_server(home_path);
  if (!server.ok()) {
    if (server.error().code != Errc::not_found) return std::move(server).error();
    std::fprintf(stderr, "%s\n", server.error().message.c_str());
    return 0;
  }
  const int pid = server->supervisor > 1 ? server->supervisor : server->pid;
  const sys::UniqueFd pidfd(int(::syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd) return errno_error("find the server's process");
  // The pid was read before the descriptor was opened: make sure that it is still the lock's
  // holder.
  if (!lock_is_held(Home::at(home_path).lock_file())) return 0;
  const bool keep = sandboxes == Sandboxes::keep;
  std::fprintf(
      stderr, "stopping the server (pid %d)%s\n", pid,
      keep ? "; its sandboxes go on and `atoll up` finds them again" : " and its sandboxes");
  if (::syscall(SYS_pidfd_send_signal, pidfd.get(), keep ? SIGTERM : SIGINT, nullptr, 0) != 0)
    return errno_error("signal the server");
  if (!wait_for_exit(pidfd.get(), kStopLimit)) {
    std::fprintf(stderr, "the server did not stop within %lld s: killing it\n",
                 static_cast<long long>(kStopLimit.count()));
    ::syscall(SYS_pidfd_send_signal, pidfd.get(), SIGKILL, nullptr, 0);
    if (!wait_for_exit(pidfd.get(), std::chrono::seconds(5))) {
      return make_error(Errc::deadline_exceeded, "the server does not die");
    }
  }
  return 0;
}

Result<int> up_detached(const ServeOptions& options, int argc, char** argv) {
  ATOLL_TRY_ASSIGN(const ServerUser user, find_server_user());
  ATOLL_TRY_ASSIGN(const Home home, Home::open(options.home, user));
  if (auto running = find_server(options.home); running.ok() && !options.standby) {
    return make_error(Errc::already_exists,
                      "a server already runs for this home: " + running->url +
                          ". FIX: stop it with `atoll down`, or choose another --home");
  }
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error("pipe");
  const sys::UniqueFd reader(ends[0]);
  sys::UniqueFd writer(ends[1]);
  const sys::UniqueFd log(
      ::open(home.log_file().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!log) return errno_error("open " + home.log_file());
  if (::geteuid() == 0 && ::fchown(log.get(), user.uid, user.gid) != 0)
    return errno_error("own " + home.log_file());
  const off_t log_start = ::lseek(log.get(), 0, SEEK_END);

  std::vector<char*> args;
  for (int i = 0; i < argc; ++i) {
    if (std::string_view(argv[i]) != "--detach" && std::string_view(argv[i]) != "-d")
      args.push_back(argv[i]);
  }
  args.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, writer.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, log.get(), STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  pid_t pid = -1;
  const int err =
      ::posix_spawn(&pid, "/proc/self/exe", &actions, &attributes, args.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (err != 0) return errno_error("start the server", err);
  writer.reset();

  // The server prints its exports when it is healthy and then closes its stdout.
  std::string out;
  const auto until = std::chrono::steady_clock::now() + kStartLimit;
  for (;;) {
    pollfd p{reader.get(), POLLIN, 0};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        until - std::chrono::steady_clock::now());
    if (left.count() <= 0 || ::poll(&p, 1, int(left.count())) == 0) {
      ::kill(pid, SIGKILL);
      return make_error(Errc::deadline_exceeded,
                        "the server was not healthy within a minute; its log: " + home.log_file());
    }
    char buf[4096];
    const ssize_t n = ::read(reader.get(), buf, sizeof buf);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    out.append(buf, std::size_t(n));
  }
  int status = 0;
  if (out.empty() || ::waitpid(pid, &status, WNOHANG) == pid) {
    std::string tail;
    if (auto text = read_file(home.log_file()); text.ok() && text->size() > std::size_t(log_start))
      tail = text->substr(std::size_t(log_start));
    return make_error(Errc::unavailable, "the server did not start. It said:\n" + tail);
  }
  std::fwrite(out.data(), 1, out.size(), stdout);
  std::fprintf(stderr, "the server runs in the background (pid %d); log: %s\n", pid,
               home.log_file().c_str());
  return 0;
}

}  // namespace atl::cli
