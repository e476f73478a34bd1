// Writes a setting of the kernel: opens the file for writing and, if it can be read, writes the
// value that it has. Files that act on a write (sysrq-trigger) are only opened. argv: PATH
#include "payload.h"

static void attack(int argc, char** argv) {
  const char* path = need(argc, argv, 1);
  char value[4096];
  ssize_t n = -1;
  int in = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (in >= 0) {
    n = read(in, value, sizeof value);
    close(in);
  }
  int fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) blocked(errno);
  struct stat st;
  if (fstat(fd, &st) == 0 && S_ISCHR(st.st_mode)) blocked_because("MASKED %s is a device", path);
  if (n <= 0) succeeded("opened %s for writing", path);
  if (write(fd, value, (size_t)n) == n) succeeded("wrote %s", path);
  blocked(errno);
}
