#include "cli/line_editor.h"

#include <fcntl.h>
#include <histedit.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <cstdio>
#include <iostream>

#include "cli/display.h"

namespace atl::cli {

namespace {
constexpr int kMostEntries = 1000;
constexpr off_t kMostHistory = 1 << 20;  // bytes that are read of the file
// An entry of several lines is one line of the file.
constexpr char kLineBreak = '\x1e';
}  // namespace

struct EditorCallbacks {
  static LineEditor& of(editline* editor) {
    void* self = nullptr;
    ::el_get(editor, EL_CLIENTDATA, &self);
    return *static_cast<LineEditor*>(self);
  }
  static char* prompt(editline* editor) { return of(editor).prompt_.data(); }
  static unsigned char cancel(editline* editor, int) {
    of(editor).cancelled_ = true;
    return CC_NEWLINE;
  }
};

LineEditor::LineEditor(const std::string& history_file) {
  if (!::isatty(STDIN_FILENO) || !::isatty(STDOUT_FILENO)) return;
  if (std::setlocale(LC_CTYPE, "") == nullptr ||
      std::string_view(std::setlocale(LC_CTYPE, nullptr)) == "C")
    std::setlocale(LC_CTYPE, "C.UTF-8");
  if (termios now{}; ::tcgetattr(STDIN_FILENO, &now) == 0) before_ = now;
  editor_ = ::el_init("atoll", stdin, stdout, stderr);
  history_ = ::history_init();
  if (editor_ == nullptr || history_ == nullptr) return;
  HistEvent event;
  ::history(history_, &event, H_SETSIZE, kMostEntries);
  ::history(history_, &event, H_SETUNIQUE, 1);
  ::el_set(editor_, EL_CLIENTDATA, this);
  ::el_set(editor_, EL_PROMPT, &EditorCallbacks::prompt);
  ::el_set(editor_, EL_EDITOR, "emacs");
  ::el_set(editor_, EL_HIST, ::history, history_);
  // Ctrl-C gives a line up; it is no signal while one is typed.
  ::el_set(editor_, EL_SETTY, "-d", "-isig", nullptr);
  ::el_set(editor_, EL_ADDFN, "atoll-cancel", "give the line up", &EditorCallbacks::cancel);
  ::el_set(editor_, EL_BIND, "^C", "atoll-cancel", nullptr);
  if (history_file.empty()) return;
  file_ = sys::UniqueFd(
      ::open(history_file.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file_) return;
  const off_t size = ::lseek(file_.get(), 0, SEEK_END);
  std::string text(std::size_t(std::clamp<off_t>(size, 0, kMostHistory)), '\0');
  const ssize_t n =
      ::pread(file_.get(), text.data(), text.size(), std::max<off_t>(0, size - kMostHistory));
  text.resize(n > 0 ? std::size_t(n) : 0);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string entry = text.substr(at, end - at);
    for (char& c : entry) {
      if (c == kLineBreak) c = '\n';
    }
    if (!entry.empty()) ::history(history_, &event, H_ENTER, entry.c_str());
    at = end + 1;
  }
}

LineEditor::~LineEditor() {
  if (history_ != nullptr) ::history_end(history_);
  if (editor_ != nullptr) ::el_end(editor_);
}

LineEditor::Read LineEditor::read(const std::string& prompt) {
  Read out;
  if (editor_ == nullptr) {
    if (std::getline(std::cin, out.text)) out.outcome = Outcome::line;
    return out;
  }
  prompt_ = prompt;
  cancelled_ = false;
  int count = 0;
  const char* line = ::el_gets(editor_, &count);
  if (cancelled_) {
    put(STDOUT_FILENO, "^C\n");
    out.outcome = Outcome::cancelled;
  } else if (line != nullptr && count > 0) {
    out.text.assign(line, std::size_t(count));
    if (out.text.ends_with('\n')) out.text.pop_back();
    out.outcome = Outcome::line;
  }
  return out;
}

void LineEditor::restore_terminal() {
  if (before_) ::tcsetattr(STDIN_FILENO, TCSANOW, &*before_);
}

void LineEditor::remember(const std::string& entry) {
  if (history_ == nullptr || entry.empty()) return;
  HistEvent event;
  ::history(history_, &event, H_ENTER, entry.c_str());
  if (!file_) return;
  std::string line = entry + "\n";
  for (std::size_t i = 0; i + 1 < line.size(); ++i) {
    if (line[i] == '\n') line[i] = kLineBreak;
  }
  put(file_.get(), line);
}

}  // namespace atl::cli
