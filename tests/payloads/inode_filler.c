// Makes empty files without end. argv: CAP
#include "payload.h"

static void attack(int argc, char** argv) {
  long cap = atol(need(argc, argv, 1));
  char top[512], path[1024];
  snprintf(top, sizeof top, "%s", scratch_dir());
  printf("HOLDING\n");
  fflush(stdout);
  for (long count = 0; count < cap; ++count) {
    int failed = 0;
    if (count % 10000 == 0) {
      snprintf(path, sizeof path, "%s/%ld", top, count / 10000);
      failed = mkdir(path, 0700);
    }
    snprintf(path, sizeof path, "%s/%ld/%ld", top, count / 10000, count);
    if (!failed) failed = mknod(path, S_IFREG | 0600, 0);
    if (!failed) continue;
    if (errno != ENOSPC && errno != EDQUOT) inconclusive("%ld files: %s", count, strerror(errno));
    blocked_because("%s stopped at %ld files", strerrorname_np(errno), count);
  }
  succeeded("%ld files", cap);
}
