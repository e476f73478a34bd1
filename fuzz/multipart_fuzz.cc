// Multipart bodies: no input may crash the parser, and how the bytes are cut into pieces must not
// change what comes out.
//
// The first two bytes say how the body is cut; the rest is the body, with the boundary "b".
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "agent/multipart.h"

namespace {

using atl::agent::MultipartParser;

struct Outcome {
  std::vector<std::string> parts;  // name, file name and data of each, written one behind the other
  bool ok = false;
  bool operator==(const Outcome&) const = default;
};

Outcome parse(std::string_view body, std::uint32_t seed, std::size_t most) {
  MultipartParser parser("b", 1);  // the smallest buffer it takes
  Outcome outcome;
  for (;;) {
    const auto event = parser.next();
    if (!event.ok()) return outcome;
    switch (*event) {
      case MultipartParser::Event::need_more:
      case MultipartParser::Event::end: {
        if (body.empty()) {
          outcome.ok = parser.finish().ok();
          return outcome;
        }
        const std::span<char> room = parser.room();
        if (room.empty()) std::abort();
        seed = seed * 1664525 + 1013904223;
        const std::size_t n = std::min({body.size(), room.size(), 1 + (seed >> 8) % most});
        std::memcpy(room.data(), body.data(), n);
        body.remove_prefix(n);
        parser.commit(n);
        break;
      }
      case MultipartParser::Event::part_begin:
        outcome.parts.push_back(parser.part().name + "|" + parser.part().filename.value_or("-") +
                                "|");
        break;
      case MultipartParser::Event::data:
        if (parser.data().empty() || outcome.parts.empty()) std::abort();
        outcome.parts.back() += parser.data();
        break;
      case MultipartParser::Event::part_end:
        break;
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data) + 2, size - 2);
  const Outcome whole = parse(body, 0, std::size_t(1) << 20);
  const Outcome pieces = parse(body, data[0], 1 + data[1] % 64);
  // A part that was being read when the body turned out malformed may have shown more of its data
  // in one of the two.
  if (whole.ok != pieces.ok || (whole.ok && whole != pieces)) std::abort();
  (void)atl::agent::multipart_boundary(body);
  (void)atl::agent::parse_content_disposition(body);
  return 0;
}
