#include "snapshot/image.h"

#include <algorithm>
#include <cstring>

namespace atl::snapshot {
namespace {

constexpr std::uint32_t kCommonMagic = 0x54564319;
constexpr int kMaxVarint = 10;

Error broken(const char* what) {
  return make_error(Errc::data_loss, std::string("the image is damaged: ") + what);
}

std::uint32_t load32(std::string_view bytes) {
  std::uint32_t value = 0;
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}
void append32(std::string& out, std::uint32_t value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

bool take_varint(std::string_view& in, std::uint64_t& value) {
  value = 0;
  for (int i = 0; i < kMaxVarint; ++i) {
    if (in.empty()) return false;
    const auto byte = std::uint8_t(in.front());
    in.remove_prefix(1);
    value |= std::uint64_t(byte & 0x7f) << (7 * i);
    if ((byte & 0x80) == 0) return true;
  }
  return false;
}
void append_varint(std::string& out, std::uint64_t value) {
  while (value >= 0x80) {
    out.push_back(char(std::uint8_t(value) | 0x80));
    value >>= 7;
  }
  out.push_back(char(value));
}

}  // namespace

Result<Image> parse_image(std::string_view bytes, ImageKind kind) {
  if (bytes.size() > kMaxImageBytes) return broken("too large");
  if (bytes.size() < 8 || load32(bytes) != kCommonMagic ||
      load32(bytes.substr(4)) != std::uint32_t(kind))
    return broken("another kind of file");
  bytes.remove_prefix(8);
  Image image{kind, {}};
  while (!bytes.empty()) {
    if (image.records.size() >= kMaxRecords) return broken("too many records");
    if (bytes.size() < 4) return broken("cut off");
    const std::uint32_t size = load32(bytes);
    bytes.remove_prefix(4);
    if (size > bytes.size()) return broken("cut off");
    image.records.emplace_back(bytes.substr(0, size));
    bytes.remove_prefix(size);
  }
  return image;
}

std::string serialize(const Image& image) {
  std::string out;
  append32(out, kCommonMagic);
  append32(out, std::uint32_t(image.kind));
  for (const std::string& record : image.records) {
    append32(out, std::uint32_t(record.size()));
    out += record;
  }
  return out;
}

Result<Message> Message::parse(std::string_view bytes) {
  Message message;
  while (!bytes.empty()) {
    if (message.fields_.size() >= kMaxFields) return broken("too many fields");
    std::uint64_t key = 0;
    if (!take_varint(bytes, key) || key >> 3 == 0 || key >> 3 > 0x1fffffff)
      return broken("not a field");
    Field field;
    field.number = std::uint32_t(key >> 3);
    field.wire = Field::Wire(key & 7);
    std::uint64_t size = 0;
    switch (field.wire) {
      case Field::Wire::varint:
        if (!take_varint(bytes, field.value)) return broken("not a number");
        break;
      case Field::Wire::fixed64:
        size = 8;
        break;
      case Field::Wire::fixed32:
        size = 4;
        break;
      case Field::Wire::bytes:
        if (!take_varint(bytes, size)) return broken("not a length");
        break;
      default:
        return broken("not a field");
    }
    if (size > bytes.size()) return broken("cut off");
    field.bytes = bytes.substr(0, std::size_t(size));
    bytes.remove_prefix(std::size_t(size));
    message.fields_.push_back(std::move(field));
  }
  return message;
}

std::string Message::serialize() const {
  std::string out;
  for (const Field& field : fields_) {
    append_varint(out, std::uint64_t(field.number) << 3 | std::uint64_t(field.wire));
    if (field.wire == Field::Wire::varint) append_varint(out, field.value);
    if (field.wire == Field::Wire::bytes) append_varint(out, field.bytes.size());
    out += field.bytes;
  }
  return out;
}

const Field* Message::find(std::uint32_t number, Field::Wire wire) const {
  for (auto it = fields_.rbegin(); it != fields_.rend(); ++it) {
    if (it->number == number) return it->wire == wire ? &*it : nullptr;
  }
  return nullptr;
}
Field* Message::find(std::uint32_t number, Field::Wire wire) {
  return const_cast<Field*>(std::as_const(*this).find(number, wire));
}

void Message::remove(std::uint32_t number) {
  std::erase_if(fields_, [number](const Field& field) { return field.number == number; });
}

void Message::set(std::uint32_t number, std::uint64_t value) {
  remove(number);
  fields_.push_back({number, Field::Wire::varint, value, {}});
}
void Message::set(std::uint32_t number, std::string bytes) {
  remove(number);
  fields_.push_back({number, Field::Wire::bytes, 0, std::move(bytes)});
}

}  // namespace atl::snapshot
