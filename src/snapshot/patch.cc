#include "snapshot/patch.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "snapshot/image.h"

namespace atl::snapshot {
namespace {

using Wire = Field::Wire;

// Numbers of fields in CRIU's messages.
namespace file_entry {
constexpr std::uint32_t kRegular = 3;
constexpr std::uint32_t kTimer = 12;
constexpr std::uint32_t kUnixSocket = 16;
}  // namespace file_entry
namespace regular {
constexpr std::uint32_t kName = 6;
constexpr std::uint32_t kMount = 7;
constexpr std::uint32_t kExternal = 9;
}  // namespace regular
namespace timer {
constexpr std::uint32_t kSeconds = 7;
constexpr std::uint32_t kNanoseconds = 8;
constexpr std::uint32_t kEverySeconds = 9;
constexpr std::uint32_t kEveryNanoseconds = 10;
}  // namespace timer
namespace unix_socket {
constexpr std::uint32_t kOwner = 13;
}
namespace owner {
constexpr std::uint32_t kUser = 2;
constexpr std::uint32_t kGroup = 3;
}  // namespace owner
namespace mount {
constexpr std::uint32_t kId = 2;
constexpr std::uint32_t kMountPoint = 7;
}  // namespace mount
namespace user_namespace {
constexpr std::uint32_t kUserMap = 1;
constexpr std::uint32_t kGroupMap = 2;
}  // namespace user_namespace
namespace extent {
constexpr std::uint32_t kInner = 1;
constexpr std::uint32_t kOuter = 2;
constexpr std::uint32_t kCount = 3;
}  // namespace extent
constexpr std::uint32_t kNodeName = 1;
namespace remap {
constexpr std::uint32_t kOriginal = 1;
constexpr std::uint32_t kReplacement = 2;
constexpr std::uint32_t kType = 3;
constexpr std::uint64_t kLinked = 0;
}  // namespace remap
constexpr std::uint32_t kFileId = 2;

constexpr std::uint64_t kNobody = 0xffffffff;

Error damaged(const char* what) { return make_error(Errc::data_loss, what); }

// True if it was changed.
Result<bool> patch_regular(Field& field, const FilesPatch& patch) {
  ATOLL_TRY_ASSIGN(Message file, Message::parse(field.bytes));
  const Field* external = file.find(regular::kExternal, Wire::varint);
  if (external == nullptr || external->value == 0) return false;
  const Field* name = file.find(regular::kName, Wire::bytes);
  if (name == nullptr) return damaged("a file without a name");
  const auto found = patch.paths.find(name->bytes);
  if (found == patch.paths.end()) return false;
  file.set(regular::kName, found->second);
  file.set(regular::kMount, to_zigzag(patch.root_mount));
  file.remove(regular::kExternal);
  field.bytes = file.serialize();
  return true;
}

Result<bool> patch_socket(Field& field) {
  ATOLL_TRY_ASSIGN(Message socket, Message::parse(field.bytes));
  Field* owners = socket.find(unix_socket::kOwner, Wire::bytes);
  if (owners == nullptr) return false;
  ATOLL_TRY_ASSIGN(Message ids, Message::parse(owners->bytes));
  bool changed = false;
  for (const std::uint32_t number : {owner::kUser, owner::kGroup}) {
    const Field* id = ids.find(number, Wire::varint);
    if (id == nullptr || id->value != kNobody) continue;
    ids.set(number, std::uint64_t(0));
    changed = true;
  }
  if (!changed) return false;
  owners->bytes = ids.serialize();
  field.bytes = socket.serialize();
  return true;
}

// The kernel gives no time to go for a timerfd that has expired and was not read; set to that, a
// periodic one would never tick again. Its next tick is a period away.
Result<bool> patch_timer(Field& field) {
  ATOLL_TRY_ASSIGN(Message entry, Message::parse(field.bytes));
  const auto value = [&](std::uint32_t number) {
    const Field* found = entry.find(number, Wire::varint);
    return found == nullptr ? 0 : found->value;
  };
  const std::uint64_t seconds = value(timer::kEverySeconds);
  const std::uint64_t nanoseconds = value(timer::kEveryNanoseconds);
  if (value(timer::kSeconds) != 0 || value(timer::kNanoseconds) != 0) return false;
  if (seconds == 0 && nanoseconds == 0) return false;
  entry.set(timer::kSeconds, seconds);
  entry.set(timer::kNanoseconds, nanoseconds);
  field.bytes = entry.serialize();
  return true;
}

}  // namespace

std::string external_file(std::uint32_t mount, std::uint64_t inode) {
  return fmt::format("file[{:x}:{:x}]", mount, inode);
}

Result<std::int32_t> root_mount(std::string_view mountpoints) {
  ATOLL_TRY_ASSIGN(Image image, parse_image(mountpoints, ImageKind::mountpoints));
  for (const std::string& record : image.records) {
    ATOLL_TRY_ASSIGN(Message entry, Message::parse(record));
    const Field* path = entry.find(mount::kMountPoint, Wire::bytes);
    const Field* id = entry.find(mount::kId, Wire::varint);
    if (path != nullptr && path->bytes == "/" && id != nullptr) return std::int32_t(id->value);
  }
  return damaged("the image has no root");
}

Result<std::string> patch_files(std::string_view bytes, const FilesPatch& patch) {
  ATOLL_TRY_ASSIGN(Image image, parse_image(bytes, ImageKind::files));
  for (std::string& record : image.records) {
    ATOLL_TRY_ASSIGN(Message entry, Message::parse(record));
    bool changed = false;
    if (Field* field = entry.find(file_entry::kRegular, Wire::bytes)) {
      ATOLL_TRY_ASSIGN(changed, patch_regular(*field, patch));
    } else if (Field* socket = entry.find(file_entry::kUnixSocket, Wire::bytes)) {
      ATOLL_TRY_ASSIGN(changed, patch_socket(*socket));
    } else if (Field* timing = entry.find(file_entry::kTimer, Wire::bytes)) {
      ATOLL_TRY_ASSIGN(changed, patch_timer(*timing));
    }
    if (changed) record = entry.serialize();
  }
  return serialize(image);
}

Result<std::vector<LinkRemap>> link_remaps(std::string_view remaps, std::string_view files) {
  ATOLL_TRY_ASSIGN(Image entries, parse_image(files, ImageKind::files));
  std::map<std::uint64_t, std::string> names;
  for (const std::string& record : entries.records) {
    ATOLL_TRY_ASSIGN(Message entry, Message::parse(record));
    const Field* id = entry.find(kFileId, Wire::varint);
    const Field* field = entry.find(file_entry::kRegular, Wire::bytes);
    if (id == nullptr || field == nullptr) continue;
    ATOLL_TRY_ASSIGN(Message file, Message::parse(field->bytes));
    if (const Field* name = file.find(regular::kName, Wire::bytes))
      names[id->value] = name->bytes.substr(name->bytes.starts_with('/') ? 1 : 0);
  }
  ATOLL_TRY_ASSIGN(Image image, parse_image(remaps, ImageKind::remaps));
  std::vector<LinkRemap> found;
  for (const std::string& record : image.records) {
    ATOLL_TRY_ASSIGN(Message entry, Message::parse(record));
    const Field* type = entry.find(remap::kType, Wire::varint);
    if (type != nullptr && type->value != remap::kLinked) continue;
    const Field* original = entry.find(remap::kOriginal, Wire::varint);
    const Field* replacement = entry.find(remap::kReplacement, Wire::varint);
    if (original == nullptr || replacement == nullptr || !names.contains(original->value) ||
        !names.contains(replacement->value))
      return damaged("a removed file without its replacement");
    found.push_back({names[original->value], names[replacement->value]});
  }
  return found;
}

Result<std::string> patch_ids(std::string_view bytes, uid_t first_id, std::uint32_t count) {
  ATOLL_TRY_ASSIGN(Image image, parse_image(bytes, ImageKind::user_namespace));
  if (image.records.size() != 1) return damaged("not one user namespace");
  ATOLL_TRY_ASSIGN(Message maps, Message::parse(image.records.front()));
  int users = 0;
  int groups = 0;
  for (Field& field : maps.fields()) {
    if (field.number != user_namespace::kUserMap && field.number != user_namespace::kGroupMap)
      continue;
    ++(field.number == user_namespace::kUserMap ? users : groups);
    ATOLL_TRY_ASSIGN(Message map, Message::parse(field.bytes));
    const Field* inner = map.find(extent::kInner, Wire::varint);
    const Field* size = map.find(extent::kCount, Wire::varint);
    if (inner == nullptr || inner->value != 0 || size == nullptr || size->value != count)
      return damaged("another map of ids than a sandbox has");
    map.set(extent::kOuter, std::uint64_t(first_id));
    field.bytes = map.serialize();
  }
  if (users != 1 || groups != 1) return damaged("another map of ids than a sandbox has");
  image.records.front() = maps.serialize();
  return serialize(image);
}

Result<std::string> patch_host_name(std::string_view bytes, const std::string& name) {
  ATOLL_TRY_ASSIGN(Image image, parse_image(bytes, ImageKind::host_name));
  if (image.records.size() != 1) return damaged("not one host name");
  ATOLL_TRY_ASSIGN(Message names, Message::parse(image.records.front()));
  names.set(kNodeName, name);
  image.records.front() = names.serialize();
  return serialize(image);
}

}  // namespace atl::snapshot
