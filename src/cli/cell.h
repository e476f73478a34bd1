// Cell: one run of code in the interpreter of a sandbox, shown on a Display, and the files that it
// left in the home directory.
#pragma once

#include <chrono>
#include <string>

#include "cli/display.h"
#include "cli/inside.h"

namespace atl::cli {

// Ends a run from outside; the interpreter interrupts the code when its client goes away.
class Interrupter {
 public:
  // Closes the connection of the run; without one, of the next.
  void interrupt();
  bool interrupted() const { return interrupted_; }

 private:
  friend net::Task<Result<client::Execution>> run_cell(const Inside&, std::string, std::string,
                                                       Display&, Interrupter&);
  net::HttpClient* client_ = nullptr;
  bool interrupted_ = false;
};

// not_found: the sandbox has no interpreter; canceled: it was interrupted. Everything on one
// strand.
net::Task<Result<client::Execution>> run_cell(const Inside& inside, std::string code,
                                              std::string language, Display& display,
                                              Interrupter& interrupter);

// Saves the files below /home/user that were made or changed since then; says which, and what is
// too much. Hidden ones, node_modules and links are left out.
net::Task<Result<void>> save_new_files(const Inside& inside,
                                       std::chrono::system_clock::time_point since,
                                       Display& display);

}  // namespace atl::cli
