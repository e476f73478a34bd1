// The lines that clients and runners exchange through the agent (kernels/protocol.md,
// wire/code-interpreter.md §2.3): reading those of runners, making those that the agent has to add.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "agent/interpreter/json_scan.h"

namespace atl::agent::interpreter {

inline constexpr std::size_t kMaxLine = 32 << 20;

enum class LineType { invalid, ready, warmed, started, output, result, error, done };

struct RunnerLine {
  LineType type = LineType::invalid;
  std::int64_t execution_count = 0;  // of `started`
  bool restart = false;              // of `done`
};

// Checks a line without its line break. `scratch` saves allocations.
RunnerLine read_line(std::string_view line, JsonMembers& scratch);

enum class Output { out, err };

// All of these end with a line break and are ASCII.
std::string count_line(std::int64_t execution_count);
std::string output_line(Output output, std::string_view text);
std::string error_line(std::string_view name, std::string_view value);
inline constexpr std::string_view kKeepaliveLine = "{\"type\": \"keepalive\"}\n";
inline constexpr std::string_view kEndLine = "{\"type\": \"end_of_execution\"}\n";

// A JSON string, ASCII only; broken UTF-8 becomes U+FFFD.
std::string json_quote(std::string_view utf8);
// `{"op":"start",...}` with its line break. `env` is NAME=value.
std::string start_line(const std::vector<std::string>& env, std::string_view cwd);

// `{"op":"forked",...}` likewise.
std::string forked_line(std::string_view seed, const std::map<std::string, std::string>& env);

// Bytes of a pipe as text: a character whose bytes come in two reads is kept until it is whole.
class TextJoin {
 public:
  // What can be told now.
  std::string add(std::string_view bytes);

 private:
  std::string rest_;
};

// Cuts a stream into lines. A line longer than kMaxLine is thrown away as it comes.
class LineBuffer {
 public:
  struct Line {
    std::string_view text;  // without its line break; valid until the next `space`
    bool oversized = false;
  };
  // Where to put the next bytes.
  std::span<char> space();
  void added(std::size_t count);
  // False: no whole line is there.
  bool next(Line& line);

 private:
  std::vector<char> data_;
  std::size_t begin_ = 0;   // of the first line that was not told
  std::size_t looked_ = 0;  // no line break before this
  std::size_t end_ = 0;
  bool skipping_ = false;
};

}  // namespace atl::agent::interpreter
