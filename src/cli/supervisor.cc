#include "cli/supervisor.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/log.h"
#include "cli/home.h"
#include "cli/instance.h"
#include "cli/sockets.h"
#include "cli/standby.h"
#include "sys/poller.h"
#include "sys/process.h"
#include "sys/self.h"

extern char** environ;

namespace atl::cli {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kYoung{100};
constexpr milliseconds kFirstPause{50};
constexpr milliseconds kLongestPause{5'000};
constexpr std::chrono::seconds kStopLimit{40};

enum Token : std::uint64_t { kSignals, kReady };

Result<sys::UniqueFd> take_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) {
    ::signal(number, SIG_DFL);  // a shell may have left SIGINT ignored
    sigaddset(&set, number);
  }
  if (::sigprocmask(SIG_BLOCK, &set, nullptr) != 0) return errno_error("sigprocmask");
  sys::UniqueFd fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) return errno_error("signalfd");
  return fd;
}

class Supervisor {
 public:
  Supervisor(const Instance& instance, Sockets sockets, sys::Poller poller, sys::UniqueFd signals,
             std::string program, std::vector<std::string> arguments)
      : instance_(instance),
        sockets_(std::move(sockets)),
        poller_(std::move(poller)),
        signals_(std::move(signals)),
        program_(std::move(program)),
        arguments_(std::move(arguments)) {}

  Result<int> run() {
    ATOLL_TRY(poller_.add(signals_, kSignals));
    ATOLL_TRY(start());
    for (;;) {
      std::optional<milliseconds> wait;
      if (next_) wait = until(*next_);
      if (kill_at_) wait = std::min(wait.value_or(kStopLimit), until(*kill_at_));
      ATOLL_TRY_ASSIGN(const auto ready, poller_.wait(wait));
      for (const std::uint64_t token : ready) {
        if (token == kReady) read_ready();
        if (token == kSignals) read_signals();
      }
      if (exit_code_) return *exit_code_;
      if (kill_at_ && Clock::now() >= *kill_at_) {
        log::error("the server does not stop: killing it");
        if (server_ <= 0) return 1;
        ::kill(server_, SIGKILL);
        kill_at_ = Clock::now() + kStopLimit;
      }
      if (next_ && Clock::now() >= *next_) {
        next_.reset();
        if (auto started = start(); !started.ok()) {
          log::error("cannot start the server", {{"error", started.error().message}});
          again(std::nullopt);
        }
      }
    }
  }

 private:
  static milliseconds until(Clock::time_point when) {
    const auto left = std::chrono::ceil<milliseconds>(when - Clock::now());
    return std::max(left, milliseconds(0));
  }

