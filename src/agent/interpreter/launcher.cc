#include "agent/interpreter/launcher.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <cerrno>

#include "agent/process_end.h"
#include "agent/spawn.h"
#include "agent/start_command.h"
#include "base/log.h"

namespace atl::agent::interpreter {
namespace {

namespace asio = net::asio;
// When the sandbox is full of processes that were just killed, it takes a moment until their places
// are free.
constexpr int kSpawnTries = 40;
constexpr std::chrono::milliseconds kSpawnPause{50};

struct Pair {
  Fd ours;
  Fd theirs;
};

Result<Pair> make_socket_pair() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
    return errno_error("socketpair");
  return Pair{Fd(fds[0]), Fd(fds[1])};
}

Result<Pair> make_pipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return errno_error("pipe");
  return Pair{Fd(fds[0]), Fd(fds[1])};
}

}  // namespace

Launcher::Launcher(asio::io_context& io, AgentState& state, Reaper& reaper, LogRing& logs,
                   LauncherOptions options)
    : io_(io), state_(state), reaper_(reaper), logs_(logs), options_(std::move(options)) {}

void Launcher::listen(std::function<void()> connected) {
  if (options_.nursery.empty()) return;
  const auto owner = user();
  packages_ = std::make_unique<PackageStamps>(options_.root, owner.ok() ? owner->home : "/");
  nursery_ = std::make_unique<Nursery>(io_, reaper_, options_.nursery_uid, std::move(connected));
  if (const auto listening = nursery_->listen(options_.nursery); !listening.ok())
    log::warn("no nursery can connect", {{"error", listening.error().message}});
}

net::Task<void> Launcher::end_nursery() {
  if (!nursery_) co_return;
  auto ending = nursery_->end();
  co_await std::move(ending);
}

Result<User> Launcher::user() const {
  auto found = lookup_user(options_.user);
  return found.ok() ? std::move(found) : lookup_user(state_.default_user());
}

Result<std::vector<std::string>> Launcher::environment(
    const Language& language, const std::map<std::string, std::string>& more) {
  ATOLL_TRY_ASSIGN(const User owner, user());
  std::map<std::string, std::string> requested;
  for (const std::string_view variable : language.variables) {
    const std::size_t equals = variable.find('=');
    const std::string name(variable.substr(0, equals));
    if (!state_.env_vars().contains(name)) requested[name] = variable.substr(equals + 1);
  }
  for (const auto& [name, value] : more) requested[name] = value;
  return process_environment(state_, options_.path, owner, requested);
}

net::Task<Result<std::shared_ptr<Kernel>>> Launcher::launch(const Language& language,
                                                            const std::string& context) {
  if (language.name == "python" && nursery_ && nursery_->is_connected()) {
    if (packages_->changed()) {
      log::info("Python's packages have changed: starting a kernel cold");
    } else {
      auto forking = start_forked();
      auto forked = co_await std::move(forking);
      if (forked.ok()) {
        watch(*forked, language, context, "forked");
        co_return forked;
      }
      log::warn("cannot fork a kernel", {{"error", forked.error().message}});
    }
  }
  ATOLL_CO_TRY(check_installed(language, options_.kernels, options_.path));
  for (int tries = 1;; ++tries) {
    auto started = start_cold(language);
    if (started.ok()) {
      watch(*started, language, context, "started");
      co_return started;
    }
    if (started.error().sys_errno != EAGAIN || tries == kSpawnTries) co_return started;
    asio::steady_timer pause(co_await asio::this_coro::executor, kSpawnPause);
    co_await pause.async_wait(asio::as_tuple(asio::use_awaitable));
    reaper_.poll();
  }
}

Result<std::shared_ptr<Kernel>> Launcher::start_cold(const Language& language) {
  ATOLL_TRY_ASSIGN(const User owner, user());
  SpawnSpec child;
  child.argv = command_line(language, options_.kernels);
  ATOLL_TRY_ASSIGN(child.env, environment(language, {}));
  child.cwd = "/";  // `start` names the real one, which need not exist
  if (::geteuid() == 0) child.credentials = Credentials{owner.uid, owner.gid, owner.groups};
  child.terminal = Terminal::session;
  Fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null) return errno_error("open /dev/null");
  ATOLL_TRY_ASSIGN(Pair socket, make_socket_pair());
  ATOLL_TRY_ASSIGN(Pair out, make_pipe());
  ATOLL_TRY_ASSIGN(Pair err, make_pipe());
  child.in = null.get();
  child.out = out.theirs.get();
  child.err = err.theirs.get();
  child.extra = socket.theirs.get();
  ATOLL_TRY_ASSIGN(const pid_t pid, spawn(child));
  return std::make_shared<Kernel>(
      io_, pid, Kernel::Ends{std::move(socket.ours), std::move(out.ours), std::move(err.ours)});
}

net::Task<Result<std::shared_ptr<Kernel>>> Launcher::start_forked() {
  ATOLL_CO_TRY_ASSIGN(Pair socket, make_socket_pair());
  auto forking = nursery_->fork(std::move(socket.theirs));
  ATOLL_CO_TRY_ASSIGN(const pid_t pid, co_await std::move(forking));
  co_return std::make_shared<Kernel>(io_, pid, Kernel::Ends{std::move(socket.ours), Fd(), Fd()});
}

void Launcher::watch(const std::shared_ptr<Kernel>& kernel, const Language& language,
                     const std::string& context, std::string_view how) {
  const std::string name(language.name);
  const LogFields fields{{"source", "interpreter"},
                         {"context", context},
                         {"language", name},
                         {"pid", std::to_string(kernel->pid())}};
  logs_.add(LogRing::Level::info, "kernel " + std::string(how) + ": " + name, fields);
  kernel->reaped = [&logs = logs_, name, fields](int wait_status) {
    logs.add(LogRing::Level::info, "kernel ended: " + name + ": " + end_status(wait_status).status,
             fields);
  };
  reaper_.watch(kernel->pid(), [kernel](int wait_status) { kernel->on_exit(wait_status); });
  kernel->begin();
}

}  // namespace atl::agent::interpreter
