#include "agent/reaper.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cerrno>

namespace atl::agent {

namespace asio = net::asio;

struct Reaper::Impl {
  explicit Impl(asio::io_context& io) : signals(io) {}

  asio::posix::stream_descriptor signals;
  std::unordered_map<pid_t, Callback> callbacks;

  void poll() {
    for (;;) {
      int status = 0;
      const pid_t pid = waitpid(-1, &status, WNOHANG);
      if (pid < 0 && errno == EINTR) continue;
      if (pid <= 0) return;
      const auto found = callbacks.find(pid);
      if (found == callbacks.end()) continue;  // an orphan of somebody else
      const Callback done = std::move(found->second);
      callbacks.erase(found);
      done(status);
    }
  }

  static net::Task<void> run(std::shared_ptr<Impl> self) {
    for (;;) {
      auto [ec] = co_await self->signals.async_wait(asio::posix::stream_descriptor::wait_read,
                                                    asio::as_tuple(asio::use_awaitable));
      if (ec) co_return;
      // Several ended children can share one signal: empty the descriptor, then wait for all that
      // can be waited for.
      signalfd_siginfo info[16];
      while (::read(self->signals.native_handle(), info, sizeof info) > 0) {
      }
      self->poll();
    }
  }
};

Reaper::Reaper(asio::io_context& io) : impl_(std::make_shared<Impl>(io)) {}

Reaper::~Reaper() {
  boost::system::error_code ignored;  // closing ends the loop; there is nothing to lose
  impl_->signals.close(ignored);
}

Result<void> Reaper::start() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  if (sigprocmask(SIG_BLOCK, &set, nullptr) != 0) return errno_error("block SIGCHLD");
  // An inherited SIG_IGN would make the kernel reap by itself and lose the statuses.
  signal(SIGCHLD, SIG_DFL);
  const int fd = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd < 0) return errno_error("signalfd");
  impl_->signals.assign(fd);
  asio::co_spawn(impl_->signals.get_executor(), Impl::run(impl_), asio::detached);
  impl_->poll();
  return {};
}

void Reaper::watch(pid_t pid, Callback done) { impl_->callbacks[pid] = std::move(done); }
bool Reaper::watches(pid_t pid) const { return impl_->callbacks.contains(pid); }
void Reaper::poll() { impl_->poll(); }

}  // namespace atl::agent
