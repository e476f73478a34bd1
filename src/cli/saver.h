// Saver: writes what a run made into a folder of the person who started it.
//
// The command gives up root and becomes a user who may write nowhere, so a process that is forked
// before does the writing: as the user behind sudo if there is one. It takes a name and bytes over
// a socket and nothing else. Names come from a sandbox: they must be plain relative paths, links
// are not followed, and no existing file is touched: "plot.png" becomes "plot-2.png".
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "base/result.h"
#include "sys/fd.h"

namespace atl::cli {

class Saver {
 public:
  // `folder` is made when the first file comes. Precondition: no threads yet.
  static Result<Saver> start(std::string folder);
  Saver(Saver&&) = default;
  // Waits until the process has ended.
  ~Saver();

  // Begins a file; the path at which it will be. invalid_argument: not a name to write to.
  Result<std::string> open(const std::string& name);
  Result<void> write(std::string_view bytes);
  Result<void> close();
  // All three.
  Result<std::string> save(const std::string& name, std::string_view bytes);

 private:
  Saver(pid_t pid, sys::UniqueFd socket) : pid_(pid), socket_(std::move(socket)) {}
  Result<std::string> ask(char operation, std::string_view text);

  pid_t pid_;
  sys::UniqueFd socket_;
};

// A relative path without "..", empty parts, control characters or excess.
bool is_savable_name(std::string_view name);

}  // namespace atl::cli
