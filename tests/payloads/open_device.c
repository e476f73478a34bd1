// Opens a device node of the host, for reading only. argv: PATH [SECRET]
// With a secret, the device must hold it in its first mebibyte: then it was the host's device.
#include "payload.h"

static void attack(int argc, char** argv) {
  const char* path = need(argc, argv, 1);
  int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) blocked(errno);
  struct stat st;
  fstat(fd, &st);
  if (!S_ISBLK(st.st_mode) && !S_ISCHR(st.st_mode)) blocked_because("ENOENT %s is no device", path);
  if (argc > 2 && fd_holds(fd, argv[2]) != 1) inconclusive("opened %s without the secret", path);
  succeeded("opened %s", path);
}
