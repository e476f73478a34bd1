// Glob: patterns for paths, as shells with `globstar` and braces understand them.
//
//   *      any characters within a name       ?      one character of a name
//   [a-z]  one of them; [!a] or [^a]: another  {a,b}  either, also nested, also with slashes
//   **     any number of whole names          \x     x itself
//
// A name that begins with a dot is matched only by a name of the pattern that begins with one.
// Matching takes time of the order of pattern times path, whatever the pattern.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace atl::mcp {

class Glob {
 public:
  // invalid_argument: a bracket or brace that is not closed, too many alternatives.
  static Result<Glob> compile(std::string_view pattern);

  // `path` is relative: "src/a.cc".
  bool matches(std::string_view path) const;
  // Can it match a path with a name that begins with a dot?
  bool sees_hidden() const { return sees_hidden_; }

 private:
  struct Atom {
    enum class Kind : std::uint8_t { literal, any, star, set };
    Kind kind = Kind::literal;
    char32_t literal = 0;
    bool negated = false;
    std::vector<std::pair<char32_t, char32_t>> ranges = {};
  };
  struct Segment {
    bool globstar = false;
    std::vector<Atom> atoms;
  };
  using Path = std::vector<Segment>;

  static Result<Segment> compile_segment(std::string_view text);
  static bool fits(const Segment& segment, const std::u32string& name);
  static bool fits(const Path& path, const std::vector<std::u32string>& names);

  std::vector<Path> alternatives_;
  bool sees_hidden_ = false;
};

// All that the braces of a pattern stand for, themselves without braces.
Result<std::vector<std::string>> expand_braces(std::string_view pattern);

// The leading directories of a pattern in which nothing is a pattern, and the rest:
// "src/x/*.cc" -> "src/x", "*.cc". The directories may be empty, "/" or have "..".
struct SplitPattern {
  std::string directory;
  std::string rest;
};
SplitPattern split_literal_prefix(std::string_view pattern);

}  // namespace atl::mcp
