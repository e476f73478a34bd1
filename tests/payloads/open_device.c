// Opens a device node of the host, for reading only. argv: PATH
#include "payload.h"

static void attack(int argc, char** argv) {
  const char* path = need(argc, argv, 1);
  int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) blocked(errno);
  struct stat st;
  fstat(fd, &st);
  if (!S_ISBLK(st.st_mode) && !S_ISCHR(st.st_mode)) blocked_because("ENOENT %s is no device", path);
  succeeded("opened %s", path);
}
