#include "mcp/lines.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/encoding.h"
#include "mcp/cut.h"

namespace atl::mcp {

void LinePicker::feed(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const std::string_view piece = end == std::string_view::npos ? bytes : bytes.substr(0, end + 1);
    begun_ = true;
    if (wanted()) add(piece);
    bytes.remove_prefix(piece.size());
    if (end != std::string_view::npos) end_line();
  }
}

void LinePicker::finish() {
  if (begun_) end_line();
}

void LinePicker::add(std::string_view piece) {
  if (head_.size() < cap_) {
    const std::string_view first = piece.substr(0, cap_ - head_.size());
    head_ += first;
    piece.remove_prefix(first.size());
  }
  tail_ += piece;
  // Now and then, so that bytes are not moved for each piece.
  if (tail_.size() > 2 * cap_) {
    between_ += tail_.size() - cap_;
    tail_.erase(0, tail_.size() - cap_);
  }
}

void LinePicker::end_line() {
  if (wanted()) {
    const bool whole = tail_.empty() && text_.size() + head_.size() <= cap_;
    if (whole) {
      text_ += head_;
      ++taken_;
    } else {
      full_ = true;
      if (taken_ == 0) {
        text_ =
            cut_middle(to_utf8(head_), to_utf8(tail_), between_, cap_, "use bash_exec: cut, jq");
        line_omitted_ = head_.size() + between_ + tail_.size() -
                        std::min<std::uint64_t>(cap_, head_.size() + between_ + tail_.size());
        ++taken_;
      }
    }
  }
  head_.clear();
  tail_.clear();
  between_ = 0;
  begun_ = false;
  ++line_;
}

bool looks_binary(std::string_view beginning) {
  if (beginning.find('\0') != std::string_view::npos) return true;
  std::size_t odd = 0;
  for (std::size_t i = 0; i < beginning.size();) {
    const auto lead = static_cast<unsigned char>(beginning[i]);
    if (lead < 0x80) {
      odd += (lead < 0x20 && (lead < 0x07 || lead > 0x0d) && lead != 0x1b) || lead == 0x7f ? 1 : 0;
      ++i;
      continue;
    }
    const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    // A character that the end cuts off is none of its faults.
    if (i + length > beginning.size()) break;
    const bool good = is_valid_utf8(beginning.substr(i, length));
    odd += good ? 0 : 1;
    i += good ? length : 1;
  }
  return odd * 10 > beginning.size() * 3;
}

std::string_view mime_type_of(std::string_view beginning) {
  static constexpr std::pair<std::string_view, std::string_view> kMagic[] = {
      {"\x89PNG\r\n", "image/png"},
      {"\xFF\xD8\xFF", "image/jpeg"},
      {"GIF8", "image/gif"},
      {"BM", "image/bmp"},
      {"%PDF-", "application/pdf"},
      {"PK\x03\x04", "application/zip"},
      {"\x1F\x8B", "application/gzip"},
      {"BZh", "application/x-bzip2"},
      {"\xFD"
       "7zXZ",
       "application/x-xz"},
      {"\x28\xB5\x2F\xFD", "application/zstd"},
      {"\x7F"
       "ELF",
       "application/x-executable"},
      {"SQLite format 3", "application/vnd.sqlite3"},
      {"PAR1", "application/vnd.apache.parquet"},
      {"OggS", "audio/ogg"},
      {"ID3", "audio/mpeg"},
      {"fLaC", "audio/flac"},
  };
  for (const auto& [magic, type] : kMagic) {
    if (beginning.starts_with(magic)) return type;
  }
  if (beginning.starts_with("RIFF") && beginning.size() >= 12) {
    if (beginning.substr(8, 4) == "WEBP") return "image/webp";
    if (beginning.substr(8, 4) == "WAVE") return "audio/wav";
  }
  if (beginning.size() >= 8 && beginning.substr(4, 4) == "ftyp") return "video/mp4";
  return "application/octet-stream";
}

Occurrences count_occurrences(std::string_view text, std::string_view what) {
  Occurrences out;
  if (what.size() > text.size()) return out;
  // Knuth, Morris and Pratt: a byte of the text is compared twice at most. Searching again behind
  // each place would take minutes for "aaa..." in a file of nothing else.
  // border[i]: so many bytes at the end of the first i + 1 are those that it begins with.
  std::vector<std::uint32_t> border(what.size(), 0);
  std::uint32_t fits = 0;
  for (std::size_t i = 1; i < what.size(); ++i) {
    while (fits > 0 && what[i] != what[fits]) fits = border[fits - 1];
    if (what[i] == what[fits]) ++fits;
    border[i] = fits;
  }
  fits = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    while (fits > 0 && text[i] != what[fits]) fits = border[fits - 1];
    if (text[i] == what[fits]) ++fits;
    if (fits < what.size()) continue;
    if (out.count++ == 0) out.first = i + 1 - what.size();
    fits = border[fits - 1];
  }
  return out;
}

}  // namespace atl::mcp
