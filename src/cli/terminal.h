// The terminal of this process: raw while a terminal inside a sandbox is attached to it.
#pragma once

#include <termios.h>

#include <optional>

#include "base/result.h"

namespace atl::cli {

struct WindowSize {
  unsigned columns = 80;
  unsigned rows = 24;
};
WindowSize window_size();

// Puts stdin's terminal into raw mode and back.
class RawTerminal {
 public:
  // Nothing to do where stdin is no terminal.
  static Result<RawTerminal> enter();
  RawTerminal(RawTerminal&& other) noexcept : before_(other.before_) { other.before_.reset(); }
  ~RawTerminal() { leave(); }
  void leave();

 private:
  RawTerminal() = default;
  std::optional<termios> before_;
};

}  // namespace atl::cli
