// LineEditor: lines that a person types, with editing and a history that is kept, or plain lines
// where stdin is no terminal.
#pragma once

#include <termios.h>

#include <memory>
#include <optional>
#include <string>

#include "sys/fd.h"

struct editline;
struct history;

namespace atl::cli {

class LineEditor {
 public:
  // `history_file` (empty: none) is read and opened now, with the rights of now; lines are added to
  // it as they are typed.
  explicit LineEditor(const std::string& history_file);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  bool on_terminal() const { return editor_ != nullptr; }
  enum class Outcome { line, cancelled, end };
  struct Read {
    Outcome outcome = Outcome::end;
    std::string text;  // without the line break
  };
  // cancelled: Ctrl-C; end: Ctrl-D or the end of the file.
  Read read(const std::string& prompt);
  // The terminal as it was before. From any thread, when the process is about to end while another
  // one is reading.
  void restore_terminal();
  // A whole entry, to be found again by the arrow keys, also next time.
  void remember(const std::string& entry);

 private:
  std::string prompt_;
  bool cancelled_ = false;
  editline* editor_ = nullptr;
  history* history_ = nullptr;
  sys::UniqueFd file_;
  std::optional<termios> before_;

  friend struct EditorCallbacks;
};

}  // namespace atl::cli
