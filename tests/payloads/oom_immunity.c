// Makes itself immune against the out-of-memory killer.
#include "payload.h"

static void attack(int argc, char** argv) {
  (void)argc;
  (void)argv;
  int fd = open("/proc/self/oom_score_adj", O_WRONLY);
  if (fd < 0) blocked(errno);
  verdict(write(fd, "-1000", 5), "the out-of-memory killer will spare us");
}
