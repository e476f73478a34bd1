// Takes a real-time class or a better priority than everybody, to starve the host's processors.
#include <sys/resource.h>

#include "payload.h"

static void attack(int argc, char** argv) {
  (void)argc;
  (void)argv;
  struct sched_param p = {.sched_priority = 1};
  if (sched_setscheduler(0, SCHED_FIFO, &p) == 0) succeeded("became a real-time process");
  int error = errno;
  if (setpriority(PRIO_PROCESS, 0, -20) == 0) succeeded("took nice -20");
  blocked(error);
}
