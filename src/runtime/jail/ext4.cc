#include "runtime/jail/ext4.h"

#include <cstring>
#include <span>

#include "snapshot/checksum.h"
#include "sys/files.h"

namespace atl::jail {
namespace {

// Offsets and bits of the kernel's struct ext4_super_block; numbers are little-endian.
constexpr std::uint64_t kSuperblock = 1024;
constexpr std::size_t kSize = 1024;
constexpr std::size_t kMagic = 0x38;
constexpr std::size_t kState = 0x3a;
constexpr std::size_t kIncompatible = 0x60;
constexpr std::size_t kReadOnlyCompatible = 0x64;
constexpr std::size_t kUuid = 0x68;
constexpr std::size_t kChecksumSeed = 0x270;
constexpr std::size_t kChecksum = 0x3fc;
constexpr std::uint32_t kHasSeed = 0x2000;      // incompatible
constexpr std::uint32_t kHasChecksums = 0x400;  // read-only compatible
constexpr std::uint8_t kValid = 1;              // state: unmounted in good order

std::uint32_t load(const std::string& block, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 4; i-- > 0;) value = value << 8 | std::uint8_t(block[at + i]);
  return value;
}

void store(std::string& block, std::size_t at, std::uint32_t value) {
  for (std::size_t i = 0; i < 4; ++i, value >>= 8) block[at + i] = char(value & 0xff);
}

// As ext4 has it: not inverted at the end.
std::uint32_t checksum(std::string_view bytes) { return ~snapshot::crc32c(bytes); }

Result<std::string> read_superblock(const sys::UniqueFd& image) {
  ATOLL_TRY_ASSIGN(std::string block, sys::read_at(image, kSuperblock, kSize));
  if (block.size() != kSize || std::uint8_t(block[kMagic]) != 0x53 ||
      std::uint8_t(block[kMagic + 1]) != 0xef)
    return make_error(Errc::data_loss, "the disk image is no filesystem");
  const bool checked = (load(block, kReadOnlyCompatible) & kHasChecksums) != 0;
  if (checked && checksum(std::string_view(block).substr(0, kChecksum)) != load(block, kChecksum))
    return make_error(Errc::data_loss, "the disk image is damaged");
  return block;
}

}  // namespace

Result<bool> is_clean(const sys::UniqueFd& image) {
  ATOLL_TRY_ASSIGN(std::string state, sys::read_at(image, kSuperblock + kState, 2));
  if (state.size() != 2) return make_error(Errc::data_loss, "the disk image is cut off");
  return state[0] == kValid && state[1] == 0;
}

Result<Uuid> uuid_of(const sys::UniqueFd& image) {
  ATOLL_TRY_ASSIGN(const std::string block, read_superblock(image));
  Uuid uuid;
  std::memcpy(uuid.data(), block.data() + kUuid, uuid.size());
  return uuid;
}

Result<void> make_distinct(const sys::UniqueFd& image, const Uuid& uuid) {
  ATOLL_TRY_ASSIGN(std::string block, read_superblock(image));
  const bool checked = (load(block, kReadOnlyCompatible) & kHasChecksums) != 0;
  if (checked && (load(block, kIncompatible) & kHasSeed) == 0) {
    // All other checksums begin with that of the old UUID, which is kept for them.
    store(block, kChecksumSeed, checksum(std::string_view(block).substr(kUuid, uuid.size())));
    store(block, kIncompatible, load(block, kIncompatible) | kHasSeed);
  }
  std::memcpy(block.data() + kUuid, uuid.data(), uuid.size());
  block[kState] = char(kValid);
  block[kState + 1] = 0;
  if (checked) store(block, kChecksum, checksum(std::string_view(block).substr(0, kChecksum)));
  return sys::write_at(image, kSuperblock, block);
}

Result<Uuid> new_uuid() {
  Uuid uuid;
  ATOLL_TRY(sys::random_bytes(std::as_writable_bytes(std::span(uuid))));
  uuid[6] = std::uint8_t((uuid[6] & 0x0f) | 0x40);
  uuid[8] = std::uint8_t((uuid[8] & 0x3f) | 0x80);
  return uuid;
}

}  // namespace atl::jail