  Result<void> start() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return errno_error("pipe");
    sys::UniqueFd reader(ends[0]);
    const sys::UniqueFd writer(ends[1]);
    sys::SpawnOptions spawn;
    spawn.path = program_;
    spawn.argv = arguments_;
    std::string words = ever_healthy_ ? "restart" : "announce";
    spawn.fds = {
        {instance_.lock(), kLockFd}, {writer.get(), kReadyFd}, {sockets_.main.fd.get(), kMainFd}};
    if (sockets_.tls) {
      words += ",tls";
      spawn.fds.emplace_back(sockets_.tls->fd.get(), kTlsFd);
    }
    if (sockets_.metrics) {
      words += ",metrics";
      spawn.fds.emplace_back(sockets_.metrics->fd.get(), kMetricsFd);
    }
    if (sockets_.executor) {
      words += ",executor";
      spawn.fds.emplace_back(sockets_.executor->fd.get(), kExecutorFd);
    }
    if (!ever_healthy_) spawn.fds.emplace_back(STDOUT_FILENO, STDOUT_FILENO);
    spawn.argv.push_back("--supervised");
    spawn.argv.push_back(words);
    for (char** entry = environ; *entry != nullptr; ++entry) spawn.env.emplace_back(*entry);
    ATOLL_TRY_ASSIGN(sys::Child child, sys::spawn(spawn));
    server_ = child.pid();
    child.release();  // reaped with all others
    healthy_since_.reset();
    if (ready_) poller_.remove(ready_);
    ready_ = std::move(reader);
    return poller_.add(ready_, kReady);
  }

  void read_ready() {
    char byte = 0;
    const ssize_t n = ::read(ready_.get(), &byte, 1);
    poller_.remove(ready_);
    if (n != 1) return;  // it died: SIGCHLD tells
    if (ever_healthy_) log::info("the server is healthy again");
    ever_healthy_ = true;
    healthy_since_ = Clock::now();
    if (stopping_) ::kill(server_, *stopping_);
    // The server has told its exports: nothing else comes on stdout.
    if (auto null = sys::open_null(); null.ok()) ::dup2(null->get(), STDOUT_FILENO);
  }

  void read_signals() {
    signalfd_siginfo info{};
    while (::read(signals_.get(), &info, sizeof info) == ssize_t(sizeof info)) {
      if (info.ssi_signo == SIGCHLD) {
        reap();
      } else {
        stop(info.ssi_signo == SIGINT ? SIGINT : SIGTERM);
      }
    }
  }

  void stop(int number) {
    if (stopping_) return;
    stopping_ = number;
    kill_at_ = Clock::now() + kStopLimit;
    if (server_ > 0 && (healthy_since_ || !ever_healthy_ || number == SIGTERM)) {
      ::kill(server_, number);
    } else if (server_ <= 0) {
      // Between two servers. Sandboxes that are to be killed need one more, which is told when it
      // is healthy.
      if (number == SIGINT) {
        next_ = Clock::now();
      } else {
        exit_code_ = 0;
      }
    }
  }

  void reap() {
    int status = 0;
    for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      if (pid != server_) continue;
      server_ = 0;
      ended(status);
    }
  }

  void ended(int status) {
    const bool clean = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (stopping_ || clean || !ever_healthy_) {
      exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
      return;
    }
    std::optional<milliseconds> healthy;
    if (healthy_since_)
      healthy = std::chrono::duration_cast<milliseconds>(Clock::now() - *healthy_since_);
    const std::string how = WIFSIGNALED(status)
                                ? "signal " + std::to_string(WTERMSIG(status))
                                : "exit status " + std::to_string(WEXITSTATUS(status));
    const milliseconds pause = again(healthy);
    log::warn("the server ended unexpectedly; starting it again. Sandboxes go on",
              {{"how", how}, {"pause_ms", std::to_string(pause.count())}});
  }

  milliseconds again(std::optional<milliseconds> healthy) {
    const milliseconds pause = backoff_.after(healthy);
    next_ = Clock::now() + pause;
    return pause;
  }

  const Instance& instance_;
  Sockets sockets_;
  sys::Poller poller_;
  sys::UniqueFd signals_;
  const std::string program_;
  const std::vector<std::string> arguments_;

  pid_t server_ = 0;  // 0: none
  sys::UniqueFd ready_;
  bool ever_healthy_ = false;
  std::optional<Clock::time_point> healthy_since_;
  Backoff backoff_;
  std::optional<Clock::time_point> next_;     // when to start the next server
  std::optional<Clock::time_point> kill_at_;  // when patience with a stopping one ends
  std::optional<int> stopping_;               // the signal that asked for it
  std::optional<int> exit_code_;
};

}  // namespace

bool has_word(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    if (list.substr(0, comma) == word) return true;
    if (comma == std::string_view::npos) return false;
    list.remove_prefix(comma + 1);
  }
  return false;
}

milliseconds Backoff::after(std::optional<milliseconds> healthy) {
  if (healthy && *healthy >= kYoung) {
    young_ = 0;
    return milliseconds(0);
  }
  const unsigned doublings = std::min(young_++, 10u);
  return std::min(kFirstPause * (1u << doublings), kLongestPause);
}

Result<int> supervise(const ServeOptions& options, int argc, char** argv) {
  ATOLL_TRY(configure_log(options));
  ATOLL_TRY_ASSIGN(const ServerUser user, find_server_user());
  ATOLL_TRY_ASSIGN(const Home home, Home::open(options.home, user));
  auto claimed = Instance::claim(home, std::string(kMainInstance), user);
  const bool wait =
      options.standby && !claimed.ok() && claimed.error().code == Errc::already_exists;
  if (!wait && !claimed.ok()) return std::move(claimed).error();
  ATOLL_TRY_ASSIGN(Sockets sockets, open_sockets(options));
  // By name and not by /proc/self/exe: the next server is the program that is installed then.
  std::error_code ec;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", ec).string();
  if (ec) return errno_error("find this program", ec.value());
  std::vector<std::string> arguments = {argv[0], "serve"};
  for (int i = 2; i < argc; ++i) arguments.emplace_back(argv[i]);
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) return errno_error("become a subreaper");
  ATOLL_TRY_ASSIGN(sys::UniqueFd signals, take_signals());
  std::optional<Instance> held;
  if (wait) {
    ATOLL_TRY_ASSIGN(auto taken,
                     stand_by(options, home, user, sockets, signals, program, arguments));
    if (!taken) return 0;
    held.emplace(std::move(*taken));
  } else {
    held.emplace(std::move(*claimed));
  }
  ATOLL_TRY_ASSIGN(sys::Poller poller, sys::Poller::create());
  Supervisor supervisor(*held, std::move(sockets), std::move(poller), std::move(signals), program,
                        std::move(arguments));
  return supervisor.run();
}

}  // namespace atl::cli
