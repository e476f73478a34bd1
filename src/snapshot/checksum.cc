#include "snapshot/checksum.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "snapshot/criu.h"

namespace atl::snapshot {
namespace {

constexpr std::size_t kBlock = 256 << 10;
constexpr std::size_t kWindow = 32 << 20;          // whole pages
constexpr std::uint32_t kPolynomial = 0x82f63b78;  // reflected

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0);
    table[i] = value;
  }
  return table;
}
constexpr auto kTable = make_table();

std::uint32_t by_table(std::string_view bytes, std::uint32_t crc) {
  for (const char c : bytes) crc = (crc >> 8) ^ kTable[(crc ^ std::uint8_t(c)) & 0xff];
  return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t by_instruction(std::string_view bytes,
                                                               std::uint32_t crc) {
  std::uint64_t wide = crc;
  while (bytes.size() >= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof(word));
    wide = __builtin_ia32_crc32di(wide, word);
    bytes.remove_prefix(8);
  }
  return by_table(bytes, std::uint32_t(wide));
}
#endif

}  // namespace

std::uint32_t crc32c(std::string_view bytes, std::uint32_t crc) {
  crc = ~crc;
#if defined(__x86_64__)
  static const bool fast = __builtin_cpu_supports("sse4.2") != 0;
  if (fast) return ~by_instruction(bytes, crc);
#endif
  return ~by_table(bytes, crc);
}

Result<std::uint64_t> extend(FileSum& sum, const sys::UniqueFd& file, std::uint64_t most) {
  const std::uint64_t begin = sum.size;
  std::vector<char> block(kBlock);
  while (sum.size - begin < most) {
    const ssize_t n = ::pread(file.get(), block.data(), block.size(), off_t(sum.size));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_error("read");
    if (n == 0) break;
    ATOLL_TRY(check_cancelled());
    sum.crc = crc32c({block.data(), std::size_t(n)}, sum.crc);
    sum.size += std::uint64_t(n);
  }
  return sum.size - begin;
}

Result<FileSum> sum_of(const sys::UniqueFd& file, FileSum begun) {
  for (;;) {
    ATOLL_TRY_ASSIGN(std::uint64_t more, extend(begun, file, kBlock));
    if (more == 0) return begun;
  }
}

Result<FileSum> sum_of_mapped(const sys::UniqueFd& file, std::uint64_t size) {
  FileSum sum;
  while (sum.size < size) {
    const auto part = std::size_t(std::min<std::uint64_t>(size - sum.size, kWindow));
    void* at =
        ::mmap(nullptr, part, PROT_READ, MAP_SHARED | MAP_POPULATE, file.get(), off_t(sum.size));
    if (at == MAP_FAILED) return errno_error("mmap");
    sum.crc = crc32c({static_cast<const char*>(at), part}, sum.crc);
    ::munmap(at, part);
    sum.size += part;
  }
  return sum;
}

}  // namespace atl::snapshot
