// Turns on swap in an own file, which has no swap header: EINVAL comes after the permission check.
#include <sys/swap.h>

#include "payload.h"

static void attack(int argc, char** argv) {
  (void)argc;
  (void)argv;
  char path[512];
  snprintf(path, sizeof path, "%s/swap", scratch_dir());
  int fd = open(path, O_CREAT | O_WRONLY, 0600);
  if (fd < 0 || ftruncate(fd, 65536)) inconclusive("cannot make a file");
  close(fd);
  long r = swapon(path, 0);
  int error = errno;
  unlink(path);
  errno = error;
  verdict_reached(r, EINVAL, "swapon would take our file");
}
