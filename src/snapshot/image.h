// CRIU's image files as they are on disk: eight bytes that tell the kind, then records, each a
// length and a protobuf message. Messages are taken apart generically, so that a patch keeps every
// field that it does not know.
//
// The content comes from processes that nobody trusts: every length is checked, nothing is
// recursive by itself, and the number of records and fields is bounded.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace atl::snapshot {

inline constexpr std::size_t kMaxImageBytes = 256u << 20;  // of an image that is read as a whole
inline constexpr std::size_t kMaxRecords = 1u << 20;
inline constexpr std::size_t kMaxFields = 1u << 16;  // of one message

enum class ImageKind : std::uint32_t {
  files = 0x56303138,
  mountpoints = 0x55563928,
  user_namespace = 0x55474906,
  host_name = 0x54473203,
  remaps = 0x59133954,
};

struct Image {
  ImageKind kind;
  std::vector<std::string> records;
};
// data_loss: another kind, cut off, or beyond the bounds.
Result<Image> parse_image(std::string_view bytes, ImageKind kind);
std::string serialize(const Image& image);

struct Field {
  enum class Wire : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };
  std::uint32_t number = 0;
  Wire wire = Wire::varint;
  std::uint64_t value = 0;  // varint
  std::string bytes;        // the others, as they are
};

class Message {
 public:
  static Result<Message> parse(std::string_view bytes);
  std::string serialize() const;

  // The last one counts, as protobuf has it. nullptr: none, or of another wire type.
  const Field* find(std::uint32_t number, Field::Wire wire) const;
  Field* find(std::uint32_t number, Field::Wire wire);
  void set(std::uint32_t number, std::uint64_t value);
  void set(std::uint32_t number, std::string bytes);
  void remove(std::uint32_t number);
  std::vector<Field>& fields() { return fields_; }
  const std::vector<Field>& fields() const { return fields_; }

 private:
  std::vector<Field> fields_;
};

// Protobuf's sint32, which CRIU uses for numbers of mounts.
constexpr std::uint64_t to_zigzag(std::int32_t value) {
  return std::uint32_t(value) << 1 ^ std::uint32_t(value >> 31);
}
constexpr std::int32_t from_zigzag(std::uint64_t value) {
  return std::int32_t(std::uint32_t(value) >> 1 ^ (0u - std::uint32_t(value & 1)));
}

}  // namespace atl::snapshot
