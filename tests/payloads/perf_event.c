// Opens a performance counter on itself.
#include <linux/perf_event.h>

#include "payload.h"

static void attack(int argc, char** argv) {
  (void)argc;
  (void)argv;
  struct perf_event_attr a = {.type = PERF_TYPE_SOFTWARE,
                              .size = sizeof a,
                              .config = PERF_COUNT_SW_TASK_CLOCK,
                              .exclude_kernel = 1,
                              .exclude_hv = 1};
  verdict(syscall(SYS_perf_event_open, &a, 0, -1, -1, 0), "opened a performance counter");
}
