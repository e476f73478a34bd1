// What is changed in CRIU's images, as pure functions from bytes to bytes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace atl::snapshot {

// CRIU's name of a file that it was told not to look for: "file[MOUNT:INODE]", hexadecimal.
std::string external_file(std::uint32_t mount, std::uint64_t inode);

// Number of the root's mount in the image of mount points.
Result<std::int32_t> root_mount(std::string_view mountpoints);

// Of files.img:
// - files dumped as external that are in `paths` become ordinary files of the sandbox's root;
//   the others stay external;
// - owners of unix sockets that have no name inside become the sandbox's root. CRIU would give
//   the socket back to nobody, and fail; the worker puts the true owner right (Stage::restored);
// - periodic timerfds that expired unread have their next tick a period away.
struct FilesPatch {
  std::map<std::string, std::string> paths;  // external_file() -> path
  std::int32_t root_mount = 0;
};
Result<std::string> patch_files(std::string_view image, const FilesPatch& patch);

// The id maps of the user namespace become one extent: 0 ... is `first_id` ... . data_loss if it
// was anything but one extent of `count` from 0 on.
Result<std::string> patch_ids(std::string_view image, uid_t first_id, std::uint32_t count);
Result<std::string> patch_host_name(std::string_view image, const std::string& name);

// Files that are open under a name that was removed while others exist: CRIU makes a link beside
// the old name, dumps that, and expects it at the restore. Paths without the leading slash.
struct LinkRemap {
  std::string removed;
  std::string link;
};
Result<std::vector<LinkRemap>> link_remaps(std::string_view remaps, std::string_view files);

}  // namespace atl::snapshot
