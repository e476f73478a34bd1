// Writes a setting of the kernel: the value that it has. With `open`, for files that act on a
// write, it only opens the file for writing. argv: PATH [open]
#include "payload.h"

static void attack(int argc, char** argv) {
  const char* path = need(argc, argv, 1);
  char value[4096];
  ssize_t n = 0;
  if (argc <= 2) {
    int in = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (in < 0) blocked(errno);
    n = read(in, value, sizeof value);
    close(in);
  }
  int fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) blocked(errno);
  struct stat st;
  if (fstat(fd, &st) == 0 && S_ISCHR(st.st_mode)) blocked_because("MASKED %s is a device", path);
  if (argc > 2) succeeded("opened %s for writing", path);
  if (n <= 0) inconclusive("%s has no value to write back", path);
  if (write(fd, value, (size_t)n) == n) succeeded("wrote %s", path);
  blocked(errno);
}
