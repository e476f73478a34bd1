#include "sys/loop.h"

#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>

#include <cerrno>

#include "sys/files.h"

namespace atl::sys {
namespace {

// A device number as the kernel packs it for loop_info64.
dev_t decode(std::uint64_t packed) {
  return makedev(unsigned((packed & 0xfff00) >> 8),
                 unsigned((packed & 0xff) | ((packed >> 12) & 0xfff00)));
}

}  // namespace

Result<LoopDevice> LoopDevice::attach(const UniqueFd& file, Access access) {
  ATOLL_TRY_ASSIGN(UniqueFd control, open_trusted("/dev/loop-control", O_RDWR));
  // Between "which one is free" and "take it" somebody else may take it: EBUSY, ask again.
  for (int attempt = 0;; ++attempt) {
    const int number = ::ioctl(control.get(), LOOP_CTL_GET_FREE);
    if (number < 0) return errno_error("no free loop device");
    std::string path = "/dev/loop" + std::to_string(number);
    ATOLL_TRY_ASSIGN(UniqueFd device, open_trusted(path, O_RDWR));
    loop_config config{};
    config.fd = unsigned(file.get());
    config.block_size = 4096;
    config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
    if (access == Access::read_only) config.info.lo_flags |= LO_FLAGS_READ_ONLY;
    if (::ioctl(device.get(), LOOP_CONFIGURE, &config) == 0)
      return LoopDevice(std::move(device), std::move(path));
    if (errno != EBUSY || attempt >= 64) return errno_error("configure " + path);
  }
}

Result<std::optional<LoopDevice>> LoopDevice::find(const UniqueFd& file) {
  ATOLL_TRY_ASSIGN(struct stat wanted, stat_of(file));
  ATOLL_TRY_ASSIGN(UniqueFd block, open_trusted("/sys/block", O_RDONLY | O_DIRECTORY));
  ATOLL_TRY_ASSIGN(std::vector<std::string> names, list_dir(block));
  for (const std::string& name : names) {
    if (!name.starts_with("loop") ||
        presence_of("/sys/block/" + name + "/loop/backing_file") != Presence::present)
      continue;
    std::string path = "/dev/" + name;
    auto device = open_trusted(path, O_RDONLY);
    if (!device) continue;  // went away meanwhile
    loop_info64 info{};
    if (::ioctl(device->get(), LOOP_GET_STATUS64, &info) != 0) continue;
    if (info.lo_inode != wanted.st_ino || decode(info.lo_device) != wanted.st_dev) continue;
    return std::optional<LoopDevice>(LoopDevice(std::move(*device), std::move(path)));
  }
  return std::optional<LoopDevice>();
}

}  // namespace atl::sys
