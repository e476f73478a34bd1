#include "agent/multipart.h"

#include <algorithm>
#include <cstring>

#include "base/encoding.h"
#include "net/http.h"

namespace atl::agent {
namespace {

constexpr std::size_t kMaxBoundary = 200;
constexpr std::size_t kMaxPartHeaderBytes = 16 * 1024;
constexpr std::size_t kMaxPartHeaders = 32;
constexpr std::size_t kMaxParts = 10'000;
constexpr std::size_t kMaxPadding = 256;  // white space after a boundary

std::string_view trim(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

// A backslash quotes only these, so that a bare Windows path in a filename keeps its backslashes.
bool is_tspecial(char c) { return std::strchr("()<>@,;:\\\"/[]?=", c) != nullptr && c != '\0'; }

// One `; name=value` of a header value; `rest` moves behind it.
struct Parameter {
  std::string name;
  std::string value;
};
std::optional<Parameter> next_parameter(std::string_view& rest) {
  while (true) {
    rest = trim(rest);
    if (rest.empty()) return std::nullopt;
    if (rest.front() != ';') break;
    rest.remove_prefix(1);
  }
  const std::size_t equals = rest.find_first_of("=;");
  Parameter parameter;
  parameter.name = std::string(trim(rest.substr(0, equals)));
  for (char& c : parameter.name) {
    if (c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
  }
  if (equals == std::string_view::npos || rest[equals] == ';') {
    rest.remove_prefix(std::min(equals, rest.size()));
    return parameter;
  }
  rest = trim(rest.substr(equals + 1));
  if (rest.empty() || rest.front() != '"') {
    const std::size_t end = std::min(rest.find(';'), rest.size());
    parameter.value = std::string(trim(rest.substr(0, end)));
    rest.remove_prefix(end);
    return parameter;
  }
  std::size_t i = 1;
  for (; i < rest.size() && rest[i] != '"'; ++i) {
    if (rest[i] == '\\' && i + 1 < rest.size() && is_tspecial(rest[i + 1])) ++i;
    parameter.value += rest[i];
  }
  rest.remove_prefix(std::min(i + 1, rest.size()));
  return parameter;
}

// RFC 8187: charset'language'percent-encoded.
std::optional<std::string> decode_extended(std::string_view value) {
  const std::size_t first = value.find('\'');
  if (first == std::string_view::npos) return std::nullopt;
  const std::size_t second = value.find('\'', first + 1);
  if (second == std::string_view::npos) return std::nullopt;
  const std::string_view charset = value.substr(0, first);
  if (!net::iequals(charset, "utf-8") && !net::iequals(charset, "us-ascii")) return std::nullopt;
  return percent_decode(value.substr(second + 1));
}

}  // namespace

Result<std::string> multipart_boundary(std::string_view content_type) {
  std::string_view rest =
      content_type.substr(std::min(content_type.find(';'), content_type.size()));
  while (auto parameter = next_parameter(rest)) {
    if (parameter->name != "boundary") continue;
    if (parameter->value.empty() || parameter->value.size() > kMaxBoundary) {
      return make_error(Errc::invalid_argument, "the multipart boundary must have 1 to " +
                                                    std::to_string(kMaxBoundary) + " bytes");
    }
    if (parameter->value.find_first_of(std::string_view("\r\n\0", 3)) != std::string::npos) {
      return make_error(Errc::invalid_argument, "the multipart boundary has control characters");
    }
    return std::move(parameter->value);
  }
  return make_error(Errc::invalid_argument, "no multipart boundary param in Content-Type");
}

PartHeaders parse_content_disposition(std::string_view value) {
  PartHeaders part;
  const std::size_t end = std::min(value.find(';'), value.size());
  if (!net::iequals(trim(value.substr(0, end)), "form-data")) return part;
  std::string_view rest = value.substr(end);
  std::optional<std::string> extended;
  bool named = false;
  while (auto parameter = next_parameter(rest)) {
    if (parameter->name == "name" && !named) {
      part.name = std::move(parameter->value);
      named = true;
    } else if (parameter->name == "filename" && !part.filename) {
      part.filename = std::move(parameter->value);
    } else if (parameter->name == "filename*" && !extended) {
      extended = decode_extended(parameter->value);
    }
  }
  if (extended) part.filename = std::move(extended);
  return part;
}

MultipartParser::MultipartParser(std::string_view boundary, std::size_t buffer_bytes)
    : delimiter_("\r\n--" + std::string(boundary)),
      // Headers of a part and a held-back delimiter must fit beside each other.
      capacity_(std::max(buffer_bytes, kMaxPartHeaderBytes + kMaxPadding + 2 * delimiter_.size())) {
  buffer_.reset(new char[capacity_]);
  // The first boundary may stand at the very start: as if a line break had come before it.
  buffer_[0] = '\r';
  buffer_[1] = '\n';
  end_ = 2;
}

void MultipartParser::consume(std::size_t n) {
  begin_ += n;
  scanned_ = 0;
  if (begin_ == end_) begin_ = end_ = 0;
}

std::span<char> MultipartParser::room() {
  if (begin_ > 0 && capacity_ - end_ < capacity_ / 4) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  return {buffer_.get() + end_, capacity_ - end_};
}

void MultipartParser::commit(std::size_t bytes) { end_ += bytes; }

Error MultipartParser::malformed(std::string_view what) const {
  return make_error(Errc::invalid_argument, "multipart: " + std::string(what));
}

Result<void> MultipartParser::finish() const {
  if (state_ == State::epilogue) return {};
  return malformed("unexpected end of the body");
}

std::string_view MultipartParser::held_back() const {
  return state_ == State::data ? unread() : std::string_view();
}

Result<MultipartParser::Event> MultipartParser::next() {
  switch (state_) {
    case State::preamble:
      if (seek_preamble() == Event::need_more) return Event::need_more;
      [[fallthrough]];
    case State::after_boundary:
      return after_boundary();
    case State::headers:
      return read_headers();
    case State::data:
      return read_data();
    case State::epilogue:
      consume(end_ - begin_);
      return Event::end;
  }
  return malformed("state");
}

// Where the delimiter starts, counted from begin_; npos if there is none yet. `scanned_` then tells
// up to where no delimiter can start, whatever follows.
std::size_t MultipartParser::find_delimiter() {
  const std::string_view bytes = unread();
  std::size_t at = scanned_;
  while (at < bytes.size()) {
    const void* hit = std::memchr(bytes.data() + at, '\r', bytes.size() - at);
    if (hit == nullptr) break;
    at = std::size_t(static_cast<const char*>(hit) - bytes.data());
    const std::size_t length = std::min(delimiter_.size(), bytes.size() - at);
    if (std::memcmp(bytes.data() + at, delimiter_.data(), length) == 0) {
      scanned_ = at;
      return length == delimiter_.size() ? at : std::string_view::npos;
    }
    ++at;
  }
  scanned_ = bytes.size();
  return std::string_view::npos;
}

MultipartParser::Event MultipartParser::seek_preamble() {
  const std::size_t at = find_delimiter();
  if (at == std::string_view::npos) {
    consume(scanned_);
    return Event::need_more;
  }
  consume(at + delimiter_.size());
  state_ = State::after_boundary;
  return Event::data;
}

// Behind a boundary stands "--" (the last one), or blanks and a line break, and then the headers of
// a part.
Result<MultipartParser::Event> MultipartParser::after_boundary() {
  const std::string_view bytes = unread();
  if (bytes.size() < 2) return Event::need_more;
  if (bytes.starts_with("--")) {
    state_ = State::epilogue;
    consume(end_ - begin_);
    return Event::end;
  }
  const std::size_t line = bytes.find_first_not_of(" \t");
  if (line == std::string_view::npos || line + 2 > bytes.size()) {
    if (bytes.size() > kMaxPadding) return malformed("a boundary line is too long");
    return Event::need_more;
  }
  if (bytes.substr(line, 2) != "\r\n") return malformed("a boundary is not followed by a line end");
  consume(line + 2);
  if (++parts_ > kMaxParts) return malformed("too many parts");
  state_ = State::headers;
  return read_headers();
}

Result<MultipartParser::Event> MultipartParser::read_headers() {
  const std::string_view bytes = unread();
  std::size_t end = 0;
  if (!bytes.starts_with("\r\n")) {
    const std::size_t from = scanned_ > 3 ? scanned_ - 3 : 0;
    end = bytes.find("\r\n\r\n", from);
    if (end == std::string_view::npos) {
      if (bytes.size() > kMaxPartHeaderBytes)
        return malformed("the headers of a part are too long");
      scanned_ = bytes.size();
      return Event::need_more;
    }
    if (end > kMaxPartHeaderBytes) return malformed("the headers of a part are too long");
    end += 2;
  }
  ATOLL_TRY(parse_headers(bytes.substr(0, end)));
  consume(end + 2);
  state_ = State::data;
  part_start_ = true;
  return Event::part_begin;
}

Result<void> MultipartParser::parse_headers(std::string_view block) {
  part_ = {};
  bool found = false;
  std::size_t count = 0;
  while (!block.empty()) {
    const std::size_t end = block.find("\r\n");
    const std::string_view line = block.substr(0, end);
    block.remove_prefix(end == std::string_view::npos ? block.size() : end + 2);
    if (++count > kMaxPartHeaders) return malformed("a part has too many headers");
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos || colon == 0) return malformed("a header without a name");
    if (line.front() == ' ' || line.front() == '\t') return malformed("a folded header");
    if (!found && net::iequals(line.substr(0, colon), "Content-Disposition")) {
      part_ = parse_content_disposition(trim(line.substr(colon + 1)));
      found = true;
    }
  }
  return {};
}

MultipartParser::Event MultipartParser::read_data() {
  const std::string_view bytes = unread();
  const std::string_view bare = std::string_view(delimiter_).substr(2);
  if (part_start_) {
    // A part without a body may have its boundary right behind the empty line.
    const std::size_t length = std::min(bare.size(), bytes.size());
    if (bytes.substr(0, length) == bare.substr(0, length)) {
      if (length < bare.size()) return Event::need_more;
      consume(bare.size());
      state_ = State::after_boundary;
      return Event::part_end;
    }
    part_start_ = false;
  }
  const std::size_t at = find_delimiter();
  if (at == 0) {
    consume(delimiter_.size());
    state_ = State::after_boundary;
    return Event::part_end;
  }
  if (at != std::string_view::npos) {
    data_ = bytes.substr(0, at);
    consume(at);
    return Event::data;
  }
  // At least half a buffer goes out at once: a part shorter than that is never cut, and room()
  // never moves more than that.
  if (end_ < capacity_ || end_ - begin_ < capacity_ / 2) return Event::need_more;
  data_ = bytes.substr(0, scanned_);
  consume(scanned_);
  return Event::data;
}

}  // namespace atl::agent
