// Fills the disk: reserves blocks without end, or writes where reserving is not possible.
// argv: CAP_MIB [DIRECTORY]
#include "payload.h"

static void attack(int argc, char** argv) {
  long cap = atol(need(argc, argv, 1));
  char path[4096];
  snprintf(path, sizeof path, "%s/filler-%d", argc > 2 ? argv[2] : scratch(), getpid());
  int fd = open(path, O_CREAT | O_RDWR, 0600);
  if (fd < 0) inconclusive("%s: %s", path, strerror(errno));
  printf("HOLDING\n");
  fflush(stdout);
  static char block[1 << 20];
  memset(block, 0x5a, sizeof block);
  long mib = 0;
  int error = 0;
  for (const long step = 64; mib < cap; mib += step) {
    if (fallocate(fd, 0, mib << 20, step << 20) == 0) continue;
    if (errno == EOPNOTSUPP) {
      long k = 0;
      while (k < step && pwrite(fd, block, sizeof block, (mib + k) << 20) == (ssize_t)sizeof block)
        ++k;
      if (k == step) continue;
    }
    error = errno;
    break;
  }
  close(fd);
  unlink(path);
  if (mib >= cap) succeeded("%ld MiB on disk", mib);
  if (error != ENOSPC && error != EDQUOT)
    inconclusive("stopped at %ld MiB: %s", mib, strerror(error));
  blocked_because("%s stopped at %ld MiB", strerrorname_np(error), mib);
}
