// Lines of a text that comes in pieces, and what kind of bytes a file has.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace atl::mcp {

// Keeps the lines `offset` to `offset + limit` with their ends, at most `cap` bytes of them, and
// counts all. What does not fit ends the selection at the line before; a first line that alone is
// too long is cut in the middle.
class LinePicker {
 public:
  LinePicker(std::int64_t offset, std::int64_t limit, std::size_t cap)
      : offset_(offset), limit_(limit), cap_(cap) {}

  void feed(std::string_view bytes);
  // After the last piece.
  void finish();

  const std::string& text() const { return text_; }
  std::int64_t lines() const { return taken_; }  // in the text
  std::int64_t total() const { return line_; }
  bool full() const { return full_; }                      // it ended at the cap
  std::uint64_t omitted() const { return line_omitted_; }  // of a line that was cut

 private:
  bool wanted() const { return !full_ && line_ >= offset_ && line_ - offset_ < limit_; }
  void add(std::string_view piece);
  void end_line();

  std::int64_t offset_;
  std::int64_t limit_;
  std::size_t cap_;
  std::string text_;
  std::int64_t line_ = 0;  // lines before the current one
  std::int64_t taken_ = 0;
  bool begun_ = false;  // the current line has bytes
  std::string head_;    // of the current line
  std::string tail_;
  std::uint64_t between_ = 0;  // bytes lost between the two
  std::uint64_t line_omitted_ = 0;
  bool full_ = false;
};

// Does a file that begins so hold no text? A NUL, or many bytes that are no characters.
bool looks_binary(std::string_view beginning);
// "image/png" and so on by its first bytes; "application/octet-stream" if nobody knows.
std::string_view mime_type_of(std::string_view beginning);

// Where `what` occurs in `text`, also overlapping: how often, and where first. `what` is not empty.
struct Occurrences {
  std::size_t count = 0;
  std::size_t first = 0;
};
Occurrences count_occurrences(std::string_view text, std::string_view what);

}  // namespace atl::mcp
