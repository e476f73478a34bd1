#include "agent/pty.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>

namespace atl::agent {

Result<PtyPair> open_pty(WindowSize size, std::optional<uid_t> owner) {
  PtyPair pair;
  constexpr int kFlags = O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK;
  pair.master = Fd(::open("/dev/ptmx", kFlags));
  // A sandbox has a devpts instance of its own, with its own multiplexer.
  if (!pair.master) pair.master = Fd(::open("/dev/pts/ptmx", kFlags));
  if (!pair.master) return errno_error("open /dev/ptmx");
  const int unlock = 0;
  if (::ioctl(pair.master.get(), TIOCSPTLCK, &unlock) != 0)
    return errno_error("unlock the terminal");
  // By descriptor: the node's name may mean another devpts instance.
  const int slave = ::ioctl(pair.master.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (slave < 0) return errno_error("open the terminal");
  pair.slave = Fd(slave);
  // Without it, only reopening by name fails.
  if (owner) (void)!::fchown(slave, *owner, gid_t(-1));
  ATOLL_TRY(resize_pty(pair.master.get(), size));
  return pair;
}

Result<void> resize_pty(int master, WindowSize size) {
  winsize window{};
  window.ws_col = size.cols;
  window.ws_row = size.rows;
  if (::ioctl(master, TIOCSWINSZ, &window) != 0) return errno_error("set the window size");
  return {};
}

}  // namespace atl::agent
