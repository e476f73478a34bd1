// Display: what a run says, on the terminal of the person who started it.
//
// Output goes to stdout and stderr as it comes; results as text; images and documents into files,
// whose names are told on stderr.
#pragma once

#include <string>
#include <vector>

#include "cli/saver.h"
#include "client/execution.h"

namespace atl::cli {

enum class Style {
  terminal,  // for people
  json,      // nothing until the end, then the whole execution as one JSON document
};

class Display {
 public:
  // `saver` outlives it.
  Display(Style style, Saver& saver) : style_(style), saver_(saver) {}

  client::ExecutionEvents events();
  // After the run and its files: prints what is left to be printed.
  void end(const client::Execution& execution);
  // A file of the run was saved, or could not be.
  void saved(const std::string& path);
  void note(std::string_view text);
  Saver& saver() { return saver_; }

 private:
  void say(int fd, std::string_view text);
  void line(int fd, std::string_view text);  // on a line of its own
  void show(const client::CellResult& result);
  void show(const client::CellError& error);

  const Style style_;
  Saver& saver_;
  std::vector<std::string> files_;
  bool mid_line_ = false;
};

// Writes everything, or as much as anybody reads.
void put(int fd, std::string_view bytes);
// The exit status that an error of the code stands for: sys.exit(3) is 3, a failed command of a
// shell its status, everything else 1.
int exit_status(const client::Execution& execution);
// A traceback as a terminal shows it: its parts come joined without line breaks.
std::string readable_traceback(const client::CellError& error);

}  // namespace atl::cli
