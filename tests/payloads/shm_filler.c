// Fills /dev/shm, which is memory. argv: CAP_MIB
#define PAYLOAD_KILLED_IS_BLOCKED
#include "payload.h"

static void attack(int argc, char** argv) {
  long cap = atol(need(argc, argv, 1));
  static char block[1 << 20];
  memset(block, 0x5a, sizeof block);
  char path[64];
  snprintf(path, sizeof path, "/dev/shm/filler-%d", getpid());
  int fd = open(path, O_CREAT | O_WRONLY, 0600);
  if (fd < 0) blocked(errno);
  unlink(path);
  printf("HOLDING\n");
  fflush(stdout);
  for (long mib = 0; mib < cap; ++mib) {
    ssize_t n = write(fd, block, sizeof block);
    if (n != (ssize_t)sizeof block) blocked_because("ENOSPC stopped at %ld MiB", mib);
  }
  succeeded("%ld MiB in /dev/shm", cap);
}
