// Descriptors of files in the sandbox: an owner, and the few calls that every file operation of the
// agent is made of.
//
// Nothing here may block for long: the agent has one thread. Files are opened with O_NONBLOCK, so
// that a FIFO or a device that the sandbox put in the way gives an error instead of a wait.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "sys/fd.h"

namespace atl::agent {

using Fd = sys::UniqueFd;

// Errors of these carry `sys_errno`; code internal, or resource_exhausted when the disk or quota is
// full.
Result<std::size_t> read_file(int fd, std::span<char> into);  // 0 = end of file
Result<std::size_t> read_file_at(int fd, std::span<char> into, std::uint64_t offset);
Result<void> write_file(int fd, std::string_view bytes);

// ENOSPC and EDQUOT.
bool is_disk_full(int err);

// Attributes that clients may set on files: xattrs `user.e2b.<key>`.
inline constexpr std::string_view kMetadataPrefix = "user.e2b.";
using Metadata = std::map<std::string, std::string>;

// All of them; links are followed. What cannot be read or is not UTF-8 is left out, and a
// filesystem without xattrs has none.
Metadata read_metadata(const std::string& path);
Metadata read_metadata(int fd);
// Makes `wanted` the whole set. Touches nothing that is right already: every change raises an
// inotify event. A filesystem without xattrs keeps none and that is no error.
Result<void> replace_metadata(int fd, const Metadata& wanted);

}  // namespace atl::agent
