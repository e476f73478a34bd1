// Fills socket and pipe buffers, which are the kernel's memory, without end. argv: CAP_MIB
#define PAYLOAD_KILLED_IS_BLOCKED
#include <sys/resource.h>

#include "payload.h"

static long fill(int fd) {
  static char block[65536];
  long total = 0;
  for (ssize_t n; (n = write(fd, block, sizeof block)) > 0;) total += n;
  return total;
}

static void attack(int argc, char** argv) {
  long cap = atol(need(argc, argv, 1)) << 20;
  struct rlimit limit;
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  printf("HOLDING\n");
  fflush(stdout);
  long total = 0;
  int error = 0;
  while (total < cap) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends)) {
      error = errno;
      break;
    }
    long got = fill(ends[0]) + fill(ends[1]);
    if (pipe2(ends, O_NONBLOCK) == 0) got += fill(ends[1]);
    if (got == 0) {
      error = errno;
      break;
    }
    total += got;
  }
  if (total >= cap) succeeded("%ld MiB in buffers", total >> 20);
  blocked_because("%s stopped at %ld MiB in buffers", strerrorname_np(error), total >> 20);
}
