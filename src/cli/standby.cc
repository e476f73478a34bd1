#include "cli/standby.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/announce.h"
#include "cli/supervisor.h"
#include "sys/poller.h"
#include "sys/process.h"
#include "sys/self.h"

extern char** environ;

namespace atl::cli {
namespace {

constexpr std::chrono::milliseconds kLookAtLock{50};
constexpr std::chrono::milliseconds kRelayAgain{500};  // one that dies

Result<sys::Child> start_relay(const Sockets& sockets, const std::string& program,
                               const std::vector<std::string>& arguments) {
  sys::SpawnOptions spawn;
  spawn.path = program;
  spawn.argv = arguments;
  spawn.fds = {{sockets.main.fd.get(), kMainFd}};
  std::string words = "relay";
  if (sockets.tls) {
    words += ",tls";
    spawn.fds.emplace_back(sockets.tls->fd.get(), kTlsFd);
  }
  if (sockets.executor) {
    words += ",executor";
    spawn.fds.emplace_back(sockets.executor->fd.get(), kExecutorFd);
  }
  spawn.argv.push_back("--supervised");
  spawn.argv.push_back(words);
  for (char** entry = environ; *entry != nullptr; ++entry) spawn.env.emplace_back(*entry);
  return sys::spawn(spawn);
}

// The addresses are this process's from now on, whoever answers there.
void tell(const ServeOptions& options, const Home& home, const Sockets& sockets) {
  auto key = read_file(home.key_file());
  while (key.ok() && !key->empty() && key->back() == '\n') key->pop_back();
  announce(addresses_of(sockets, options), key.ok() ? *key : "");
  if (auto null = sys::open_null(); null.ok()) ::dup2(null->get(), STDOUT_FILENO);
}

// Whether one of them asks to stop.
bool read_stop(const sys::UniqueFd& signals) {
  signalfd_siginfo info{};
  bool stop = false;
  while (::read(signals.get(), &info, sizeof info) == ssize_t(sizeof info))
    stop = stop || info.ssi_signo != SIGCHLD;
  return stop;
}

}  // namespace

Result<std::optional<Instance>> stand_by(const ServeOptions& options, const Home& home,
                                         ServerUser user, const Sockets& sockets,
                                         const sys::UniqueFd& signals, const std::string& program,
                                         const std::vector<std::string>& arguments) {
  ATOLL_TRY_ASSIGN(sys::Poller poller, sys::Poller::create());
  ATOLL_TRY(poller.add(signals, 0));
  ATOLL_TRY_ASSIGN(sys::Child relay, start_relay(sockets, program, arguments));
  log::info("standing by: another process serves this home",
            {{"home", home.path()}, {"listen", sockets.main.address}});
  tell(options, home, sockets);
  auto relay_since = std::chrono::steady_clock::now();
  for (;;) {
    ATOLL_TRY_ASSIGN(const auto ready, poller.wait(kLookAtLock));
    if (!ready.empty() && read_stop(signals)) return std::optional<Instance>();
    auto claimed = Instance::claim(home, std::string(kMainInstance), user);
    if (claimed.ok()) {
      log::warn("the server of this home is gone; taking over", {{"home", home.path()}});
      relay.end();
      return std::optional<Instance>(std::move(*claimed));
    }
    if (claimed.error().code != Errc::already_exists) return std::move(claimed).error();
    ATOLL_TRY_ASSIGN(const auto ended, relay.wait(std::chrono::milliseconds(0)));
    const auto now = std::chrono::steady_clock::now();
    if ((ended || !relay) && now - relay_since >= kRelayAgain) {
      log::warn("the relay ended; starting it again");
      ATOLL_TRY_ASSIGN(relay, start_relay(sockets, program, arguments));
      relay_since = now;
    }
  }
}

}  // namespace atl::cli
