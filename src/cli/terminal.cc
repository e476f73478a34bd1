#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

namespace atl::cli {

WindowSize window_size() {
  for (const int fd : {STDOUT_FILENO, STDIN_FILENO}) {
    winsize size{};
    if (::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0)
      return {size.ws_col, size.ws_row};
  }
  return {};
}

Result<RawTerminal> RawTerminal::enter() {
  RawTerminal out;
  if (!::isatty(STDIN_FILENO)) return out;
  termios mode{};
  if (::tcgetattr(STDIN_FILENO, &mode) != 0) return errno_error("read the terminal's mode");
  const termios before = mode;
  ::cfmakeraw(&mode);
  if (::tcsetattr(STDIN_FILENO, TCSADRAIN, &mode) != 0)
    return errno_error("set the terminal's mode");
  out.before_ = before;
  return out;
}

void RawTerminal::leave() {
  if (before_) ::tcsetattr(STDIN_FILENO, TCSADRAIN, &*before_);
  before_.reset();
}

}  // namespace atl::cli
