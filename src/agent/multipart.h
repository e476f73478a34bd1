// Incremental multipart parser (RFC 2046 §5.1, RFC 7578) without I/O and without copying file
// bytes.
//
// The parser owns one buffer. The caller reads the body straight into `room()`, says how much came
// with `commit()`, and takes events with `next()` until it says need_more. Data is held back until
// half a buffer of it is there or the part ends, so that a small part comes out as one piece
// however its bytes arrived.
//
// Limits: boundary 200 bytes, headers of a part 16 KiB and 32 fields, 10,000 parts.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace atl::agent {

// The value of `boundary` in a Content-Type. Errors: invalid_argument.
Result<std::string> multipart_boundary(std::string_view content_type);

struct PartHeaders {
  std::string name;                     // form field; empty if it is no form-data part
  std::optional<std::string> filename;  // as sent: directories kept, nothing percent-decoded
};

// Parses a Content-Disposition value. Anything else than form-data has no name.
PartHeaders parse_content_disposition(std::string_view value);

class MultipartParser {
 public:
  enum class Event { need_more, part_begin, data, part_end, end };

  explicit MultipartParser(std::string_view boundary, std::size_t buffer_bytes = 256 * 1024);

  // Where to read the next bytes to; never empty after need_more.
  std::span<char> room();
  void commit(std::size_t bytes);
  // The body ended. Errors: invalid_argument if the closing boundary has not come.
  Result<void> finish() const;

  // Errors: invalid_argument; the parser is of no use afterwards.
  Result<Event> next();

  const PartHeaders& part() const { return part_; }  // after part_begin
  // After data: valid until the next call of `next` or `room`.
  std::string_view data() const { return data_; }
  // Bytes of the current part that are held back; for a body that broke off.
  std::string_view held_back() const;

 private:
  enum class State { preamble, after_boundary, headers, data, epilogue };

  std::string_view unread() const { return {buffer_.get() + begin_, end_ - begin_}; }
  void consume(std::size_t n);
  Event seek_preamble();
  Result<Event> after_boundary();
  Result<Event> read_headers();
  Result<void> parse_headers(std::string_view block);
  Event read_data();
  std::size_t find_delimiter();
  Error malformed(std::string_view what) const;

  std::string delimiter_;  // CRLF "--" boundary
  std::unique_ptr<char[]> buffer_;
  std::size_t capacity_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::size_t scanned_ = 0;  // from begin_: known to hold no delimiter
  State state_ = State::preamble;
  bool part_start_ = false;  // nothing of the part's data was taken yet
  std::size_t parts_ = 0;
  PartHeaders part_;
  std::string_view data_;
};

}  // namespace atl::agent
