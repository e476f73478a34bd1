// Reads the kernel's log with syslog(2) and /proc/kmsg.
#include <sys/klog.h>

#include "payload.h"

static void attack(int argc, char** argv) {
  (void)argc;
  (void)argv;
  static char text[65536];
  int n = klogctl(3, text, sizeof text);
  if (n > 0) succeeded("read %d bytes of the kernel's log", n);
  int error = n < 0 ? errno : EPERM;
  struct stat st;
  int fd = open("/proc/kmsg", O_RDONLY | O_NONBLOCK);
  if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) succeeded("opened /proc/kmsg");
  blocked(error);
}
