// Gets a userfaultfd, the tool that holds kernel races open: by system call and by
// /dev/userfaultfd.
#include <sys/ioctl.h>

#include "payload.h"

static void attack(int argc, char** argv) {
  (void)argc;
  (void)argv;
  if (syscall(SYS_userfaultfd, O_CLOEXEC | 1 /* user mode only */) >= 0)
    succeeded("got a userfaultfd");
  int error = errno;
  int fd = open("/dev/userfaultfd", O_RDWR);
  if (fd >= 0 && ioctl(fd, 0xAA00 /* USERFAULTFD_IOC_NEW */, O_CLOEXEC) >= 0) {
    succeeded("got a userfaultfd from the device");
  }
  blocked(error);
}
