// Opens inotify instances, which the kernel counts per user and per owner of the user namespace.
// argv: hold CAP SECONDS | probe (a neighbour who wants one: SUCCEEDED if he is starved)
#include <sys/inotify.h>
#include <sys/resource.h>

#include "payload.h"

static void attack(int argc, char** argv) {
  const char* verb = need(argc, argv, 1);
  if (!strcmp(verb, "probe")) {
    if (inotify_init1(IN_CLOEXEC) < 0) succeeded("starved: %s", strerror(errno));
    blocked_because("FREE a neighbour still gets an instance");
  }
  struct rlimit limit;
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  int cap = atoi(need(argc, argv, 2)), count = 0, error = 0;
  for (; count < cap; ++count) {
    if (inotify_init1(IN_CLOEXEC) < 0) {
      error = errno;
      break;
    }
  }
  printf("HOLDING %d\n", count);
  fflush(stdout);
  sleep((unsigned)atoi(need(argc, argv, 3)));
  if (count >= cap) succeeded("%d instances", count);
  blocked_because("%s stopped at %d instances", strerrorname_np(error), count);
}
