#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "sys/fd.h"

namespace atl::snapshot {

// CRC-32C (Castagnoli): finds what disks and cut-off copies do to files; no defence against a
// forger, who would need root's directories. Goes on from `crc`.
std::uint32_t crc32c(std::string_view bytes, std::uint32_t crc = 0);

struct FileSum {
  std::uint64_t size = 0;
  std::uint32_t crc = 0;
  bool operator==(const FileSum&) const = default;
};
// Goes on with what the file has beyond the sum, about `most` bytes of it. Tells how many those
// were; 0: the sum is that of the whole file. aborted: cancel().
Result<std::uint64_t> extend(FileSum& sum, const sys::UniqueFd& file, std::uint64_t most);
// Of the whole file, from its beginning, or from where `begun` is. aborted: cancel().
Result<FileSum> sum_of(const sys::UniqueFd& file, FileSum begun = {});

// The same of the first `size` bytes, without a copy of them: half the work. Where the file is
// shorter, or cannot be read, the kernel ends the process by SIGBUS: for one of its own.
Result<FileSum> sum_of_mapped(const sys::UniqueFd& file, std::uint64_t size);

}  // namespace atl::snapshot
