#include "cli/unfinished.h"

#include <algorithm>
#include <string>
#include <vector>

namespace atl::cli {
namespace {

// What the end of a text is inside of.
struct Scan {
  int depth = 0;                   // of brackets
  bool in_string = false;          // that goes on over the end of a line
  bool continued = false;          // the last line ends with a backslash
  bool block = false;              // a line ended with a colon
  std::vector<std::string> words;  // of a shell
};

class Scanner {
 public:
  Scanner(const Language& language, std::string_view text)
      : text_(text),
        hash_comments_(language.name == "python" || language.name == "bash" ||
                       language.name == "r"),
        python_(language.name == "python"),
        shell_(language.name == "bash"),
        backtick_(language.name == "javascript" || language.name == "typescript") {}

  Scan run() {
    while (at_ < text_.size()) step();
    end_line();
    return scan_;
  }

 private:
  bool here(std::string_view what) const { return text_.substr(at_).starts_with(what); }

  void step() {
    const char c = text_[at_];
    if (c == '\n') {
      end_line();
      scan_.continued = false;
      ++at_;
    } else if (c == '\\') {
      scan_.continued =
          at_ + 1 == text_.size() || (at_ + 2 == text_.size() && text_[at_ + 1] == '\n');
      last_ = c;
      at_ += 2;
    } else if (hash_comments_ && c == '#' && (!shell_ || word_.empty())) {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (!hash_comments_ && here("//")) {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (!hash_comments_ && here("/*")) {
      const std::size_t end = text_.find("*/", at_ + 2);
      scan_.in_string = end == std::string_view::npos;
      at_ = scan_.in_string ? text_.size() : end + 2;
    } else if (c == '"' || c == '\'' || (c == '`' && (backtick_ || shell_))) {
      skip_string(c);
    } else {
      if (c == '(' || c == '[' || c == '{') ++scan_.depth;
      if (c == ')' || c == ']' || c == '}') --scan_.depth;
      if (c == ' ' || c == '\t' || c == ';') {
        end_word();
      } else {
        word_ += c;
      }
      if (c != ' ' && c != '\t' && c != '\r') last_ = c;
      ++at_;
    }
  }

  void skip_string(char quote) {
    std::string_view mark = text_.substr(at_, 1);
    if (python_ && (here("\"\"\"") || here("'''"))) mark = text_.substr(at_, 3);
    const bool many_lines = mark.size() == 3 || quote == '`' || shell_;
    word_ += quote;
    last_ = quote;
    for (at_ += mark.size(); at_ < text_.size(); ++at_) {
      if (here(mark)) {
        at_ += mark.size();
        return;
      }
      if (text_[at_] == '\\' && !(shell_ && quote == '\'')) {
        ++at_;
      } else if (text_[at_] == '\n' && !many_lines) {
        return;  // an error, which the language itself tells best
      }
    }
    at_ = text_.size();
    scan_.in_string = many_lines;
  }

  void end_line() {
    end_word();
    if (scan_.depth <= 0 && !scan_.in_string && last_ == ':') scan_.block = true;
    last_ = 0;
  }

  void end_word() {
    if (shell_ && !word_.empty()) scan_.words.push_back(word_);
    word_.clear();
  }

  std::string_view text_;
  const bool hash_comments_, python_, shell_, backtick_;
  std::size_t at_ = 0;
  std::string word_;
  char last_ = 0;  // of the code in this line
  Scan scan_;
};

// if … fi, case … esac, do … done
int open_blocks(const std::vector<std::string>& words) {
  int open = 0;
  for (const std::string& word : words) {
    if (word == "if" || word == "case" || word == "do") ++open;
    if (word == "fi" || word == "esac" || word == "done") --open;
  }
  const bool waits_for_do =
      !words.empty() && std::count(words.begin(), words.end(), "do") == 0 &&
      (words.front() == "for" || words.front() == "while" || words.front() == "until");
  return open + (waits_for_do ? 1 : 0);
}

std::string_view last_line(std::string_view text) {
  const std::size_t at = text.rfind('\n');
  return at == std::string_view::npos ? text : text.substr(at + 1);
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

}  // namespace

bool is_unfinished(const Language& language, std::string_view text) {
  if (is_blank(text)) return false;
  const Scan scan = Scanner(language, text).run();
  if (scan.in_string || scan.continued || scan.depth > 0) return true;
  if (language.name == "bash") return open_blocks(scan.words) > 0;
  if (language.name != "python") return false;
  const bool block = scan.block || text.front() == '@';
  return block && (text.find('\n') == std::string_view::npos || !is_blank(last_line(text)));
}

}  // namespace atl::cli
