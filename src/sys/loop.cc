#include "sys/loop.h"

#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>

#include <cerrno>

#include "sys/files.h"

namespace atl::sys {

Result<LoopDevice> LoopDevice::attach(const UniqueFd& file) {
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
    if (::ioctl(device.get(), LOOP_CONFIGURE, &config) == 0)
      return LoopDevice(std::move(device), std::move(path));
    if (errno != EBUSY || attempt >= 64) return errno_error("configure " + path);
  }
}

}  // namespace atl::sys
