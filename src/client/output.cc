#include "client/output.h"

#include <algorithm>

namespace atl::client {
namespace {

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// How many bytes at the end of `text` are the beginning of a character that is not whole.
std::size_t cut_character(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(4, text.size()); ++back) {
    const auto c = static_cast<unsigned char>(text[text.size() - back]);
    if (continues(char(c))) continue;
    const std::size_t whole = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : c >= 0xC0 ? 2 : 1;
    return whole > back ? back : 0;
  }
  return 0;
}

}  // namespace

void OutputKeeper::add(std::string_view bytes) {
  const std::size_t first = std::min(bytes.size(), head_room_ - output_.head.size());
  output_.head += bytes.substr(0, first);
  bytes.remove_prefix(first);
  if (bytes.size() > tail_room_) {
    output_.omitted += output_.tail.size() + bytes.size() - tail_room_;
    output_.tail.assign(bytes.substr(bytes.size() - tail_room_));
    return;
  }
  output_.tail += bytes;
  // Cut only now and then: each byte is moved at most once.
  if (output_.tail.size() > 2 * tail_room_) {
    const std::size_t extra = output_.tail.size() - tail_room_;
    output_.omitted += extra;
    output_.tail.erase(0, extra);
  }
}

Output OutputKeeper::finish() && {
  Output& out = output_;
  if (out.tail.size() > tail_room_) {
    const std::size_t extra = out.tail.size() - tail_room_;
    out.omitted += extra;
    out.tail.erase(0, extra);
  }
  if (out.omitted == 0) {
    out.head += out.tail;
    out.tail.clear();
    return std::move(out);
  }
  const std::size_t begun = cut_character(out.head);
  out.head.resize(out.head.size() - begun);
  std::size_t left = 0;
  while (left < std::min<std::size_t>(3, out.tail.size()) && continues(out.tail[left])) ++left;
  out.tail.erase(0, left);
  out.omitted += begun + left;
  return std::move(out);
}

std::string Output::text() const {
  if (omitted == 0) return head;
  return head + "\n[... " + std::to_string(omitted) + " bytes left out ...]\n" + tail;
}

}  // namespace atl::client
