// Makes empty files without end, and removes them. argv: CAP [DIRECTORY]
#include "payload.h"

static void attack(int argc, char** argv) {
  long cap = atol(need(argc, argv, 1));
  char top[4096], path[8192];
  snprintf(top, sizeof top, "%s/inodes-%d", argc > 2 ? argv[2] : scratch(), getpid());
  if (mkdir(top, 0700)) inconclusive("%s: %s", top, strerror(errno));
  printf("HOLDING\n");
  fflush(stdout);
  long count = 0;
  int error = 0;
  for (; count < cap; ++count) {
    if (count % 10000 == 0) {
      snprintf(path, sizeof path, "%s/%ld", top, count / 10000);
      if (mkdir(path, 0700) && (error = errno)) break;
    }
    snprintf(path, sizeof path, "%s/%ld/%ld", top, count / 10000, count);
    if (mknod(path, S_IFREG | 0600, 0)) {
      error = errno;
      break;
    }
  }
  for (long i = 0; i < count; ++i) {
    snprintf(path, sizeof path, "%s/%ld/%ld", top, i / 10000, i);
    unlink(path);
    if (i % 10000 == 9999 || i + 1 == count) {
      snprintf(path, sizeof path, "%s/%ld", top, i / 10000);
      rmdir(path);
    }
  }
  rmdir(top);
  if (count >= cap) succeeded("%ld files", count);
  if (error != ENOSPC && error != EDQUOT)
    inconclusive("stopped at %ld files: %s", count, strerror(error));
  blocked_because("%s stopped at %ld files", strerrorname_np(error), count);
}
